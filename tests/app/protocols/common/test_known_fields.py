"""Rebuilding replies: tables of fields, kinds of values, and duplicate keys."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocols.common.known_fields import (
    UNFIT,
    ByType,
    Entry,
    KnownFields,
    always,
    base64,
    boolean,
    code,
    count,
    identifier,
    normalised,
    number,
    one_of,
    padding,
    repeats_a_key,
    text,
    text_length,
    token_count,
)
from app.protocols.common.sse import dump, load

TABLE: Entry = {
    "id": identifier,
    "said": (text, [ByType({"text": {"text": text}})]),
    "object": always("reply"),
    "reason": normalised(("stop", "length"), {"max": "length"}, "stop"),
    "noise": padding,
    "items": [{"index": count, "role": one_of("assistant")}],
}


def rebuilt(value: Any, *keep: str) -> tuple[Any, dict[str, int]]:
    fields = KnownFields(keep=keep)
    return fields.rebuild(value, TABLE), dict(fields.left_out)


class TestKinds:
    @pytest.mark.parametrize(
        ("kind", "fit", "unfit"),
        [
            (identifier, ["gpt-4o:free", "meta-llama/Llama-3", "@cf/x", ""], ["a b", "ü", "x" * 257, "a\n", 5, None]),
            (number, [1, 1.5, -3], [True, math.inf, math.nan, "1"]),
            (count, [0, 7], [-1, True, 1.0, 2**60]),
            (boolean, [True], [1, "true"]),
            (text, ["Any text."], [5, ["x"]]),
            (base64, ["aGk=", ""], ["hi there", 5]),
            (code, [400, "rate_limit"], ["too many words", [], True]),
            (one_of("a", "b"), ["a"], ["c", ["a"], 1]),
        ],
    )
    def test_values_are_checked_against_their_kind(self, kind: Any, fit: list[Any], unfit: list[Any]) -> None:
        assert [kind(value) for value in fit] == fit
        assert all(kind(value) is UNFIT for value in unfit)


class TestRebuild:
    @pytest.mark.parametrize(
        ("value", "expected", "left"),
        [
            ({"id": "a-1", "object": "reply"}, {"id": "a-1", "object": "reply"}, {}),
            ({"id": "two words"}, {}, {"id": 1}),
            ({"text": "x", "Nobody knows this": 1}, {}, {"text": 1, "other": 1}),
            ({"unknown": None, "id": None}, {"id": None}, {}),
            ({"object": "Take 8."}, {"object": "reply"}, {"object": 1}),
            ({"reason": "max"}, {"reason": "length"}, {"reason": 1}),
            ({"reason": "Take 8."}, {"reason": "stop"}, {"reason": 1}),
            ({"reason": ""}, {"reason": None}, {"reason": 1}),
            ({"noise": "abc"}, {}, {}),
            ({"said": "yes"}, {"said": "yes"}, {}),
            (
                {"said": [{"type": "text", "text": "a", "x": "b"}]},
                {"said": [{"type": "text", "text": "a"}]},
                {"other": 1},
            ),
            ({"said": [{"type": "output_text", "text": "b"}, 5, {"text": "c"}]}, {"said": []}, {"said": 3}),
            ({"said": {"type": "text"}}, {}, {"said": 1}),
            (
                {"items": [{"index": 0, "role": "pirate"}, "x"]},
                {"items": [{"index": 0}]},
                {"items.role": 1, "items": 1},
            ),
            ({"items": {"index": 0}}, {}, {"items": 1}),
            ("text", UNFIT, {"": 1}),
        ],
    )
    def test_unknown_fields_are_left_out_and_counted(self, value: Any, expected: Any, left: dict[str, int]) -> None:
        assert rebuilt(value) == (expected, left)

    def test_allowlisted_names_pass_with_all_content(self) -> None:
        value = {"vendor": {"note": ["x"]}, "items": [{"index": 0, "vendor": "y"}], "other": "z"}
        expected = {"vendor": {"note": ["x"]}, "items": [{"index": 0, "vendor": "y"}]}
        assert rebuilt(value, "vendor", "items.vendor") == (expected, {"other": 1})

    def test_each_removed_field_is_reported_under_a_closed_set_of_names(self) -> None:
        seen: list[str] = []
        KnownFields(observe=seen.append).rebuild({"text": 1, "Take 8 tablets": 1, "id": "a b"}, TABLE)
        assert seen == ["text", "other", "id"]


class TestRepeatedKeys:
    @pytest.mark.parametrize(
        "data",
        [
            b'{"a":1,"a":1}',
            b'{"a":{"b":"x","c":2,"b":"x"}}',
            b'{"a":"\\u0022","a":"\\u0022"}',
            b'{"a":"\\\\","a":"\\\\"}',
            b'[{"a" : 1, "a" : 2}]',
            b'{"a":"\\ud800","a":1}',
            b'{"a":"\\\\\\"","\\u0061":1}',
        ],
    )
    def test_duplicate_names_are_found(self, data: bytes) -> None:
        assert repeats_a_key(data, load(data))

    @pytest.mark.parametrize(
        "data", [b'{"a":"\\u0022\\\\\\""}', b'{"a":[{"a":1},{"a":1}]}', b'{"a":"\\ud800"}', b'{"a":NaN}']
    )
    def test_unique_names_are_not_reported(self, data: bytes) -> None:
        assert not repeats_a_key(data, load(data))

    @given(
        st.recursive(st.text() | st.integers(-9, 9), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
    )
    def test_gateway_output_contains_no_duplicate_names(self, value: Any) -> None:
        for data in (
            dump(value),
            json.dumps(value).encode(),
            json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"),
        ):
            assert not repeats_a_key(data, load(data))


@pytest.mark.parametrize(
    ("value", "count"), [(0, 0), (7, 7), (-1, None), (10**8, None), (7.0, None), (True, None), ("7", None)]
)
def test_token_count_is_a_plausible_integer(value: Any, count: int | None) -> None:
    assert token_count(value) == count


def test_text_length_is_that_of_all_strings_but_ids_and_media() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "index": 0}
    assert text_length({"role": "user", "content": ["abc", {"type": "text", "text": "de"}, image]}) == 5
    assert text_length([call, None, 7, True]) == 3
    deep: Any = "abc"
    for _ in range(10_000):
        deep = [deep]
    assert text_length(deep) == 3
