"""Texts are stored as the setting says, and decisions lose the texts that they quote."""

from collections.abc import Callable
from hashlib import sha256

import pytest

from app.events.redaction import redact, redact_decision, stored, stored_decisions
from app.settings import StoreText
from policies.types import Decision

MakeDecision = Callable[..., Decision]


def test_a_text_is_stored_in_full_hashed_or_not_at_all() -> None:
    assert stored("a secret", StoreText.FULL) == "a secret"
    assert stored("a secret", StoreText.NONE) is None
    hashed = stored("a secret", StoreText.HASH)
    assert hashed == "sha256:" + sha256(b"a secret").hexdigest()


@pytest.mark.parametrize("how", StoreText)
@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_text_is_not_stored(empty: str | None, how: StoreText) -> None:
    assert stored(empty, how) is None


def test_a_text_with_half_a_character_has_a_hash() -> None:
    found = stored("\ud83d", StoreText.HASH)
    assert found is not None
    assert found != stored("\udc00", StoreText.HASH)


def test_texts_are_redacted_at_any_depth() -> None:
    value = {"a": "the secret", "b": [1, ("secret", {"c": "no secrets"})], "n": None}
    assert redact(value, ["secret"]) == {"a": "the …", "b": [1, ["…", {"c": "no …s"}]], "n": None}


def test_a_decision_that_quotes_nothing_stays_itself(decision: MakeDecision) -> None:
    made = decision(reason="all is well")
    assert redact_decision(made, ["secret"]) is made


@pytest.mark.parametrize("how", StoreText)
def test_decisions_keep_their_quotations_only_with_full_texts(decision: MakeDecision, how: StoreText) -> None:
    (kept,) = stored_decisions([decision(reason='Contradicted: "a secret"')], ["a secret"], how)
    assert ("secret" in kept.reason) is (how is StoreText.FULL)
