"""The protocol for feature extraction, which the package ``judges.features`` implements."""

from collections.abc import Sequence
from typing import Protocol

from judges.features.claim_comparison import ClaimComparison
from judges.features.parsed_text import Prepared
from judges.features.probability_calibration import Combined
from judges.types import Probabilities


class FeatureExtractor(Protocol):
    """Compares the numbers, dates, units and names in two texts, and corrects a model's probabilities accordingly."""

    def prepare(self, text: str, context: str = "", asked: str = "", /) -> Prepared:
        """Parse ``text``, which follows ``context`` and answers the question ``asked``."""
        ...

    def together(self, parts: Sequence[Prepared], /) -> Prepared:
        """Combine several parsed texts into one."""
        ...

    def as_written(self, text: str, claim: Prepared, evidence: Sequence[Prepared], /) -> str:
        """Rewrite the quantities in ``text`` that come from ``claim`` in the form that ``evidence`` uses."""
        ...

    def comparison(self, claim: Prepared, /) -> ClaimComparison:
        """Build a comparison of a claim with several pieces of evidence."""
        ...

    def combine(
        self,
        evidence: Prepared | str,
        claim: ClaimComparison | Prepared | str,
        model: Probabilities,
        best: tuple[float, float] | None = None,
        /,
    ) -> Combined:
        """Combine the model's probabilities for a pair with the features. If ``model`` covers several windows, ``best``
        is the highest P(entailed) and P(contradicted) of any single window."""
        ...
