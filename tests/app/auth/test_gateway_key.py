"""The format and the limits of gateway keys."""

from typing import Any

import pytest

from app.auth import GatewayKey, hash_key, is_key, new_key, prefix_of
from app.errors import KeyLimitError
from judges.types import Chunk


def key(**limits: Any) -> GatewayKey:
    values: dict[str, Any] = {"id": "key_1", "name": "bot", "prefix": "gl-abcd2345", "digest": bytes(32)}
    return GatewayKey(**values | limits)


def documents(*collections: str | None) -> list[Chunk]:
    return [Chunk(id=str(index), text="x", collection=name) for index, name in enumerate(collections)]


def path_of(index: int) -> str:
    return f"documents[{index}]"


def test_keys_differ_in_prefix_and_secret() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == len({prefix_of(text) for text in keys}) == 100
    assert {len(text) for text in keys} == {len("gl-") + 8 + 1 + 43}
    assert all(is_key(text) and text.startswith(prefix_of(text) + "-") for text in keys)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("gl-abcd2345-secret", True),
        ("gl-abcd2345-", True),
        ("gl-abcd2345", False),
        ("gl-abcd234-secret", False),
        ("gl-ABCD2345-secret", False),
        ("glpat-abcd2345-secret", False),
        ("sk-proj-abcd2345", False),
        ("", False),
    ],
)
def test_key_is_recognised_by_its_format(text: str, form: bool) -> None:
    assert is_key(text) is form
    assert bool(prefix_of(text)) is form


def test_stored_hash_is_sha_256() -> None:
    assert hash_key("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert len(hash_key("\ud800")) == 32


@pytest.mark.parametrize(
    ("models", "model", "allowed"),
    [
        ((), None, True),
        ((), "gpt-4o", True),
        (("gpt-4o*",), "gpt-4o-mini", True),
        (("gpt-4o*", "claude-*"), "claude-haiku", True),
        (("gpt-4o",), "gpt-4o-mini", False),
        (("gpt-4o",), "GPT-4o", False),
        (("gpt-4o",), None, False),
        (("*",), None, False),
    ],
)
def test_key_is_limited_to_its_models(models: tuple[str, ...], model: str | None, allowed: bool) -> None:
    if allowed:
        key(models=models).check_model(model)
        return
    with pytest.raises(KeyLimitError, match=model or "doesn.t name one") as caught:
        key(models=models).check_model(model)
    assert (caught.value.status, caught.value.code, caught.value.param) == (403, "model_not_allowed", "model")


@pytest.mark.parametrize(
    ("collections", "of", "refused"),
    [
        ((), [None, "hr"], None),
        (("kb",), [], None),
        (("kb", "faq-*"), ["kb", "faq-2026"], None),
        (("kb",), ["kb", "hr"], "documents\\[1\\] is in the collection 'hr'"),
        (("kb",), ["kb", None], "documents\\[1\\] has no collection"),
    ],
)
def test_key_is_limited_to_its_collections(
    collections: tuple[str, ...], of: list[str | None], refused: str | None
) -> None:
    if refused is None:
        key(collections=collections).check_documents(documents(*of), path_of)
        return
    with pytest.raises(KeyLimitError, match=refused) as caught:
        key(collections=collections).check_documents(documents(*of), path_of)
    assert (caught.value.status, caught.value.code) == (403, "collection_not_allowed")
    assert caught.value.param == "documents[1]"
