"""Request bodies that parsers interpret differently, or that are designed to break a parser."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidRequestError
from app.protocols.documents import Limits, read_chat
from app.protocols.documents.json_body import parse_json

MESSAGES = '"messages": [{"role": "user", "content": "Hi"}]'


def refused(raw: bytes | str) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse_json(raw if isinstance(raw, bytes) else raw.encode())
    assert caught.value.status == 400
    caught.value.message.encode()  # it can be sent
    return caught.value


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_outside_json_are_named(number: str) -> None:
    error = refused(f'{{"a": 1, "b": [{{"c": {number}}}], "d": {number}}}')
    assert (error.param, "a finite number" in error.message) == ("b[0].c", True)


def test_number_beyond_float_range_is_rejected() -> None:
    body = {"documents": [{"text": "x", "score": 10**400}], "messages": [{}]}
    with pytest.raises(InvalidRequestError) as caught:
        read_chat(json.dumps(body).encode(), {}, Limits())
    assert caught.value.param == "documents[0].score"
    assert refused(b'{"a": 1' + b"0" * 5000 + b"}").param is None
    assert refused(b'{"a": [0, -1e400]}').param == "a[1]"


def test_integers_beyond_64_bits_are_forwarded_exactly() -> None:
    seed = 123456789012345678901234567890
    for number in (seed, -seed, 2**64, 2**64 - 1, -(2**63) - 1):
        raw = json.dumps({"seed": number, "documents": ["x"], "messages": [{"role": "user"}]}).encode()
        assert read_chat(raw, {}, Limits()).body["seed"] == number


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ('{"documents": [{"text": "\\ud800"}]}', "documents[0].text"),
        ('{"messages": [{"content": "a\\udfffb"}], "x": "\\ud800"}', "messages[0].content"),
        ('{"a": {"\\ud83d": 1}}', "a"),
        ('{"\\ud800": 1}', "body"),
    ],
)
def test_lone_surrogate_is_named(raw: str, param: str) -> None:
    assert refused(raw).param == param


def test_surrogate_pair_is_accepted() -> None:
    assert parse_json(b'{"a": "\\ud83d\\ude86", "n": 123456789012345678901234567890}')["a"] == "🚆"


@pytest.mark.parametrize(
    "raw", [b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', b'\xff\xfe{\x00"\x00a\x00"\x00:\x001\x00}\x00']
)
def test_other_encodings_are_rejected(raw: bytes) -> None:
    assert refused(raw).message.startswith("The request body is not valid JSON")


REPEATED = [
    '{"model": "a", "model": "b"}',
    '{"model": "a", "m\\u006fdel": "b"}',
    '{"\\u006d\\u006f\\u0064\\u0065\\u006c": "a", "model": "b"}',
    '{"model": "a", "x": {"model": 1}, "model" : "a"}',
]


@pytest.mark.parametrize("raw", REPEATED)
def test_duplicate_field_is_rejected(raw: str) -> None:
    error = refused(raw)
    assert (error.param, error.message) == ("model", "model: duplicate field.")


@pytest.mark.parametrize(
    "raw",
    [
        '{"model": "model", "x": {"model": 1, "y": [{"model": 2}]}}',
        '{"model": "\\u006d: \\u006f", "user": "\\"m\\u006fdel\\": "}',
        '{"a": {"b": 1, "b": 2}}',
        "{}",
        json.dumps({f"field {number}": number for number in range(100)}),
    ],
)
def test_equal_name_in_another_object_is_no_duplicate(raw: str) -> None:
    assert parse_json(raw.encode()) == json.loads(raw)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_body_may_be_nested_two_hundred_levels_deep(opening: str, closing: str) -> None:
    def nested(levels: int) -> str:
        inner = levels - 2
        return f'{{"x": {opening * inner}{{}}{closing * inner}}}'

    assert parse_json(nested(200).encode())
    assert refused(nested(201)).param == "body"
    assert "200 levels" in refused(nested(900)).message
    assert refused(nested(100_000)).status == 400
    assert parse_json(b'{"x": [' + b",".join([b"[]"] * 5000) + b"]}")


@given(st.dictionaries(st.text(max_size=3), st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists)))
def test_valid_json_is_read_like_the_standard_library(body: dict[str, Any]) -> None:
    try:
        raw = json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raw = json.dumps(body).encode()
    assert parse_json(raw) == json.loads(raw)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "model"]), st.integers()), max_size=5), st.booleans())
def test_duplicate_fields_are_found_in_any_spelling(pairs: list[tuple[str, int]], escaped: bool) -> None:
    def name(text: str, position: int) -> str:
        return "".join(f"\\u{ord(c):04x}" for c in text) if escaped and position % 2 else text

    raw = "{" + ", ".join(f'"{name(key, at)}": {value}' for at, (key, value) in enumerate(pairs)) + "}"
    if len({key for key, _ in pairs}) < len(pairs):
        assert refused(raw).message.endswith("duplicate field.")
    else:
        assert parse_json(raw.encode()) == dict(pairs)
