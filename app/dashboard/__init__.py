"""The dashboard: pages for operators under ``/dashboard``, rendered here, readable without a script."""

from app.dashboard.router import router

__all__ = ["router"]
