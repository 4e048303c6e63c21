"""The control: ordinary, grounded answers have nothing unjudged, and text that states nothing in them is no claim.

Their author didn't know the closed list. ``harmless`` lists the text of each that states nothing; the judge reads the
rest. ``unjudged`` lists kinds: only code that isn't in a document is allowed there.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judges.checker import GroundingChecker
from judges.label_thresholds import Thresholds
from judges.testing import ScriptedJudge, entails
from judges.types import Chunk, Part, Standing
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents

pytestmark = pytest.mark.anyio

ANSWERS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "ordinary_answers.jsonl").read_text(encoding="utf-8").splitlines()
]


async def read(row: dict[str, Any]) -> Sequence[Part]:
    """The parts of an answer, read as in the gateway, from a judge that supports everything."""
    given = [Chunk(id=one["id"], text=one["text"], source=one["id"]) for one in row["documents"]]
    names = DocumentNames(given)
    checker = GroundingChecker(ScriptedJudge(default=entails()))
    reply = checker.reply(
        await checker.prepare(given),
        thresholds=Thresholds(),
        question=row["question"],
        message=row["question"],
        conversation=row["question"],
        resolves=lambda bracket: names_only_documents(bracket, names),
    )
    sentences = [*reply.push(row["answer"]), *reply.flush()]
    return [part for sentence in sentences for part in (await reply.check(sentence)).parts]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{place}-{row['form']}") for place, row in enumerate(ANSWERS)])
async def test_ordinary_answer_is_judged_or_harmless(row: dict[str, Any]) -> None:
    answer, parts = row["answer"], await read(row)
    assert "".join(answer[part.span.start : part.span.end] for part in parts) == answer
    assert [part.kind for part in parts if part.standing is Standing.UNJUDGED] == row["unjudged"]
    harmless = (answer[part.span.start : part.span.end] for part in parts if part.standing is Standing.HARMLESS)
    assert [text.strip() for text in harmless if any(map(str.isalnum, text))] == row["harmless"]


def test_control_set_has_300_answers_and_only_code_without_documents_is_unjudged() -> None:
    assert len(ANSWERS) == 300
    assert {kind for row in ANSWERS for kind in row["unjudged"]} == {"code"}
