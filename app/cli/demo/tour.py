"""The demo: starts the upstream and the gateway, runs the walkthrough, and serves until Ctrl-C."""

import secrets
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import httpx
from pydantic import HttpUrl, SecretStr

from app.cli.demo.content import Content, load_content
from app.cli.demo.servers import ServerStartError, bind, serving
from app.cli.demo.upstream import ScriptedUpstream
from app.cli.demo.walkthrough import SceneResult, Walkthrough, WalkthroughError
from app.cli.http_protocol import http_protocol
from app.cli.serve import prepare
from app.cli.terminal import Screen
from app.main import create_app
from app.observability import configure_logging
from app.settings import Settings, StoreText, UpstreamApi


class TourError(Exception):
    """The demo failed. The message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The running demo: the gateway's ``url`` and admin ``token``, the upstream, and the folder with the demo's
    files."""

    url: str
    token: str
    upstream: ScriptedUpstream
    content: Content
    folder: Path

    def walkthrough(self, screen: Screen) -> Walkthrough:
        return Walkthrough(
            base_url=self.url,
            admin_token=self.token,
            content=self.content,
            upstream=self.upstream,
            folder=self.folder,
            screen=screen,
        )


def tour(settings: Settings, *, port: int, folder: Path | None, leave: bool) -> dict[str, SceneResult]:
    """Run the demo on ``port``, or on any free port if it is 0. The database and the requests are stored in ``folder``.
    If ``folder`` is None, they are deleted at the end. With ``leave``, stop after the walkthrough. Otherwise, keep
    serving until Ctrl-C. Return the results of the scenes.

    Raises TourError, SettingsError, DatabaseUrlError or DatabaseUnavailableError.
    """
    screen = Screen()
    try:
        with stage(settings, port=port, folder=folder) as running:
            screen.title("Groundlane")
            screen.paragraph("The model is scripted. Policies, judge, streaming and event log are real.")
            outcomes = running.walkthrough(screen).run()
            if not leave:
                _show_next_steps(screen, running)
                _wait_until_stopped(screen)
            return outcomes
    except (ServerStartError, WalkthroughError, httpx.HTTPError) as error:
        raise TourError(str(error) or type(error).__name__) from None


@contextmanager
def stage(settings: Settings, *, port: int, folder: Path | None) -> Iterator[Stage]:
    """Run the upstream and the gateway while the block runs. Raises TourError if the port is in use."""
    with ExitStack() as stack:
        try:
            sock = stack.enter_context(bind(port))
        except OSError as error:
            raise TourError(f"port {port}: {error.strerror or error}. Choose another with --port.") from None
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groundlane-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.absolute()
        configure_logging("warning", "console")
        content = load_content()
        upstream = ScriptedUpstream(content.answers)
        upstream_url = stack.enter_context(serving(upstream.app, bind(0)))
        token = secrets.token_urlsafe(24)
        settings = settings.model_copy(
            update={
                "upstream_base_url": HttpUrl(f"{upstream_url}/v1"),
                "upstream_api_key": SecretStr("scripted"),
                "upstream_api": UpstreamApi.OPENAI,
                "config": None,
                "database_url": f"sqlite+aiosqlite:///{folder / 'groundlane.db'}",
                "event_journal": None,
                "admin_token": SecretStr(token),
                "require_keys": False,
                "retention_days": None,
                "store_text": StoreText.FULL,
            }
        )
        prepare(settings)
        url = stack.enter_context(serving(create_app(settings), sock, http=http_protocol(settings)))
        yield Stage(url=url, token=token, upstream=upstream, content=content, folder=folder)


def _show_next_steps(screen: Screen, running: Stage) -> None:
    screen.title("Next steps")
    screen.field("base url", f"{running.url}/v1   (any OpenAI client; model scripted-1)")
    screen.field("dashboard", f"{running.url}/dashboard/   (sign in with the admin token)")
    screen.field("admin token", running.token)
    screen.command(f"curl -s {running.url}/admin/v1/requests -H 'authorization: Bearer {running.token}'")
    screen.command(f"curl -s {running.url}/readyz")
    screen.command(f"curl -s {running.url}/metrics")
    screen.line()


def _wait_until_stopped(screen: Screen) -> None:
    """Wait for Ctrl-C or SIGTERM, so that the servers can shut down cleanly."""
    stopped = Event()
    before = {name: signal.signal(name, lambda *_: stopped.set()) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        screen.paragraph("Serving. Press Ctrl-C to stop.")
        stopped.wait()
        screen.line()
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
