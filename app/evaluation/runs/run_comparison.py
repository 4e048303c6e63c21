"""Compares two runs: which claims changed their verdict, and how the score changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.evaluation.cases.case_result import CaseResult, JudgedClaim, claim_ids
from app.evaluation.runs.confidence_intervals import Estimate, difference, mean
from app.evaluation.runs.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A claim that was accepted in only one of the two runs."""

    case_id: str
    claim_id: str
    text: str
    before: JudgedClaim
    after: JudgedClaim

    @property
    def is_worse(self) -> bool:
        """Whether the claim was accepted before and no longer is."""
        return self.before.accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The comparison of two runs. ``before`` and ``after`` are mean scores, and ``change`` is the mean difference. All
    three cover the ``cases`` that were scored in both runs. Claims are matched by case and wording. ``claims_gone`` and
    ``claims_new`` count the unmatched claims of each run."""

    judges: tuple[str, str]
    cases: int
    only_before: Sequence[str]
    only_after: Sequence[str]
    claims: int
    claims_gone: int
    claims_new: int
    flips: Sequence[Flip]
    before: Estimate
    after: Estimate
    change: Estimate

    @property
    def worse(self) -> Sequence[Flip]:
        return [flip for flip in self.flips if flip.is_worse]

    @property
    def better(self) -> Sequence[Flip]:
        return [flip for flip in self.flips if not flip.is_worse]


def compare_runs(before: Path, after: Path) -> RunComparison:
    """Compare the run in the folder ``after`` with the run in the folder ``before``. Raises RunFolderError."""
    old_run, new_run = RunFolder(before), RunFolder(after)
    tally = _Tally()
    only_before = [
        old.case.case_id
        for old in old_run.results()
        if old.score is not None and not tally.take(old, new_run.find(old.case.case_id))
    ]
    only_after = [
        new.case.case_id for new in new_run.results() if new.score is not None and new.case.case_id not in tally.shared
    ]
    return RunComparison(
        judges=(_names(tally.judges_before), _names(tally.judges_after)),
        cases=len(tally.scores),
        only_before=only_before,
        only_after=only_after,
        claims=tally.same,
        claims_gone=tally.gone,
        claims_new=tally.new,
        flips=tally.flips,
        before=mean([one for one, _ in tally.scores]),
        after=mean([two for _, two in tally.scores]),
        change=difference(tally.scores),
    )


class _Tally:
    def __init__(self) -> None:
        self.shared: set[str] = set()
        self.scores: list[tuple[float, float]] = []
        self.flips: list[Flip] = []
        self.same = self.gone = self.new = 0
        self.judges_before: set[str] = set()
        self.judges_after: set[str] = set()

    def take(self, before: CaseResult, after: CaseResult | None) -> bool:
        """Count a case. Return False if either run has no score for the case."""
        if before.score is None or after is None or after.score is None:
            return False
        old, new = _claims(before), _claims(after)
        both = [claim_id for claim_id in old if claim_id in new]
        self.same, self.gone, self.new = (
            self.same + len(both),
            self.gone + len(old) - len(both),
            self.new + len(new) - len(both),
        )
        self.flips += [
            Flip(case_id=before.case.case_id, claim_id=one, text=old[one].text, before=old[one], after=new[one])
            for one in both
            if old[one].accepted is not new[one].accepted
        ]
        self.shared.add(before.case.case_id)
        self.scores.append((before.score, after.score))
        for names, result in ((self.judges_before, before), (self.judges_after, after)):
            names.update(() if result.judged is None else (result.judged.judge,))
        return True


def _claims(result: CaseResult) -> Mapping[str, JudgedClaim]:
    return dict(zip(claim_ids(result.claims), result.claims, strict=True))


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
