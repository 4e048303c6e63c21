import pytest

from judges.llm.batch_merging import merge_labels, merge_verdicts
from judges.llm_types import LlmVerdict
from judges.types import Label


@pytest.mark.parametrize(
    ("labels", "merged"),
    [
        ("UUS", "S"), ("CS", "S"), ("UCU", "C"), ("UU", "U"), ("NNU", "U"), ("NN", "N"), ("", None),
    ],
)  # fmt: skip
def test_support_in_any_batch_wins_over_contradictions(labels: str, merged: str | None) -> None:
    by_letter = {
        "S": Label.SUPPORTED, "C": Label.CONTRADICTED, "U": Label.UNVERIFIABLE, "N": Label.NOT_A_CLAIM,
    }  # fmt: skip
    assert merge_labels([by_letter[label] for label in labels]) == (by_letter[merged] if merged else None)


def test_most_confident_of_equal_verdicts_wins_and_unreadable_ones_are_ignored() -> None:
    unread = LlmVerdict(label=Label.UNVERIFIABLE, confidence=0.5, readable=False)
    sure = LlmVerdict(label=Label.CONTRADICTED, confidence=0.9)
    assert merge_verdicts([unread, LlmVerdict(label=Label.CONTRADICTED, confidence=0.6), sure]) is sure
    assert merge_verdicts([unread, unread]) is unread
