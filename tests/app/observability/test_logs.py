"""Logs are structured and mask secrets and texts."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from app.observability import configure_logging, log_often
from app.observability.logs import redact


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """A JSON log; logging is restored afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_line_is_json_with_level_time_and_request_id(log: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(request_id="req_1"):
        structlog.get_logger("gateway").info("request.done", status=200)
    (line,) = lines(log)
    assert line["event"] == "request.done"
    assert (line["level"], line["request_id"], line["status"]) == ("info", "req_1", 200)
    assert line["timestamp"].endswith("Z")


def test_uvicorn_logs_through_the_same_handler(log: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    (line,) = lines(log)
    assert (line["event"], line["logger"]) == ("Started server process [7]", "uvicorn.error")


def test_noisy_loggers_are_silenced(log: io.StringIO) -> None:
    structlog.get_logger("gateway").debug("noise")
    logging.getLogger("httpx").info("HTTP Request: GET /")
    logging.getLogger("uvicorn.access").info("GET / 200")
    assert log.getvalue() == ""


@pytest.mark.parametrize(
    "key", ["authorization", "Authorization", "x-api-key", "api_key", "admin_token", "token", "cookie", "db_password"]
)
def test_values_under_secret_names_are_masked(key: str) -> None:
    assert redact(None, "info", {key: "hunter2"}) == {key: "***"}


@pytest.mark.parametrize("key", ["messages", "content", "text", "prompt", "documents", "reply"])
def test_texts_are_redacted(key: str) -> None:
    assert redact(None, "info", {"request": {key: "our patients"}}) == {"request": {key: "[redacted]"}}


def test_token_counts_are_not_masked_as_secrets() -> None:
    counts = {"prompt_tokens": 5, "key_prefix": "gl-ab", "documents": 3, "token": None}
    assert redact(None, "info", dict(counts)) == counts


@given(secret=st.from_regex(r"[A-Za-z0-9]{12,40}", fullmatch=True))
def test_bearer_token_is_masked_anywhere(secret: str) -> None:
    cleaned = redact(None, "info", {"event": f"sent 'Bearer {secret}' on", "headers": [["x", f"bearer {secret}"]]})
    assert secret not in json.dumps(cleaned)


def test_database_password_is_masked_in_a_url() -> None:
    cleaned = redact(None, "info", {"url": "postgresql+asyncpg://app:hunter2@db:5432/x"})
    assert cleaned["url"] == "postgresql+asyncpg://***@db:5432/x"


def test_exception_is_logged_without_its_parameters(log: io.StringIO) -> None:
    try:
        raise RuntimeError("insert failed\n[SQL: INSERT INTO t VALUES (?)]\n[parameters: ('our patients',)]")
    except RuntimeError:
        structlog.get_logger("events").exception("events.write_failed")
    (line,) = lines(log)
    assert "insert failed" in line["exception"]
    assert "our patients" not in line["exception"]


AT = datetime(2026, 1, 1, 12, 30, 0, 250, tzinfo=UTC)


@pytest.mark.parametrize("listens", [False, True], ids=["alone", "beside another handler"])
def test_batched_log_lines_equal_single_ones(log: io.StringIO, listens: bool) -> None:
    """Each with its timestamp, in order, without secrets and without bound context variables."""
    if listens:
        logging.getLogger().addHandler(logging.NullHandler())
    fields = {"model": "m", "error": "sent 'Bearer abc' on", "codes": ["A", "sk-abcdefgh"], "token": "t", "text": "x"}
    with structlog.contextvars.bound_contextvars(request_id="bound"):
        log_often("gateway", "request", [(AT, {"request_id": f"req_{n}", "n": n, **fields}) for n in range(3)])
    told = lines(log)
    assert [line["request_id"] for line in told] == ["req_0", "req_1", "req_2"]
    assert told[1] == {
        "request_id": "req_1",
        "n": 1,
        "model": "m",
        "error": "sent 'Bearer ***' on",
        "codes": ["A", "***"],
        "token": "***",
        "text": "[redacted]",
        "event": "request",
        "level": "info",
        "logger": "gateway",
        "timestamp": "2026-01-01T12:30:00.000250Z",
    }


@pytest.mark.parametrize("others", [False, True])
def test_lone_surrogate_does_not_lose_the_line(log: io.StringIO, others: bool) -> None:
    """An upstream's error may have been cut in the middle of a character."""
    if others:
        logging.getLogger().addHandler(logging.NullHandler())
    log_often("gateway", "request", [(AT, {"n": 1}), (AT, {"n": 2, "error": "cut: é\ud83d"}), (AT, {"n": 3})])
    assert [(line["n"], line.get("error")) for line in lines(log)] == [(1, None), (2, "cut: é?"), (3, None)]


def test_console_format_is_readable() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logging("info", "console", stream=stream)
    structlog.get_logger("gateway").info("request.done", api_key="hunter2")
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
    assert "request.done" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue(), "no colours where no terminal is"
