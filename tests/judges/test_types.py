from typing import Any

import pytest

from judges.types import (
    LABELS_WORST_FIRST,
    VERDICTS_WORST_FIRST,
    Claim,
    ClaimVerdict,
    Label,
    ReplyVerdict,
    Source,
    Span,
)


def source(name: str) -> Source:
    return Source(document_id=name, document_index=0, source=None, content="", score=0.9, span=Span(0, 1))


BEST, AGAINST = source("best"), source("against")


def verdict(label: Label, **fields: Any) -> ClaimVerdict:
    claim = Claim(text="It rains.", span=Span(0, 9), sentence_index=0)
    return ClaimVerdict(claim=claim, label=label, entailed=0.5, contradicted=0.5, **fields)


@pytest.mark.parametrize("label", Label)
def test_deciding_source(label: Label) -> None:
    both = verdict(label, best_source=BEST, contradicting_source=AGAINST)
    assert both.deciding_source is (AGAINST if label is Label.CONTRADICTED else BEST)
    assert verdict(label, best_source=BEST).deciding_source is BEST
    assert verdict(label).deciding_source is None


def test_other_thresholds_select_another_source() -> None:
    claim = verdict(Label.UNVERIFIABLE, best_source=BEST, contradicting_source=AGAINST)
    assert claim.source_for(Label.CONTRADICTED) is AGAINST
    assert claim.source_for(Label.SUPPORTED) is BEST


def test_worst_first_orders_are_complete() -> None:
    assert sorted(LABELS_WORST_FIRST) == sorted(Label)
    assert sorted(VERDICTS_WORST_FIRST) == sorted(ReplyVerdict)
