"""Replies that were written without the splitter in mind."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.judges.sentences.test_splitter import collapsed, split

CASES = json.loads((Path(__file__).parents[1] / "data" / "segmentation_more.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_each_reply_is_split_at_its_sentence_ends(case: dict[str, Any]) -> None:
    for cuts in ((), range(len(case["answer"]))):
        found = collapsed([sentence.text for sentence in split(case["answer"], cuts)])
        assert found == collapsed(case["sentences"])
