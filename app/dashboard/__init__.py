"""The dashboard: server-rendered pages for operators under ``/dashboard``. They work without JavaScript."""

from app.dashboard.router import root, router

__all__ = ["root", "router"]
