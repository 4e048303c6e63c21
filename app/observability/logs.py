"""Structured logging through one handler. Secrets, and text that people or models wrote, are masked."""

import logging
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import nullcontext
from datetime import datetime
from functools import lru_cache
from typing import Any, TextIO

import orjson
import structlog

MASK = "***"
REDACTED = "[redacted]"
_SECRET_KEY = re.compile(
    r"(?:^|[-_.])(?:authorization|cookie|password|passwd|secret|token|api[-_]?key|apikey|credentials?)$", re.IGNORECASE
)
_NOISY_LOGGERS = (
    "aiohttp",
    "aiosqlite",
    "alembic",
    "asyncio",
    "httpcore",
    "httpx",
    "mcp",
    "sqlalchemy.engine",
    "sse_starlette",
)
_TEXT_KEYS = frozenset({"messages", "content", "text", "prompt", "reply", "documents", "input", "evidence"})
_SECRET_VALUES = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), rf"\1 {MASK}"),
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"), MASK),
    (re.compile(r"\b(?:sk|gl|gsk|pk)-[A-Za-z0-9_-]{6,}"), MASK),
    # SQLAlchemy's error messages quote the parameters of a statement. Pydantic's error messages quote the input.
    (re.compile(r"\[parameters: .*?\]$", re.DOTALL | re.MULTILINE), f"[parameters: {REDACTED}]"),
    (re.compile(r"input_value=.*?(?=, input_type=)", re.DOTALL), f"input_value={REDACTED}"),
)


_MAYBE_SECRET = re.compile(r"(?i)bearer|basic|://|(?:sk|gl|pk)-|\[parameters: |input_value=")
"""A cheap check that comes first: if this pattern doesn't match, none of the patterns for secrets match."""


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask secrets and text at any depth. This function is a structlog processor.

    A value is masked if its key names a secret (``authorization``, ``x-api-key``, ``admin_token``) or text that people
    or models wrote (``messages``, ``content``, ``text``, ``prompt``). Bearer tokens, passwords in URLs and API keys in
    the usual formats are masked wherever they occur.
    """
    return {key: _clean(key, value) for key, value in event.items()}


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PARAGRAPHS = frozenset({"exception", "stack"})


def one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters for the console format. A value can then neither start a new line nor send terminal
    escape sequences. Lines of a traceback are indented. JSON output doesn't need this."""
    return {key: _shaped(key, value) if isinstance(value, str) else value for key, value in event.items()}


def _shaped(key: str, text: str) -> str:
    return "\n  ".join(map(_spelled, text.split("\n"))) if key in _PARAGRAPHS else _spelled(text)


def _spelled(text: str) -> str:
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], text)


def _clean(key: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if (substitute := _substitute(key)) is not None:
        return substitute
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {str(name): _clean(str(name), part) for name, part in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean("", part) for part in value]
        case _:
            return mask(str(value))


@lru_cache(maxsize=1024)
def _substitute(key: str) -> str | None:
    """Return the replacement for the value of ``key``, or None if the value must be examined."""
    if _SECRET_KEY.search(key):
        return MASK
    return REDACTED if key.lower() in _TEXT_KEYS else None


def mask(text: str) -> str:
    """Mask bearer tokens, API keys and URL passwords in ``text``."""
    if text.isidentifier():  # This test is fast, and most values need no other.
        return text
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # A single lone surrogate would make the whole write fail.
    if _MAYBE_SECRET.search(text) is None:
        return text
    for pattern, replacement in _SECRET_VALUES:
        text = pattern.sub(replacement, text)
    return text


def log_often(logger: str, event: str, lines: Iterable[tuple[datetime, Mapping[str, Any]]]) -> None:
    """Log ``event`` at info level for each of ``lines``, which are pairs of a timestamp and the line's fields. Bound
    context variables are not added. Use this for lines that are logged on every request. If the output is JSON and
    there is no other handler, the lines bypass structlog, which is much faster."""
    direct = _direct
    if direct is None or logging.root.handlers != [direct] or not logging.getLogger(logger).isEnabledFor(logging.INFO):
        log = structlog.stdlib.get_logger(logger)
        for at, fields in lines:
            log.info(event, **fields, timestamp=at.isoformat().replace("+00:00", "Z"))
        return
    written = []
    for at, fields in lines:
        line = {
            name: value if type(value) in _NUMBERS else _cached_clean(name, value) for name, value in fields.items()
        }
        line |= {"event": event, "level": "info", "logger": logger, "timestamp": at}
        written.append(_dump(line))
    with direct.lock or nullcontext():
        direct.stream.write("\n".join(written) + "\n")
        direct.flush()


_NUMBERS = frozenset({type(None), bool, int, float})


def _cached_clean(name: str, value: Any) -> Any:
    if type(value) is str and len(value) <= _SHORT:
        return _clean_short(name, value)
    return _clean(name, value)


_SHORT = 32
"""The maximum length, in characters, of values whose masked form is cached. Short values tend to repeat, unlike ids."""


@lru_cache(maxsize=4096)
def _clean_short(name: str, text: str) -> Any:
    return _clean(name, text)


_direct: "logging.StreamHandler[TextIO] | None" = None
"""The log handler if its output is JSON, otherwise None."""


def configure_logging(level: str, format: str, *, stream: TextIO | None = None) -> None:
    """Send all log lines of the process, including those of libraries, through one handler.

    ``level`` is ``debug``, ``info``, ``warning`` or ``error``; ``format`` is ``json`` or ``console``; ``stream`` is
    stderr by default. You can call it again to change the configuration. Variables bound with ``structlog.contextvars``
    are added to each line.
    """
    stream = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.MaybeTimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        redact,
    ]
    if format != "json":
        shared.append(one_line)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(serializer=_dump)
        if format == "json"
        else structlog.dev.ConsoleRenderer(colors=stream.isatty())
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    global _direct
    _direct = handler if format == "json" else None
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers = []
        # The gateway logs each request itself, in more detail.
        logger.propagate = name != "uvicorn.access"
    # These loggers log every request or statement at info level, and full contents, including text, at debug level.
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _dump(value: Any, **_: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_UTC_Z).decode()
