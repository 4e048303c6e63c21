"""A reply in JSON: every leaf is a claim with its path, longer strings are text, and the pieces tile the reply."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.claims.extraction import HeuristicClaimExtractor
from judges.claims.harmless import HarmlessText
from judges.claims.json_reply import JsonReply
from judges.claims.known_text import AnyText, KnownText
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Sentence

A = "The museum opens at nine."
B = "Admission is free on Sundays."


def reader(known: KnownText | None = None) -> JsonReply:
    return JsonReply(IncrementalSplitter, HeuristicClaimExtractor(), HarmlessText(known or AnyText()))


def read(*deltas: str, truncated: bool = False, text: JsonReply | None = None) -> list[Sentence]:
    text = text or reader()
    found: list[Sentence] = []
    for delta in deltas:
        found += text.push(delta)
    return [*found, *text.flush(truncated=truncated)]


def said(*deltas: str) -> list[str]:
    """The sentences of longer strings and of prose, as the judge reads them."""
    text = reader()
    return [sentence.plain for sentence in read(*deltas, text=text) if text.spoken(sentence) is not None]


def claims(raw: str, known: KnownText | None = None) -> list[tuple[str, str]]:
    """Each claim, and the part of the reply that its span covers."""

    async def run() -> list[tuple[str, str]]:
        text = reader(known)
        sentences = [*text.push(raw), *text.flush()]
        found = [claim for s in sentences for claim in await text.extract(s, sentences[: s.index])]
        return [(claim.text, raw[claim.span.start : claim.span.end]) for claim in found]

    return asyncio.run(run())


def test_string_values_are_sentences_and_other_values_are_kept_between() -> None:
    pieces = read(json.dumps({"answer": f"{A} {B}", "sure": True}))
    assert [(piece.text, piece.in_code) for piece in pieces] == [
        ('{"answer": "', True),
        (f"{A} ", False),
        (B, False),
        ('", "sure": true', False),
        ("}", True),
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"months": 36, "battery_covered": True}, ["months: 36", "battery covered: true"]),
        ({"battery": {"isCovered": True}}, ["battery is covered: true"]),
        ({"status": "in stock now"}, ["status: in stock now"]),
        ({"n": -1.5e3, "f": [True, False, None]}, ["n: -1500.0", "f: true", "f: false", "f: null"]),
        ({"plans": [{"name": "Pro", "price": 20}]}, ["plans name: Pro", "plans price: 20"]),
        ({"APIKeys": ""}, ["API keys: "]),
        ({}, []),
        ([], []),
        ("short", ["short"]),
        (7, ["7"]),
        ({"开放": "九点开门"}, ["开放: 九点开门"]),
        ({"❌ battery": "covered", "a≠b": 1}, ["❌ battery: covered", "a≠b: 1"]),
        ({"battery": {"≠": "covered"}}, ["battery ≠: covered"]),
        ({"-5 °C": True, "co-pay": 7, "v1.5": "x"}, ["-5 °C: true", "co pay: 7", "v 1.5: x"]),
        ({"lamp_runs": []}, ["lamp runs: []"]),
        ({"30 days": {}}, ["30 days: {}"]),
        ({"exceptions": {"lamps": []}}, ["exceptions lamps: []"]),
        ({"sources": [], "details": {"items": {}}}, []),
    ],
)
def test_every_leaf_is_a_claim_with_its_path(value: Any, told: list[str]) -> None:
    assert [text for text, _ in claims(json.dumps(value, ensure_ascii=False))] == told


def test_key_with_a_statement_is_a_claim_and_a_label_is_not() -> None:
    known = KnownText(documents=[A])
    assert claims(json.dumps({"summary": A}), known) == [(A, A)]
    assert [text for text, _ in claims(json.dumps({"limit_is_9000": A}), known)] == ["limit is 9000", A]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("museum", "museum"),
        ("not the museum", "not the museum"),
        ("exceptions", "exceptions"),
        ("❌ answer", "❌ answer"),
        ("≠", "≠"),
        ("answer", None),
        ("finalAnswer", None),
        ("résumé", None),
    ],
)
def test_text_is_judged_with_its_key_unless_the_key_says_nothing(key: str, path: str | None) -> None:
    known = KnownText(documents=[A, "not the"])
    told = [A, B, "Thanks for asking about this museum!"]
    read = [text for text, _ in claims(json.dumps({key: " ".join(told)}), known)]
    assert read in ([path, *told[:2]], [text if path is None else f"{path}: {text}" for text in told[: len(read)]])
    assert path is None or len(read) == len(told)


def test_leaf_has_the_first_field_of_its_object_as_context() -> None:
    async def run() -> list[str]:
        text = reader()
        sentences = [*text.push('[{"name": "Pro", "price": 20}, {"name": "Basic", "price": 10}]'), *text.flush()]
        return [claim.context for s in sentences for claim in await text.extract(s, sentences[: s.index])]

    assert asyncio.run(run()) == ["", "name: Pro", "", "name: Basic"]


@pytest.mark.parametrize(
    "value",
    [
        {"a": A},
        {"a": {"b": [[{"c": A}]]}},
        [1, {"x": "short"}, A],
        A,
    ],
)
def test_value_is_found_at_any_position(value: Any) -> None:
    assert said(json.dumps(value)) == [A]


def test_long_value_without_spaces_is_text() -> None:
    sentence = "博物馆每天早上九点开门，周日免费。"
    assert said(json.dumps({"a": sentence}, ensure_ascii=False)) == [sentence]
    assert said(json.dumps({"a": sentence})) == [sentence]


def test_claims_are_unescaped_with_spans_in_the_source() -> None:
    plain, escaped = f'{{"a": "{A}"}}', r'{"a": "The caf\u00e9 \"Luna\" opens at nine."}'
    assert claims(plain) == [(A, A)]
    assert claims(escaped) == [('The café "Luna" opens at nine.', r"The caf\u00e9 \"Luna\" opens at nine.")]


def test_pronoun_refers_to_earlier_text_of_the_reply() -> None:
    async def run() -> str:
        text = reader()
        sentences = [*text.push(json.dumps([A, "It also closes at noon today."])), *text.flush()]
        last = [s for s in sentences if not s.in_code][-1]
        (claim,) = await text.extract(last, sentences[: last.index])
        return claim.context

    assert asyncio.run(run()) == A


def test_fences_around_json_are_structure() -> None:
    pieces = read(f'```json\n{{"a": "{A}"}}\n```')
    assert [(piece.text, piece.in_code) for piece in pieces] == [
        ('```json\n{"a": "', True),
        (A, False),
        ('"}\n```', True),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        f"Sure! {A}",
        f'{{"x": 1}} {A}',
        f'```json\n{{"x": 1}}\n```\n{A}',
        f"{{answer: {A}",
        f"`{A}",
        f"}} {A}",
        f"nulls. {A}",
    ],
)
def test_invalid_json_is_judged_as_prose(raw: str) -> None:
    assert A in " ".join(said(raw))
    assert "".join(sentence.text for sentence in read(raw)) == raw


def test_truncated_value_ends_in_a_fragment() -> None:
    last = read('{"a": "The museum opens at nine. It closes at', truncated=True)[-1]
    assert (last.plain, last.complete) == ("It closes at", False)


def test_pause_ends_the_received_value() -> None:
    text = reader()
    first = [*text.push(f'{{"a": "{A}'), *text.pause()]
    rest = [*text.push(f' {B}"}}'), *text.flush()]
    assert [s.plain for s in (*first, *rest) if not s.in_code] == [A, B]
    assert [s.index for s in (*first, *rest)] == list(range(len(first) + len(rest)))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.text(max_size=30)
    | st.sampled_from(
        [A, f"{A} {B}", f"- {A}\n- {B}", 'He said "no" to all of us.', "Grüße aus Köln an alle hier! 🚆"]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 2]), st.lists(st.integers(0, 400), max_size=8))
def test_pieces_tile_the_reply_for_any_chunking(value: Any, ascii: bool, indent: int | None, at: list[int]) -> None:
    raw = json.dumps(value, ensure_ascii=ascii, indent=indent)
    places = sorted({0, len(raw), *(place for place in at if place < len(raw))})
    whole, cut = read(raw), read(*(raw[a:b] for a, b in pairwise(places)))
    assert whole == cut
    assert "".join(piece.text for piece in whole) == raw
    assert all(raw[piece.span.start : piece.span.end] == piece.text for piece in whole)
    assert [piece.index for piece in whole] == list(range(len(whole)))


@given(st.text(alphabet='{}[]",:`\\nu1e9 -.atf\n', max_size=60), st.integers(1, 7))
def test_no_text_of_an_invalid_json_reply_is_lost(raw: str, cut: int) -> None:
    pieces = read(*(raw[start : start + cut] for start in range(0, len(raw), cut)))
    assert "".join(piece.text for piece in pieces) == raw
    assert pieces == read(raw)


def test_text_of_markers_alone_is_judged_with_its_key() -> None:
    markers = "[8] [9] [1] [2] [3] [4] [5]"
    assert claims(json.dumps({"children": markers}))[0][0] == f"children: {markers}"
    assert [claim for claim, _ in claims(json.dumps({"answer": f"{A} {markers}"}))] == [A]
