"""Request bodies that parsers disagree about, or that are meant to break one."""

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
def test_numbers_that_json_does_not_have_are_named(number: str) -> None:
    error = refused(f'{{"a": 1, "b": [{{"c": {number}}}], "d": {number}}}')
    assert (error.param, "a finite number" in error.message) == ("b[0].c", True)


def test_a_number_beyond_every_float_is_no_number() -> None:
    body = {"documents": [{"text": "x", "score": 10**400}], "messages": [{}]}
    with pytest.raises(InvalidRequestError) as caught:
        read_chat(json.dumps(body).encode(), {}, Limits())
    assert caught.value.param == "documents[0].score"
    assert refused(b'{"a": 1' + b"0" * 5000 + b"}").param is None
    assert refused(b'{"a": [0, -1e400]}').param == "a[1]"


def test_integers_beyond_64_bits_go_upstream_exact() -> None:
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
def test_half_a_character_is_named(raw: str, param: str) -> None:
    assert refused(raw).param == param


def test_a_whole_character_in_two_escapes_is_fine() -> None:
    assert parse_json(b'{"a": "\\ud83d\\ude86", "n": 123456789012345678901234567890}')["a"] == "🚆"


@pytest.mark.parametrize(
    "raw", [b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', b'\xff\xfe{\x00"\x00a\x00"\x00:\x001\x00}\x00']
)
def test_another_encoding_is_no_json(raw: bytes) -> None:
    assert refused(raw).message.startswith("The request body is not valid JSON")


REPEATED = [
    '{"model": "a", "model": "b"}',
    '{"model": "a", "m\\u006fdel": "b"}',
    '{"\\u006d\\u006f\\u0064\\u0065\\u006c": "a", "model": "b"}',
    '{"model": "a", "x": {"model": 1}, "model" : "a"}',
]


@pytest.mark.parametrize("raw", REPEATED)
def test_a_field_given_twice_is_refused_since_the_upstream_may_take_the_other(raw: str) -> None:
    error = refused(raw)
    assert (error.param, error.message) == ("model", "model: the field is given twice.")


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
def test_a_name_that_stands_elsewhere_too_is_no_repetition(raw: str) -> None:
    assert parse_json(raw.encode()) == json.loads(raw)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_a_body_may_be_two_hundred_levels_deep(opening: str, closing: str) -> None:
    def nested(levels: int) -> str:
        inner = levels - 2
        return f'{{"x": {opening * inner}{{}}{closing * inner}}}'

    assert parse_json(nested(200).encode())
    assert refused(nested(201)).param == "body"
    assert "200 levels" in refused(nested(900)).message
    assert refused(nested(100_000)).status == 400
    assert parse_json(b'{"x": [' + b",".join([b"[]"] * 5000) + b"]}")


@given(st.dictionaries(st.text(max_size=3), st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists)))
def test_what_json_reads_is_read_the_same(body: dict[str, Any]) -> None:
    try:
        raw = json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raw = json.dumps(body).encode()
    assert parse_json(raw) == json.loads(raw)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "model"]), st.integers()), max_size=5), st.booleans())
def test_repetitions_are_found_however_they_are_written(pairs: list[tuple[str, int]], escaped: bool) -> None:
    def name(text: str, position: int) -> str:
        return "".join(f"\\u{ord(c):04x}" for c in text) if escaped and position % 2 else text

    raw = "{" + ", ".join(f'"{name(key, at)}": {value}' for at, (key, value) in enumerate(pairs)) + "}"
    if len({key for key, _ in pairs}) < len(pairs):
        assert refused(raw).message.endswith("given twice.")
    else:
        assert parse_json(raw.encode()) == dict(pairs)
