"""The judge as an HTTP server, for any ASGI server: ``uvicorn --factory groundlane_server.judge_server:build_app``."""

from starlette.applications import Starlette

from groundlane_server import activate


def build_app() -> Starlette:
    """Build the application for one process, with settings from its environment. Raises SettingsError (a
    ValueError)."""
    activate()
    from app.judge_server.http_server import build_app

    return build_app()
