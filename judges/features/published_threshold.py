"""Feature extraction for a judge whose authors published a threshold. Its probabilities are used unchanged, except for
corrections by exact features."""

from math import log

from judges.features.claim_comparison import ClaimComparison, comparison
from judges.features.parsed_text import Prepared, prepare, together
from judges.features.probability_calibration import Combined, bounded_log_odds, explain, spread
from judges.features.quantity_features import as_written
from judges.label_thresholds import Thresholds
from judges.types import Probabilities

_DEFAULT: float = Thresholds().entailment


class PublishedThresholdFeatures:
    """A ``FeatureExtractor`` for such a judge.

    The regressions in ``judges.features.probability_calibration`` were fitted to the embedded model only. For other
    judges, the log-odds of "entailed" are shifted so that a score at the published threshold becomes the default
    threshold of policies. With the default threshold, a claim is then supported exactly when the judge's authors would
    call it supported. A policy with a higher threshold is stricter; a policy with a lower threshold is more lenient.
    """

    prepare = staticmethod(prepare)
    together = staticmethod(together)
    as_written = staticmethod(as_written)
    comparison = staticmethod(comparison)

    def __init__(self, threshold: float) -> None:
        self._shift = log(_DEFAULT / (1.0 - _DEFAULT)) - log(threshold / (1.0 - threshold))

    def combine(
        self,
        evidence: Prepared | str,
        claim: ClaimComparison | Prepared | str,
        model: Probabilities,
        best: tuple[float, float] | None = None,
        /,
    ) -> Combined:
        """Correct the judge's probabilities for a pair. ``best`` has no effect."""
        evidence = evidence if isinstance(evidence, Prepared) else prepare(evidence)
        claim = prepare(claim) if isinstance(claim, str) else claim
        compared = claim if isinstance(claim, ClaimComparison) else ClaimComparison(claim)
        features = compared.features(evidence)
        rest = model.neutral + model.contradicted
        opposed = bounded_log_odds(model.contradicted / rest if rest > 0.0 else 0.0)
        found = spread(bounded_log_odds(model.entailed) + self._shift, opposed, features)
        return Combined(found, explain(features))
