"""The timings of a request in its event."""

import pytest

from tests.support.gateways.in_process_gateway import FALSE, TRUE, bench, policy, said

pytestmark = pytest.mark.anyio
_ORDER = ["upstream_asked", "upstream_answered", "first_text", "first_out", "total"]


async def test_event_has_the_upstream_times_in_order() -> None:
    made = await bench(said(TRUE))
    await made.stream()
    row = made.event.request
    marks = {**row.extra["marks"], "total": row.total_ms + 0.1}
    assert list(marks).index("upstream_asked") == 0
    assert sorted(_ORDER, key=marks.__getitem__) == _ORDER
    assert marks["first_text"] <= marks["upstream_ended"] <= marks["total"]


async def test_each_sentence_has_its_completion_and_judging_time() -> None:
    made = await bench(said(f"{TRUE} ", FALSE), policy(contradiction_action="block"))
    await made.stream()
    assert [claim.delivered for claim in made.event.claims] == [True, False]
    for claim in made.event.claims:
        came, judged = claim.extra["at"]
        assert 0 <= came <= judged <= made.event.request.total_ms + 0.1
        assert claim.judge_ms == pytest.approx(judged - came, abs=0.11)


async def test_unjudged_reply_has_no_sentence_times() -> None:
    made = await bench(said(TRUE), settings={"annotate_by_default": False})
    await made.stream()
    assert list(made.event.claims) == []
    assert "first_out" not in made.event.request.extra["marks"]
