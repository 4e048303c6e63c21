"""``groundlane judges`` lists the judge presets. ``groundlane judge serve`` runs a judge as an HTTP server."""

import asyncio
from collections.abc import Sequence

import msgspec
import typer
import uvicorn

from app.cli.common import CommandError, UsageError, show_columns
from app.cli.terminal import Screen
from app.judge_server.http_server import judge_app
from app.observability import configure_logging
from app.settings import Settings
from judges.cross_encoder.presets import Preset, find_preset, presets
from judges.protocols import JudgeError

_HEADING = ("NAME", "SIZE", "LICENCE", "LANGUAGES", "SPEED", "PUBLISHED", "JUDGE")


def list_judges(*, json: bool) -> None:
    """Print all presets, as a table or as JSON."""
    rows = list(presets().values())
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    show_columns([_HEADING, *(_row(preset) for preset in rows)])
    typer.echo(
        "\nTo use a judge, set GROUNDLANE_JUDGE=preset:NAME. For its figures and sources, run `groundlane judges NAME`."
    )


def show_judge(name: str, *, json: bool) -> None:
    """Print one preset. Raises UsageError for an unknown name."""
    try:
        preset = find_preset(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(preset), indent=2).decode())
        return
    screen = Screen()
    screen.line(preset.name)
    for field, text in _fields(preset):
        screen.field(field, text)


def _row(preset: Preset) -> Sequence[str]:
    first = preset.figures[0] if preset.figures else None
    published = f"{first.value:g} {first.metric}, {first.benchmark}" if first else "-"
    return (preset.name, _size(preset), preset.licence, _languages(preset), preset.speed, published, preset.about)


def _fields(preset: Preset) -> Sequence[tuple[str, str]]:
    return [
        ("setting", f"GROUNDLANE_JUDGE=preset:{preset.name}" + (f"?{preset.options}" if preset.options else "")),
        ("judge", preset.about),
        ("model", preset.model or "-"),
        ("size", _size(preset)),
        ("licence", preset.licence),
        ("languages", _languages(preset)),
        ("speed on CPU", preset.speed),
        ("streaming", preset.streaming),
        ("threshold", f"{preset.threshold:g}"),
        ("install", f"pip install 'groundlane[{preset.extra}]'" if preset.extra else "nothing"),
        *(("published", f"{f.value:g} {f.metric} on {f.benchmark} ({f.source})") for f in preset.figures),
        *(("source", source) for source in preset.sources),
    ]


def _size(preset: Preset) -> str:
    return "-" if preset.parameters is None else f"{preset.parameters} M"


def _languages(preset: Preset) -> str:
    return ",".join(preset.languages) or "many"


def serve_judge(settings: Settings, *, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT. Raises SettingsError if no judge is configured, and CommandError if the judge
    can't be loaded."""
    configure_logging(settings.log_level, settings.log_format)
    asyncio.run(_serve(settings, host, port))


async def _serve(settings: Settings, host: str, port: int) -> None:
    app = judge_app(settings)
    config = uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, server_header=False, ws="none", lifespan="off"
    )
    try:
        # Load the judge here: if loading failed in uvicorn's lifespan, uvicorn would print a stack trace.
        async with app.router.lifespan_context(app):
            await uvicorn.Server(config).serve()
    except JudgeError as error:
        raise CommandError(f"GROUNDLANE_JUDGE: {error}") from None
