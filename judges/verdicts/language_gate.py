"""Claims in a language that the cross-encoder does not know: it would answer, and its answer would mean nothing."""

import re
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final

from judges import features as signals
from judges.evidence.windows import EvidenceIndex
from judges.text.languages.detection import is_foreign, languages_of
from judges.types import Claim, ClaimVerdict, Evidence, Label, Source

LANGUAGE: Final = "language"
"""The reason of a claim left unjudged for its language."""

_SURE: Final = 0.95
"""The score of a claim that stands in the evidence as a sentence of its own, or whose number the evidence gives
otherwise."""
_WORDED: Final = frozenset({"de", "fr", "es"})
"""Languages whose negations, quantifiers and hedges the signals know, besides English."""
_LEAST_CHARACTERS: Final = 8
_EXPLANATION: Final = "The source says so in these words."
_SAMPLED_WINDOWS: Final = 16
_SAMPLE_CHARACTERS: Final = 240
_CANDIDATES: Final = 3
_BEFORE: Final = re.compile(r"(?:\A|[.!?…:。！？．｡؟।\n])[\s\"'»”’」』)\]*_#>•–-]*\Z")
_AFTER: Final = re.compile(r"[\s\"'«“„‘「『*_]*(?:\Z|[.!?…。！？．｡؟।\n])")
_ENDED: Final = re.compile(r"[.!?…。！？．｡؟।][\s\"'»”’」』)\]*_]+\Z")
"""A full stop within quotation marks ends what is quoted and what quotes it."""
_END: Final = ".!?…。！？．｡؟।"


class KnownLanguages:
    """Says of the claims of one reply whether a model that knows the languages ``codes`` (two letters each) can judge
    them against ``evidence``. Doubt counts as a language that it knows."""

    def __init__(self, codes: Collection[str], evidence: EvidenceIndex) -> None:
        self._codes = frozenset(codes)
        self._evidence = evidence

    def include(self, claim: Claim, before: str) -> bool:
        """Whether the model can be asked about ``claim``; ``before`` is what the reply said before it."""
        return not is_foreign(claim.text, self._codes, f"{before} {claim.context}", self._sample)

    def judge(self, claim: Claim) -> ClaimVerdict:
        """What can be said of a claim without a model that knows its language.

        It is supported where the evidence has it, as it is, as a sentence of its own, and contradicted where the
        evidence says the same of another number or date, or, in a language whose words of denial are known, the
        opposite in the same words. Else it is unverifiable for the reason ``language``. Takes milliseconds: for a
        thread.
        """
        windows = self._evidence.select(f"{claim.context} {claim.text}", _CANDIDATES)
        if not claim.context and (window := _verbatim(claim.text, windows)) is not None:
            return _supported(claim, window)
        prepared = signals.prepare(claim.text, claim.context)
        worded = bool(languages_of(f"{claim.context} {claim.text}") & _WORDED)
        for window in windows:
            seen = signals.compute(signals.prepare(window.read), prepared)
            if _differs(seen, worded=worded):
                return _contradicted(claim, window, signals.explain(seen))
        return ClaimVerdict(claim=claim, label=Label.UNVERIFIABLE, entailed=0.0, contradicted=0.0, reason=LANGUAGE)

    @cached_property
    def _sample(self) -> str:
        """Some of what the documents say, the most relevant first."""
        return " ".join(window.text[:_SAMPLE_CHARACTERS] for window in self._evidence.windows[:_SAMPLED_WINDOWS])


def _differs(seen: signals.Features, *, worded: bool) -> bool:
    if max(seen.verbatim, seen.contained) >= _SURE:
        return False
    return seen.quantity_differs >= _SURE or (worded and seen.polarity_differs >= _SURE and seen.overlap >= _SURE)


def _verbatim(text: str, windows: Sequence[Evidence]) -> Evidence | None:
    wanted = _flat(text).rstrip(_END)
    if len(wanted) < _LEAST_CHARACTERS:
        return None
    return next((window for window in windows if _says(_flat(window.text), wanted)), None)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _says(text: str, wanted: str) -> bool:
    """Whether ``wanted`` is a whole sentence of ``text``: as a part of one it may be denied or doubted."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if _BEFORE.search(text[:start]) and (_ENDED.search(wanted) or _AFTER.match(text, end)):
            return True
        start = text.find(wanted, start + 1)
    return False


def _supported(claim: Claim, window: Evidence) -> ClaimVerdict:
    return ClaimVerdict(
        claim=claim,
        label=Label.SUPPORTED,
        entailed=_SURE,
        contradicted=0.0,
        best_source=_source(window),
        explanation=_EXPLANATION,
        support={window.chunk_index: _SURE},
    )


def _contradicted(claim: Claim, window: Evidence, explanation: str | None) -> ClaimVerdict:
    return ClaimVerdict(
        claim=claim,
        label=Label.CONTRADICTED,
        entailed=0.0,
        contradicted=_SURE,
        best_source=_source(window),
        contradicting_source=_source(window),
        explanation=explanation,
    )


def _source(window: Evidence) -> Source:
    return Source(
        document_id=window.document_id,
        document_index=window.chunk_index,
        source=window.source,
        content=window.text,
        score=_SURE,
        span=window.span,
    )
