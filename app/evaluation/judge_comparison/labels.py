"""Human labels of cases: whether the documents support the output."""

from collections.abc import Mapping
from typing import Final

from app.evaluation.cases.case import Case

_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("supported", "grounded", "entailed", "entailment", "faithful", "pass", "true", "yes", "1"), True),
    **dict.fromkeys(
        (
            "unsupported",
            "not_supported",
            "contradicted",
            "contradiction",
            "unverifiable",
            "neutral",
            "hallucinated",
            "ungrounded",
            "fail",
            "false",
            "no",
            "0",
        ),
        False,
    ),
}


class LabelError(Exception):
    """A case has no label or an unknown label. The message names the case."""


def is_supported(case: Case) -> bool:
    """Return whether the case is labelled as supported. Raises LabelError."""
    word = str(case.label).strip().casefold().replace("-", "_").replace(" ", "_")
    if case.label is None or word not in _WORDS:
        found = "no label" if case.label is None else f"the unknown label {str(case.label)[:60]!r}"
        raise LabelError(f"case {case.case_id!r} has {found}; expected 'supported' or 'unsupported'")
    return _WORDS[word]
