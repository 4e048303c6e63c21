"""Feature extraction for a cascade, which interprets each probability on the scale of the judge that returned it."""

from collections.abc import Callable, Sequence

from judges.features.claim_comparison import ClaimComparison, comparison
from judges.features.parsed_text import Prepared, prepare, together
from judges.features.probability_calibration import Combined, combine
from judges.features.published_threshold import PublishedThresholdFeatures
from judges.features.quantity_features import as_written
from judges.types import Probabilities

_Combine = Callable[
    [Prepared | str, ClaimComparison | Prepared | str, Probabilities, tuple[float, float] | None], Combined
]


class CascadeFeatures:
    """A ``FeatureExtractor`` for the judges of a cascade. ``thresholds`` are the judges' published thresholds, in
    order. None means that a judge's probabilities are calibrated like those of the embedded model."""

    prepare = staticmethod(prepare)
    together = staticmethod(together)
    as_written = staticmethod(as_written)
    comparison = staticmethod(comparison)

    def __init__(self, thresholds: Sequence[float | None]) -> None:
        self._stages: Sequence[_Combine] = [
            combine if threshold is None else PublishedThresholdFeatures(threshold).combine for threshold in thresholds
        ]

    def combine(
        self,
        evidence: Prepared | str,
        claim: ClaimComparison | Prepared | str,
        model: Probabilities,
        best: tuple[float, float] | None = None,
        /,
    ) -> Combined:
        """Correct a probability for a pair. ``best`` comes from the first judge, so it is combined with that judge's
        scores only.
        """
        return self._stages[model.stage](evidence, claim, model, best if model.stage == 0 else None)
