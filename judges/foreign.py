"""Claims in a language that the cross-encoder does not know: it would answer, and its answer would mean nothing."""

import re
from collections.abc import Collection
from functools import cached_property
from typing import Final

from judges.evidence import EvidenceIndex
from judges.language.detection import is_foreign
from judges.types import Claim, ClaimVerdict, Evidence, Label, Source

LANGUAGE: Final = "language"
"""The reason of a claim left unjudged for its language."""

_VERBATIM: Final = 0.95
"""The score of a claim that stands in the evidence as a sentence of its own."""
_LEAST_CHARACTERS: Final = 8
_EXPLANATION: Final = "The source says so in these words."
_SAMPLED_WINDOWS: Final = 16
_SAMPLE_CHARACTERS: Final = 240
_CANDIDATES: Final = 3
_BEFORE: Final = re.compile(r"(?:\A|[.!?…:。！？．｡؟।\n])[\s\"'»”’」』)\]*_#>•–-]*\Z")
_AFTER: Final = re.compile(r"[\s\"'«“„‘「『*_]*(?:\Z|[.!?…。！？．｡؟।\n])")
_END: Final = ".!?…。！？．｡؟।"


class KnownLanguages:
    """Says of the claims of one reply whether a model that knows the languages ``codes`` (two letters each) can judge
    them against ``evidence``. Doubt counts as a language that it knows."""

    def __init__(self, codes: Collection[str], evidence: EvidenceIndex) -> None:
        self._codes = frozenset(codes)
        self._evidence = evidence

    def judge(self, claim: Claim, before: str) -> ClaimVerdict | None:
        """None for a claim that the model can be asked about; ``before`` is what the reply said before it.

        A claim in an unknown language is supported where the evidence has it, as it is, as a sentence of its own; else
        it is unverifiable for the reason ``language``.
        """
        if not is_foreign(claim.text, self._codes, f"{before} {claim.context}", self._sample):
            return None
        if not claim.context and (window := self._verbatim(claim.text)) is not None:
            return _supported(claim, window)
        return ClaimVerdict(claim=claim, label=Label.UNVERIFIABLE, entailed=0.0, contradicted=0.0, reason=LANGUAGE)

    @cached_property
    def _sample(self) -> str:
        """Some of what the documents say, the most relevant first."""
        return " ".join(window.text[:_SAMPLE_CHARACTERS] for window in self._evidence.windows[:_SAMPLED_WINDOWS])

    def _verbatim(self, text: str) -> Evidence | None:
        wanted = _flat(text).rstrip(_END)
        if len(wanted) < _LEAST_CHARACTERS:
            return None
        return next((one for one in self._evidence.select(text, _CANDIDATES) if _says(_flat(one.text), wanted)), None)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _says(text: str, wanted: str) -> bool:
    """Whether ``wanted`` is a whole sentence of ``text``: as a part of one it may be denied or doubted."""
    start = text.find(wanted)
    while start >= 0:
        if _BEFORE.search(text[:start]) and _AFTER.match(text, start + len(wanted)):
            return True
        start = text.find(wanted, start + 1)
    return False


def _supported(claim: Claim, window: Evidence) -> ClaimVerdict:
    source = Source(
        document_id=window.document_id,
        document_index=window.chunk_index,
        source=window.source,
        content=window.text,
        score=_VERBATIM,
        span=window.span,
    )
    return ClaimVerdict(
        claim=claim,
        label=Label.SUPPORTED,
        entailed=_VERBATIM,
        contradicted=0.0,
        best_source=source,
        explanation=_EXPLANATION,
        support={window.chunk_index: _VERBATIM},
    )
