"""Texts are stored according to the setting, and quoted texts are removed from decisions."""

from collections.abc import Callable
from hashlib import sha256

import pytest
from msgspec import structs

from app.events.redaction import stored, stored_decisions
from app.settings import StoreText
from policies.types import Decision

MakeDecision = Callable[..., Decision]


def test_text_is_stored_in_full_hashed_or_not_at_all() -> None:
    assert stored("a secret", StoreText.FULL) == "a secret"
    assert stored("a secret", StoreText.NONE) is None
    hashed = stored("a secret", StoreText.HASH)
    assert hashed == "sha256:" + sha256(b"a secret").hexdigest()


@pytest.mark.parametrize("how", StoreText)
@pytest.mark.parametrize("empty", ["", None])
def test_empty_text_is_not_stored(empty: str | None, how: StoreText) -> None:
    assert stored(empty, how) is None


def test_text_with_a_lone_surrogate_has_a_hash() -> None:
    found = stored("\ud83d", StoreText.HASH)
    assert found is not None
    assert found != stored("\udc00", StoreText.HASH)


@pytest.mark.parametrize("how", StoreText)
def test_decisions_keep_quotations_only_with_full_texts(decision: MakeDecision, how: StoreText) -> None:
    quoting = structs.replace(
        decision(reason='Contradicted: "a secret"'), quotes={'Contradicted: "a secret"': 'Contradicted: "…"'}
    )
    (kept,) = stored_decisions([quoting], how)
    assert ("secret" in kept.reason) is (how is StoreText.FULL)
