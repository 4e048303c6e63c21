"""The protocol of feature extraction, which the module ``judges.features`` implements."""

from collections.abc import Sequence
from typing import Protocol

from judges.features.calibration import Combined
from judges.features.claim_comparison import ClaimComparison
from judges.features.parsed_text import Prepared
from judges.types import Probabilities


class FeatureExtractor(Protocol):
    """Compares the numbers, dates, units and names of two texts, and corrects a model's probabilities by them."""

    def prepare(self, text: str, context: str = "", asked: str = "", /) -> Prepared:
        """Parse ``text``, which follows on ``context`` and answers the question ``asked``."""
        ...

    def together(self, parts: Sequence[Prepared], /) -> Prepared:
        """Several parsed texts as one."""
        ...

    def as_written(self, text: str, claim: Prepared, evidence: Sequence[Prepared], /) -> str:
        """``text`` with the quantities of ``claim`` in the form that ``evidence`` has them in."""
        ...

    def comparison(self, claim: Prepared, /) -> ClaimComparison:
        """A claim to be compared with several pieces of evidence."""
        ...

    def combine(
        self,
        evidence: Prepared | str,
        claim: ClaimComparison | Prepared | str,
        model: Probabilities,
        best: tuple[float, float] | None = None,
        /,
    ) -> Combined:
        """The probabilities of a pair, from the model's and the features. ``best``: the highest P(entailed) and
        P(contradicted) of any single window, where ``model`` is for several."""
        ...
