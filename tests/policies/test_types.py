"""A citation of a name that several documents have."""

import pytest

from judges.types import ClaimVerdict, Label
from policies.types import Citation
from tests.support.policy_builders import claim

CITED = Citation(marker="[p.pdf]", document_index=0, other_documents=(1, 2), sentence_index=0)


@pytest.mark.parametrize(
    ("verdict", "documents"),
    [
        (claim(document=1), (1, 0, 2)),
        (claim(document=5, support={0: 0.1, 2: 0.9}), (2, 0, 1)),
        (claim(document=5, support={0: 0.1, 2: 0.2}), (0, 1, 2)),
        (claim(document=1, label=Label.UNVERIFIABLE), (0, 1, 2)),
    ],
)
def test_citation_is_attributed_to_the_supporting_document(verdict: ClaimVerdict, documents: tuple[int, ...]) -> None:
    assert CITED.attributed([verdict]).documents == documents


def test_citation_without_claims_stays_the_same() -> None:
    assert CITED.attributed([]) == CITED
    assert Citation(marker="[9]").attributed([claim()]).documents == ()


def test_citation_moves_with_its_documents() -> None:
    assert CITED.moved({0: 4, 1: 5, 2: 6}).documents == (4, 5, 6)
    assert CITED.moved({1: 0}).documents == (0,)
    assert CITED.moved({}).document_index is None
