"""Log lines: structured, all through one handler, without secrets and without what people or models wrote."""

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
LEFT_OUT = "[left out]"
_SECRET_KEY = re.compile(
    r"(?:^|[-_.])(?:authorization|cookie|password|passwd|secret|token|api[-_]?key|apikey|credentials?)$", re.IGNORECASE
)
_TALKATIVE = (
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
    # Two libraries put what they were given into their messages: SQLAlchemy its parameters, Pydantic its input.
    (re.compile(r"\[parameters: .*?\]$", re.DOTALL | re.MULTILINE), f"[parameters: {LEFT_OUT}]"),
    (re.compile(r"input_value=.*?(?=, input_type=)", re.DOTALL), f"input_value={LEFT_OUT}"),
)


_MAYBE_SECRET = re.compile(r"(?i)bearer|basic|://|(?:sk|gl|pk)-|\[parameters: |input_value=")
"""Where none of this stands, none of the patterns above matches."""


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask secrets and leave out texts, however deep they stand: a structlog processor.

    A key named like a secret (``authorization``, ``x-api-key``, ``admin_token``) keeps its place and loses its value;
    so does one that holds what people or models wrote (``messages``, ``content``, ``text``, ``prompt``). Bearer
    tokens, passwords in URLs and keys of the usual shape are masked wherever they occur.
    """
    return {key: _clean(key, value) for key, value in event.items()}


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PARAGRAPHS = frozenset({"exception", "stack"})


def one_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Spell control characters out, for lines that people read: what a caller sent must not begin a line of its own,
    nor steer a terminal. Lines of a traceback are indented. JSON needs none of that."""
    return {key: _shaped(key, value) if isinstance(value, str) else value for key, value in event.items()}


def _shaped(key: str, text: str) -> str:
    return "\n  ".join(map(_spelled, text.split("\n"))) if key in _PARAGRAPHS else _spelled(text)


def _spelled(text: str) -> str:
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], text)


def _clean(key: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if (left := _in_place_of(key)) is not None:
        return left
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
def _in_place_of(key: str) -> str | None:
    """What stands for the value of ``key``, whatever that is; None: the value itself is looked at."""
    if _SECRET_KEY.search(key):
        return MASK
    return LEFT_OUT if key.lower() in _TEXT_KEYS else None


def mask(text: str) -> str:
    if text.isidentifier():  # quick, and true of most
        return text
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate would cost the line, and those beside it
    if _MAYBE_SECRET.search(text) is None:
        return text
    for pattern, replacement in _SECRET_VALUES:
        text = pattern.sub(replacement, text)
    return text


def log_often(logger: str, event: str, lines: Iterable[tuple[datetime, Mapping[str, Any]]]) -> None:
    """What ``structlog.stdlib.get_logger(logger).info(event, **fields)`` does for each of ``lines``: its time, and its
    fields, which stand for what is bound. For lines that every request leaves: where lines are JSON and nobody else
    listens, it costs a fraction."""
    direct = _direct
    if direct is None or logging.root.handlers != [direct] or not logging.getLogger(logger).isEnabledFor(logging.INFO):
        log = structlog.stdlib.get_logger(logger)
        for at, fields in lines:
            log.info(event, **fields, timestamp=at.isoformat().replace("+00:00", "Z"))
        return
    told = []
    for at, fields in lines:
        line = {name: value if type(value) in _NUMBERS else _told(name, value) for name, value in fields.items()}
        line |= {"event": event, "level": "info", "logger": logger, "timestamp": at}
        told.append(_dump(line))
    with direct.lock or nullcontext():
        direct.stream.write("\n".join(told) + "\n")
        direct.flush()


_NUMBERS = frozenset({type(None), bool, int, float})


def _told(name: str, value: Any) -> Any:
    if type(value) is str and len(value) <= _SHORT:
        return _clean_short(name, value)
    return _clean(name, value)


_SHORT = 32
"""Characters up to which a value is likely one that was seen before, unlike an id."""


@lru_cache(maxsize=4096)
def _clean_short(name: str, text: str) -> Any:
    return _clean(name, text)


_direct: "logging.StreamHandler[TextIO] | None" = None
"""The handler whose lines are JSON."""


def configure_logging(level: str, format: str, *, stream: TextIO | None = None) -> None:
    """Send every log line of the process, ours and the libraries', through one handler.

    ``level`` is ``debug``, ``info``, ``warning`` or ``error``; ``format`` is ``json`` or ``console``; ``stream`` is
    stderr unless given. May be called again. What ``structlog.contextvars.bound_contextvars(request_id=...)`` binds is
    added to each line.
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
        # The gateway writes a line of its own for each request, which says more.
        logger.propagate = name != "uvicorn.access"
    # These say a line per request or statement at info, and at debug what passes through them, texts included.
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _dump(value: Any, **_: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_UTC_Z).decode()
