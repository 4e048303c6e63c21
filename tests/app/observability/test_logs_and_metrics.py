"""Logs mask secrets and texts; metrics count events, with bounded label values."""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from app.events.records import ClaimRow, RequestEvent, RequestRow
from app.observability import EventTotals, JudgeTotals, Metrics, configure_logging, log_often
from app.observability.logs import redact
from policies.types import Action, Decision, Phase


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


def event(**changes: Any) -> RequestEvent:
    row: dict[str, Any] = {
        "request_id": "r1",
        "ts": datetime(2026, 1, 1, tzinfo=UTC),
        "api": "chat",
        "model": "gpt-4o-mini",
        "resolved_model": None,
        "agent": None,
        "run_id": None,
        "key_prefix": None,
        "stream": True,
        "status": "completed",
        "http_status": 200,
        "action": "allow",
        "verdict": "supported",
        "trust_score": 1.0,
        "documents": 1,
        "sentences": 1,
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "usage_estimated": False,
        "upstream_ms": 400.0,
        "judge_ms": 30.0,
        "total_ms": 450.0,
        "finish_reason": "stop",
        "error": None,
    }
    return RequestEvent(request=RequestRow(**(row | changes)))


def claim(label: str) -> ClaimRow:
    return ClaimRow(
        position=0,
        choice=0,
        sentence_index=0,
        start=0,
        end=5,
        label=label,
        score=0.9,
        confidence=0.9,
        document_id="d1",
        document_index=0,
        evidence_start=0,
        evidence_end=5,
        delivered=True,
        reason=None,
        judge_ms=3.0,
        text=None,
        evidence=None,
    )


def decision(reason_code: str | None) -> Decision:
    return Decision(
        policy_id="p",
        policy_version=1,
        policy_name="n",
        category="retrieval",
        phase=Phase.BEFORE_WORKFLOW,
        action=Action.BLOCK,
        reason="because",
        reason_code=reason_code,
    )


def test_a_line_is_json_with_level_time_and_request_id(log: io.StringIO) -> None:
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
def test_a_value_under_a_secret_name_is_masked(key: str) -> None:
    assert redact(None, "info", {key: "hunter2"}) == {key: "***"}


@pytest.mark.parametrize("key", ["messages", "content", "text", "prompt", "documents", "reply"])
def test_texts_are_redacted(key: str) -> None:
    assert redact(None, "info", {"request": {key: "our patients"}}) == {"request": {key: "[redacted]"}}


def test_counts_named_like_secrets_are_kept() -> None:
    counts = {"prompt_tokens": 5, "key_prefix": "gl-ab", "documents": 3, "token": None}
    assert redact(None, "info", dict(counts)) == counts


@given(secret=st.from_regex(r"[A-Za-z0-9]{12,40}", fullmatch=True))
def test_a_bearer_token_is_masked_anywhere(secret: str) -> None:
    cleaned = redact(None, "info", {"event": f"sent 'Bearer {secret}' on", "headers": [["x", f"bearer {secret}"]]})
    assert secret not in json.dumps(cleaned)


def test_a_database_password_is_masked_in_a_url() -> None:
    cleaned = redact(None, "info", {"url": "postgresql+asyncpg://app:hunter2@db:5432/x"})
    assert cleaned["url"] == "postgresql+asyncpg://***@db:5432/x"


def test_an_exception_is_logged_without_the_parameters_that_caused_it(log: io.StringIO) -> None:
    try:
        raise RuntimeError("insert failed\n[SQL: INSERT INTO t VALUES (?)]\n[parameters: ('our patients',)]")
    except RuntimeError:
        structlog.get_logger("events").exception("events.write_failed")
    (line,) = lines(log)
    assert "insert failed" in line["exception"]
    assert "our patients" not in line["exception"]


AT = datetime(2026, 1, 1, 12, 30, 0, 250, tzinfo=UTC)


@pytest.mark.parametrize("listens", [False, True], ids=["alone", "beside another handler"])
def test_lines_written_together_are_those_written_one_by_one(log: io.StringIO, listens: bool) -> None:
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
def test_a_lone_surrogate_does_not_lose_the_line(log: io.StringIO, others: bool) -> None:
    """An upstream's error may have been cut in the middle of a character."""
    if others:
        logging.getLogger().addHandler(logging.NullHandler())
    log_often("gateway", "request", [(AT, {"n": 1}), (AT, {"n": 2, "error": "cut: é\ud83d"}), (AT, {"n": 3})])
    assert [(line["n"], line.get("error")) for line in lines(log)] == [(1, None), (2, "cut: é?"), (3, None)]


def test_the_console_format_is_readable() -> None:
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


def test_a_request_is_counted_once_with_its_times() -> None:
    metrics = Metrics()
    metrics.observe_requests([event()])
    text = metrics.render().decode()
    assert 'groundlane_requests_total{action="allow",api="chat",status="completed",verdict="supported"} 1.0' in text
    assert 'groundlane_request_seconds_sum{api="chat"} 0.45' in text
    assert 'groundlane_upstream_seconds_sum{api="chat"} 0.4' in text
    assert 'groundlane_judge_seconds_sum{api="chat"} 0.03' in text


def test_a_request_that_never_reached_the_upstream_has_no_upstream_time() -> None:
    metrics = Metrics()
    metrics.observe_requests([event(upstream_ms=None, judge_ms=None)])
    assert "groundlane_upstream_seconds_sum{" not in metrics.render().decode()


def test_claims_and_decisions_are_counted_by_label_and_reason() -> None:
    metrics = Metrics()
    base = event()
    judged = RequestEvent(
        request=base.request,
        claims=(
            claim("supported"),
            claim("supported"),
            claim("contradicted"),
            structs.replace(claim("unverifiable"), reason="language"),
        ),
        decisions=(decision("RETRIEVAL_STALE_SOURCE"), decision(None)),
    )
    metrics.observe_requests([judged])
    text = metrics.render().decode()
    assert 'groundlane_sentences_total{label="supported"} 2.0' in text
    assert 'groundlane_sentences_total{label="contradicted"} 1.0' in text
    assert 'groundlane_unjudged_total{reason="language"} 1.0' in text
    assert (
        'groundlane_decisions_total{action="block",category="retrieval",reason_code="RETRIEVAL_STALE_SOURCE"} 1.0'
        in text
    )
    assert 'groundlane_decisions_total{action="block",category="retrieval",reason_code="none"} 1.0' in text


def test_shadow_decisions_are_counted_separately() -> None:
    metrics = Metrics()
    metrics.observe_requests([RequestEvent(request=event().request, shadow=(decision(None), decision(None)))])
    text = metrics.render().decode()
    assert 'groundlane_shadow_decisions_total{action="block",category="retrieval",reason_code="none"} 2.0' in text
    assert "groundlane_decisions_total{" not in text


def test_a_labels_cardinality_is_bounded() -> None:
    metrics = Metrics()
    for number in range(500):
        metrics.observe_upstream_error(f"kind{number}")
    series = [
        line for line in metrics.render().decode().splitlines() if line.startswith("groundlane_upstream_errors_t")
    ]
    assert len(series) == 65
    assert 'groundlane_upstream_errors_total{kind="other"} 436.0' in series


def test_open_streams_are_counted_even_on_failure() -> None:
    metrics = Metrics()
    seen = []

    def stream() -> None:
        with metrics.open_stream():
            seen.append(metrics.render().decode())
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        stream()
    assert "groundlane_open_streams 1.0" in seen[0]
    assert "groundlane_open_streams 0.0" in metrics.render().decode()


def test_totals_of_judge_and_events_become_counters() -> None:
    judge = JudgeTotals(
        queue_depth=4,
        batches=3,
        pairs=12,
        failed=2,
        cache_bytes=800,
        cache_hits=10,
        cache_misses=2,
        cache_evictions=5,
        overloaded=1,
    )
    events = EventTotals(queue_depth=3, journal_bytes=99, written=5, journaled=2, dropped=1)
    metrics = Metrics(judge=lambda: judge, events=lambda: events)
    text = metrics.render().decode()
    for line in (
        "groundlane_judge_queue_depth 4.0",
        "groundlane_judge_cache_hits_total 10.0",
        "groundlane_judge_cache_misses_total 2.0",
        "groundlane_judge_overloaded_total 1.0",
        "groundlane_judge_batches_total 3.0",
        "groundlane_judge_pairs_total 12.0",
        "groundlane_judge_failed_total 2.0",
        "groundlane_judge_cache_bytes 800.0",
        "groundlane_judge_cache_evictions_total 5.0",
        "groundlane_events_queue_depth 3.0",
        "groundlane_events_journal_bytes 99.0",
        "groundlane_events_written_total 5.0",
        "groundlane_events_journaled_total 2.0",
        "groundlane_events_dropped_total 1.0",
        "groundlane_events_rejected_total 0.0",
    ):
        assert line in text
    judge = replace(judge, queue_depth=0, cache_hits=11)
    text = metrics.render().decode()
    assert "groundlane_judge_queue_depth 0.0" in text
    assert "groundlane_judge_cache_hits_total 11.0" in text
    assert "groundlane_judge_cache_misses_total 2.0" in text
    readings = metrics.readings()
    assert readings["groundlane_judge_cache_hits_total"] == 11
    assert readings["groundlane_events_queue_depth"] == 3
    assert "groundlane_requests_total" not in readings  # it has labels


def test_pending_events_are_counted_before_a_scrape() -> None:
    waiting = [event(), event()]

    def count() -> None:
        metrics.observe_requests(waiting)
        waiting.clear()

    metrics = Metrics(before=count)
    counted = 'groundlane_requests_total{action="allow",api="chat",status="completed",verdict="supported"} 2.0'
    assert counted in metrics.render().decode()
    assert counted in metrics.render().decode()


def test_two_apps_in_one_process_have_separate_metrics() -> None:
    one, two = Metrics(), Metrics()
    one.observe_requests([event()])
    assert "groundlane_requests_total{" not in two.render().decode()


EMPTY = (8).to_bytes(4, sys.byteorder) + bytes(60)
"""A worker's metrics file without any values."""


def test_the_gauges_of_a_dead_worker_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead, alive = (tmp_path / f"gauge_livesum_{pid}.db" for pid in (gone.pid, os.getpid()))
    for file in (dead, alive):
        file.write_bytes(EMPTY)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    Metrics().render()
    assert not dead.exists()
    assert alive.exists()


@pytest.mark.anyio
async def test_an_idle_worker_publishes_its_values_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Callable[..., Any]
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr("app.observability.metrics._SAMPLED_S", 0.001)
    asked: list[int] = []

    def totals() -> EventTotals:
        asked.append(1)
        return EventTotals(written=len(asked))

    metrics = Metrics(events=totals)
    sampling = asyncio.ensure_future(metrics.keep_sampled())
    await until(lambda: len(asked) >= 3)
    sampling.cancel()


WORKER = """
import sys
from tests.app.observability.test_logs_and_metrics import event
from app.observability import Metrics
metrics = Metrics()
metrics.observe_requests([event()])
if sys.argv[1] == "scrape":
    sys.stdout.write(metrics.render().decode())
    sys.stdout.write(f"readings: {metrics.readings()['groundlane_open_streams']}")
else:
    metrics.open_stream().__enter__()
"""


@pytest.mark.slow
def test_any_worker_answers_a_scrape_for_all(tmp_path: Path) -> None:
    """The counters of an exited worker still count; its open streams don't."""
    env = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    for mode in ("work", "scrape"):
        done = subprocess.run([sys.executable, "-c", WORKER, mode], env=env, capture_output=True, text=True, check=True)
    assert (
        'groundlane_requests_total{action="allow",api="chat",status="completed",verdict="supported"} 2.0' in done.stdout
    )
    assert "groundlane_open_streams 0.0" in done.stdout
    assert "readings: 0.0" in done.stdout
