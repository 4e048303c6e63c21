"""Keeps claims in unsupported languages away from the cross-encoder, whose scores for them would be meaningless."""

import re
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final

from judges.evidence.index import EvidenceIndex
from judges.features import Features, compute, explain, prepare
from judges.label_thresholds import EXACT_MATCH_SCORE
from judges.text.languages.detection import is_foreign, languages_of
from judges.types import Claim, ClaimVerdict, Evidence, Label

LANGUAGE: Final = "language"
"""The reason given for a claim that is not judged because of its language."""

_NEGATIONS_KNOWN: Final = frozenset({"de", "fr", "es"})
"""Languages besides English whose negations, quantifiers and hedges the features recognise."""
_MIN_CHARACTERS: Final = 8
_EXPLANATION: Final = "The source says so in these words."
_SAMPLED_WINDOWS: Final = 16
_SAMPLE_CHARACTERS: Final = 240
_CANDIDATES: Final = 3
_BEFORE: Final = re.compile(r"(?:\A|[.!?…:。！？．｡؟।\n])[\s\"'»”’」』)\]*_#>•–-]*\Z")
_AFTER: Final = re.compile(r"[\s\"'«“„‘「『*_]*(?:\Z|[.!?…。！？．｡؟।\n])")
_ENDED: Final = re.compile(r"[.!?…。！？．｡؟।][\s\"'»”’」』)\]*_]+\Z")
"""A full stop inside closing quotation marks ends both the quotation and the sentence around it."""
_END: Final = ".!?…。！？．｡؟।"


class LanguageGate:
    """Decides which claims in a reply the model can judge.

    Args:
        languages: two-letter codes of the languages that the model supports.
        evidence: the evidence for the claims. It decides the language if the reply leaves the language in doubt.
    """

    def __init__(self, languages: Collection[str], evidence: EvidenceIndex) -> None:
        self._languages = frozenset(languages)
        self._evidence = evidence

    def admits(self, claim: Claim, before: str) -> bool:
        """Return whether the model supports the language of ``claim``. ``before`` is the text before the claim in the
        reply. If the language is uncertain, return True."""
        return not is_foreign(claim.text, self._languages, f"{before} {claim.context}", self._sample)

    def judge_without_model(self, claim: Claim) -> ClaimVerdict:
        """Judge a claim by its words and numbers alone.

        The claim is supported if it is a whole sentence of the evidence, word for word. It is contradicted if the
        evidence says the same with a different number or date. In a language whose negations are known, it is also
        contradicted if the evidence says the opposite in the same words. Any other claim is unverifiable, with the
        reason ``language``. This takes milliseconds, so call it on a thread.
        """
        windows = self._evidence.select(f"{claim.context} {claim.text}", _CANDIDATES)
        if not claim.context and (window := _verbatim(claim.text, windows)) is not None:
            return _supported(claim, window)
        prepared = prepare(claim.text, claim.context)
        negations_known = bool(languages_of(f"{claim.context} {claim.text}") & _NEGATIONS_KNOWN)
        for window in windows:
            features = compute(prepare(window.judged_text), prepared)
            if _differs(features, negations_known=negations_known):
                return _contradicted(claim, window, explain(features))
        return ClaimVerdict(claim=claim, label=Label.UNVERIFIABLE, entailed=0.0, contradicted=0.0, reason=LANGUAGE)

    @cached_property
    def _sample(self) -> str:
        """Return the beginnings of the most relevant windows."""
        return " ".join(window.text[:_SAMPLE_CHARACTERS] for window in self._evidence.windows[:_SAMPLED_WINDOWS])


def _differs(features: Features, *, negations_known: bool) -> bool:
    if max(features.verbatim, features.contained) >= EXACT_MATCH_SCORE:
        return False
    negated = min(features.polarity_differs, features.overlap) >= EXACT_MATCH_SCORE
    return features.quantity_differs >= EXACT_MATCH_SCORE or (negations_known and negated)


def _verbatim(text: str, windows: Sequence[Evidence]) -> Evidence | None:
    wanted = _one_line(text).rstrip(_END)
    if len(wanted) < _MIN_CHARACTERS:
        return None
    return next((window for window in windows if _has_sentence(_one_line(window.text), wanted)), None)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _has_sentence(text: str, wanted: str) -> bool:
    """Return whether ``wanted`` is a whole sentence in ``text``. Part of a sentence isn't enough, because the rest may
    negate it or cast doubt on it."""
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
        entailed=EXACT_MATCH_SCORE,
        contradicted=0.0,
        best_source=window.as_source(EXACT_MATCH_SCORE),
        explanation=_EXPLANATION,
        support={window.chunk_index: EXACT_MATCH_SCORE},
    )


def _contradicted(claim: Claim, window: Evidence, explanation: str | None) -> ClaimVerdict:
    return ClaimVerdict(
        claim=claim,
        label=Label.CONTRADICTED,
        entailed=0.0,
        contradicted=EXACT_MATCH_SCORE,
        best_source=window.as_source(EXACT_MATCH_SCORE),
        contradicting_source=window.as_source(EXACT_MATCH_SCORE),
        explanation=explanation,
    )
