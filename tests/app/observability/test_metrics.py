"""Metrics count events, with bounded label values."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from app.events.records import ClaimRow, RequestEvent, RequestRow
from app.observability import EventTotals, JudgeTotals, Metrics
from policies.types import Action, Decision, Phase


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


def test_request_is_counted_once_with_its_times() -> None:
    metrics = Metrics()
    metrics.observe_requests([event()])
    text = metrics.render().decode()
    assert 'groundlane_requests_total{action="allow",api="chat",status="completed",verdict="supported"} 1.0' in text
    assert 'groundlane_request_seconds_sum{api="chat"} 0.45' in text
    assert 'groundlane_upstream_seconds_sum{api="chat"} 0.4' in text
    assert 'groundlane_judge_seconds_sum{api="chat"} 0.03' in text


def test_request_that_never_reached_the_upstream_has_no_upstream_time() -> None:
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


def test_label_cardinality_is_bounded() -> None:
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


def test_gauges_of_a_dead_worker_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_idle_worker_publishes_its_values_for_the_others(
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
from tests.app.observability.test_metrics import event
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
