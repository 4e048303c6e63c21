"""The timeline of a request, from its first byte to its last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from app.dashboard.charts import BarPart, tag, timing_bar
from app.dashboard.formatting import duration
from app.dashboard.trace.claim_evidence import SentenceView

_WIDTH = 1_000.0
_MOST_LANES = 60
_LANE, _SLIM = 10.0, 3.0
_NARROWEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    """A step of a request. Times are in milliseconds since the request arrived. ``tone`` is a class in style.css."""

    name: str
    tone: str
    start: float
    end: float

    @property
    def ms(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """``steps`` lists the steps in order. ``bar`` shows the steps, and ``lanes`` shows how long judging each sentence
    took. ``measured`` means that every step was measured. Otherwise only the total times of the upstream and the judge
    are known."""

    total_ms: float
    steps: Sequence[TimelineStep]
    bar: Markup
    lanes: Markup | None
    first_out_ms: float | None
    judge_ms: float | None
    measured: bool


def timing_of(request: Mapping[str, Any], sentences: Sequence[SentenceView]) -> Timing:
    """Build the timeline of a request from its row in a trace."""
    total = max(float(request["total_ms"]), 0.1)
    marks = request.get("marks") or {}
    steps = _measured(marks, total) if "upstream_asked" in marks else _known(request, total)
    parts = [
        BarPart(name=f"{step.name}: {duration(step.ms)}", value=step.ms, tone=step.tone, start=step.start)
        for step in steps
    ]
    said = ", ".join(f"{step.name} {duration(step.ms)}" for step in steps)
    return Timing(
        total_ms=total,
        steps=steps,
        bar=timing_bar(parts, total, label=f"{duration(total)} in total: {said}"),
        lanes=_lanes(sentences, total),
        first_out_ms=marks.get("first_out") if request["stream"] else None,
        judge_ms=request["judge_ms"],
        measured="upstream_asked" in marks,
    )


def _measured(marks: Mapping[str, float], total: float) -> list[TimelineStep]:
    asked = marks["upstream_asked"]
    answered = marks.get("upstream_answered", total)
    first = marks.get("first_text", answered)
    ended = marks.get("upstream_ended", total)
    named = (
        ("Retrieval policies", "gateway", 0.0, asked),
        ("Upstream response headers", "wait", asked, answered),
        ("Time to first token", "wait", answered, first),
        ("Generation", "upstream", first, ended),
        ("Judging the rest", "judge", ended, total),
    )
    steps, end = [], 0.0
    for name, tone, start, until in named:
        # A regenerated reply has the times of two upstream calls, so clamp each step to the end of the previous one.
        start, until = max(start, end), min(max(until, end), total)
        if until > start:
            steps.append(TimelineStep(name=name, tone=tone, start=start, end=until))
            end = until
    return steps


def _known(request: Mapping[str, Any], total: float) -> list[TimelineStep]:
    upstream, judge = request["upstream_ms"] or 0.0, request["judge_ms"] or 0.0
    if upstream:
        # Judging overlaps with generation, so the judge's share of the remaining time is unknown.
        named = (("Upstream", "upstream", upstream), ("Gateway", "gateway", total - upstream))
    else:
        named = (("Judge", "judge", min(judge, total)), ("Gateway", "gateway", total - judge))
    steps, end = [], 0.0
    for name, tone, ms in named:
        if ms > 0:
            steps.append(TimelineStep(name=name, tone=tone, start=end, end=min(end + ms, total)))
            end += ms
    return steps


def _lanes(sentences: Sequence[SentenceView], total: float) -> Markup | None:
    """Draw one line per sentence, from its last word to its verdict."""
    timed = [
        (sentence, sentence.came_ms, sentence.judged_ms)
        for sentence in sentences
        if sentence.came_ms is not None and sentence.judged_ms is not None
    ][:_MOST_LANES]
    if not timed:
        return None
    height = _LANE if len(timed) <= 20 else _SLIM
    drawn = []
    for lane, (sentence, came, judged) in enumerate(timed):
        width = max((judged - came) / total * _WIDTH, _NARROWEST)
        tip = f"Sentence {sentence.number}: judged in {duration(judged - came)}"
        drawn.append(
            tag(
                "rect",
                x=min(came / total * _WIDTH, _WIDTH - width),
                y=lane * height + height * 0.2,
                width=width,
                height=height * 0.6,
                class_=f"tone-{sentence.label}",
                data_tip=tip,
            )
        )
    tall = height * len(timed)
    label = f"When each of the {len(timed)} sentences was judged"
    box = {"viewBox": f"0 0 {_WIDTH:g} {tall:g}", "preserveAspectRatio": "none", "height": tall, "role": "img"}
    return tag("svg", *drawn, class_="lanes", aria_label=label, **box)
