"""More than the evidence says."""

import pytest

from judges.signals import compute, prepare


@pytest.mark.parametrize(
    ("evidence", "claim", "more"),
    [
        ("The bank provides products and services.", "The bank only provides products.", True),
        ("The office opens on weekdays at nine.", "The office always opens on weekdays at nine.", True),
        ("The bank provides nothing but products, and only online.", "The bank only provides products.", False),
        ("Every office opens on weekdays at nine.", "Every office always opens on weekdays at nine.", False),
        ("The bank provides products and services.", "The bank provides products.", False),
    ],
)
def test_what_is_narrower_or_surer_than_the_evidence(evidence: str, claim: str, more: bool) -> None:
    found = compute(prepare(evidence), prepare(claim))
    assert (found.overclaims > 0.5) is more
    assert (found.contained > 0.5) is not more
