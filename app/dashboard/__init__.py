"""The dashboard: pages for operators under ``/dashboard``, rendered here, readable without a script."""

from app.dashboard.router import root, router

__all__ = ["root", "router"]
