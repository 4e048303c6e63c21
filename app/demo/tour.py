"""The demo as a whole: upstream and gateway up, the walk-through, and on serving until Ctrl-C."""

import secrets
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import httpx
from pydantic import HttpUrl, SecretStr

from app.demo.content import load_content
from app.demo.servers import ServerStartError, bind, serving
from app.demo.upstream import ScriptedUpstream
from app.demo.walkthrough import Outcome, Walkthrough, WalkthroughError
from app.main import create_app
from app.screen import Screen
from app.serving import prepare
from app.settings import Settings
from app.telemetry import configure_logging


class TourError(Exception):
    """The demo cannot go on; the message is one line."""


def tour(
    settings: Settings, *, port: int, folder: Path | None, leave: bool, screen: Screen | None = None
) -> dict[str, Outcome]:
    """Run the demo on ``port`` (0: any free one). ``folder`` keeps database and request files there; None: they go with
    the demo. ``leave``: end after the walk-through, whose outcomes are returned. Raises TourError.
    """
    try:
        with ExitStack() as stack:
            return _tour(stack, settings, port, folder, leave, screen or Screen())
    except (ServerStartError, WalkthroughError, httpx.HTTPError) as error:
        raise TourError(str(error) or type(error).__name__) from None


def _tour(
    stack: ExitStack, settings: Settings, port: int, folder: Path | None, leave: bool, screen: Screen
) -> dict[str, Outcome]:
    try:
        sock = stack.enter_context(bind(port))
    except OSError as error:
        raise TourError(f"port {port}: {error.strerror or error}") from None
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
            "database_url": f"sqlite+aiosqlite:///{folder / 'groundlane.db'}",
            "event_journal": None,
            "admin_token": SecretStr(token),
        }
    )
    prepare(settings)
    screen.title("Groundlane")
    screen.paragraph(
        "A scripted model stands in for the real one. Policies, judge, stream and event log are the gateway's own."
    )
    url = stack.enter_context(serving(create_app(settings), sock))
    walkthrough = Walkthrough(
        base_url=url, admin_token=token, content=content, upstream=upstream, folder=folder, screen=screen
    )
    outcomes = walkthrough.run()
    _show_next_steps(screen, url, token)
    if not leave:
        with _until_stopped() as stopped:
            screen.paragraph("Serving. Press Ctrl-C to end.")
            stopped.wait()
        screen.line()
    return outcomes


def _show_next_steps(screen: Screen, url: str, token: str) -> None:
    screen.title("Go on from here")
    screen.field("base url", f"{url}/v1   (any OpenAI client; model scripted-1)")
    screen.field("admin token", token)
    screen.command(f"curl -s {url}/admin/v1/requests -H 'authorization: Bearer {token}'")
    screen.command(f"curl -s {url}/readyz")
    screen.command(f"curl -s {url}/metrics")
    screen.line()


@contextmanager
def _until_stopped() -> Iterator[Event]:
    """An event that Ctrl-C or SIGTERM sets; a second one is not needed, and the servers end in order."""
    stopped = Event()
    before = {name: signal.signal(name, lambda *_: stopped.set()) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
