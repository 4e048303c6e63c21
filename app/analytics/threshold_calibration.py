"""Derives a threshold from the scores of good runs, and counts the runs that it would have blocked."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, get_args

from app.analytics.labelled_replies import labelled_replies
from app.analytics.scored_runs import Score, ScoredRun, Source, scored_runs
from app.db.database import Database
from app.events.feedback import FeedbackStore, RequestFeedback
from app.events.filters import EventFilter

MOST_REQUESTS = 100_000
_BINS = 20
_STEPS = 100

Good = Literal["allowed", "marked"]
Origin = Literal["labels", "feedback", "actions"]
"""The basis for calling a run good or bad: labels of its claims, feedback, or the actions of policies."""


async def calibrate(
    database: Database,
    filter: EventFilter,
    *,
    source: Source = "judge",
    score: Score,
    good: Good,
    percentile: float,
    most: int = MOST_REQUESTS,
) -> dict[str, Any]:
    """Derive a threshold from logged runs: the score at the given percentile of the scores of good runs.

    The result also contains the distribution of the scores of good and bad runs, and the number of runs that each of
    several thresholds would block.

    ``source`` selects the scores, like the rule ``score_source``. ``score`` selects how to combine a run's scores, like
    the rule ``score_eval_mode`` (``lowest`` corresponds to ``all``). ``good`` selects which runs count as good:
    ``allowed`` selects all allowed runs, unless labels or feedback say otherwise, and ``marked`` selects only runs that
    labels or feedback call good.

    Labels of the reply's claims take priority if there are enough of them (see ``labelled_replies``). Feedback on the
    reply comes next: a correct reply is good, an incorrect one is bad. Feedback on the outcome comes last: a reply that
    was rightly allowed or wrongly flagged is good. A run of several requests is bad if any of its requests is bad.
    ``origins`` counts the good and bad runs by the basis for that judgement. Reads at most ``most`` runs, newest first.
    Raises DatabaseUnavailableError.
    """
    scored = await scored_runs(database, filter, source=source, score=score, most=most)
    ids = [id for one in scored for id in one.flags]
    people = _People(
        feedback=await FeedbackStore(database).on_requests(ids), grounded=await labelled_replies(database, ids)
    )
    return {"source": source, **await asyncio.to_thread(_calibrated, scored, people, good, percentile)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _People:
    """Human judgements of requests: feedback, and whether labels of the claims show that the reply is grounded."""

    feedback: Mapping[str, RequestFeedback]
    grounded: Mapping[str, bool]

    def was_bad(self, one: ScoredRun) -> tuple[bool | None, Origin]:
        """Return whether the run was bad, and the basis for this (labels or feedback). If the run has neither, return
        None and ``actions``."""
        bad: bool | None = None
        origin: Origin = "actions"
        for id, flagged in one.flags.items():
            if (grounded := self.grounded.get(id)) is not None:
                bad, origin = bad or not grounded, "labels"
            elif id in self.feedback and (marked := self.feedback[id].reply_was_bad(flagged=flagged)) is not None:
                bad, origin = bad or marked, "labels" if origin == "labels" else "feedback"
        return bad, origin


def _calibrated(scored: Sequence[ScoredRun], people: _People, good: Good, percentile: float) -> dict[str, Any]:
    counted: dict[str, list[float]] = {name: [] for name in ("runs", "good", "bad", "marked_good", "marked_bad")}
    origins: Counter[Origin] = Counter()
    for one in scored:
        bad, origin = people.was_bad(one)
        counted["runs"].append(one.score)
        if bad is not None:
            counted["marked_bad" if bad else "marked_good"].append(one.score)
        # Without labels or feedback, flagged runs are bad. Allowed runs are good if ``good`` is "allowed".
        is_bad = one.flagged if bad is None else bad
        if bad is not None or is_bad or good == "allowed":
            counted["bad" if is_bad else "good"].append(one.score)
            origins[origin] += 1
    for scores in counted.values():
        scores.sort()
    good_scores, bad_scores = counted["good"], counted["bad"]
    threshold = good_scores[max(0, ceil(len(good_scores) * percentile / 100) - 1)] if good_scores else None
    return {
        "percentile": percentile,
        "threshold": threshold,
        "runs": {"good": len(good_scores), "bad": len(bad_scores)},
        "origins": {origin: origins[origin] for origin in get_args(Origin)},
        # A score equal to the threshold passes.
        "would_block": None
        if threshold is None
        else {"good": bisect_left(good_scores, threshold), "bad": bisect_left(bad_scores, threshold)},
        "histogram": [
            {
                "from": low / _BINS,
                "to": (low + 1) / _BINS,
                "good": _within(good_scores, low),
                "bad": _within(bad_scores, low),
            }
            for low in range(_BINS)
        ],
        "thresholds": [
            {"threshold": step / _STEPS}
            | {name: bisect_left(scores, step / _STEPS) for name, scores in counted.items()}
            for step in range(_STEPS + 1)
        ],
        "totals": {name: len(scores) for name, scores in counted.items()},
    }


def _within(scores: Sequence[float], bin: int) -> int:
    end = len(scores) if bin == _BINS - 1 else bisect_left(scores, (bin + 1) / _BINS)
    return end - bisect_left(scores, bin / _BINS)
