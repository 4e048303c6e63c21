"""Plain completion requests: prompts of every kind, and the questions in them."""

import json
from typing import Any

import pytest

from app.errors import InvalidRequestError
from app.protocols.documents import Limits, ParsedRequest
from app.protocols.openai_completions.request import read_text


def read(**fields: Any) -> ParsedRequest:
    return read_text(json.dumps({"model": "m", **fields}).encode(), {}, Limits())


@pytest.mark.parametrize(
    ("prompt", "choices"),
    [
        ("a", 1),
        (None, 1),
        ("", 1),
        (["a"], 1),
        (["a", "b", ""], 3),
        ([1, 2, 3], 1),
        ([[1], [2, 3]], 2),
        (["a", [1]], 2),
    ],
)
def test_each_prompt_has_n_choices(prompt: Any, choices: int) -> None:
    assert read(prompt=prompt).choices == choices
    assert read(prompt=prompt, n=3).choices == 3 * choices


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 5]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": [[1, 1.5]]}, "prompt[0][1]"),
        ({"prompt": [1, 2], "documents": ["d"], "grounding": {"inject": "user"}}, "prompt"),
        ({"prompt": "a", "echo": "yes"}, "echo"),
        ({"prompt": "a", "stream": 1}, "stream"),
        ({"prompt": "a", "documents": [{"text": ""}]}, "documents[0].text"),
        ({"prompt": "a", "grounding": {"inject": "prompt"}}, "grounding.inject"),
    ],
)
def test_bad_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(**fields)
    assert caught.value.param == param


def test_our_fields_are_removed_and_all_others_kept() -> None:
    parsed = read(prompt="a", suffix="b", documents=["d"], grounding={"query": "q"}, stream=True, best_of=2)
    assert parsed.body == {"model": "m", "prompt": "a", "suffix": "b", "stream": True, "best_of": 2}
    assert (parsed.raw, parsed.stream, parsed.query, parsed.model) == (None, True, "q", "m")
    assert [chunk.text for chunk in parsed.chunks] == ["d"]


def test_body_without_our_fields_is_forwarded_unchanged() -> None:
    raw = b'{ "prompt":"Hi", "seed": 123456789012345678901234567890, "x": 1.0 }'
    assert read_text(raw, {}, Limits()).raw == raw
