"""The timeline of a request."""

from app.dashboard.trace.timings import timing_of


def test_steps_of_a_request_follow_one_another() -> None:
    marks = {"upstream_asked": 2.0, "upstream_answered": 10.0, "first_text": 40.0, "upstream_ended": 90.0}
    request = {"total_ms": 100.0, "stream": True, "judge_ms": 30.0, "upstream_ms": 88.0}
    timing = timing_of({**request, "marks": {**marks, "first_out": 50.0}}, [])
    assert [(step.start, step.end) for step in timing.steps] == [(0, 2), (2, 10), (10, 40), (40, 90), (90, 100)]
    assert timing.first_out_ms == 50.0
    older = timing_of({**request, "marks": None}, [])
    assert [(step.name, step.ms) for step in older.steps] == [("Upstream", 88.0), ("Gateway", 12.0)]
    assert not older.measured
