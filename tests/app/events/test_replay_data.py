"""The replay data survives a round trip through the database, and contains no text that may not be stored."""

from dataclasses import fields, replace
from typing import Any

import orjson
import pytest

from app.events import replay_data
from app.events.replay_data import LoggedRows, claim_extra, read_log, request_extra
from app.settings import StoreText
from judges.label_thresholds import Thresholds
from judges.llm_types import LlmScore, ScoreRequest
from judges.types import (
    Chunk,
    Claim,
    ClaimVerdict,
    Consistency,
    Contradiction,
    Label,
    LocatedStatement,
    QuestionPart,
    Source,
    Span,
    UnsupportedSpan,
)
from policies.base import JudgeOptions
from policies.reason_texts import ELLIPSIS
from policies.replay import ChoiceLog, RequestLog
from policies.types import Citation, PolicyInputs, UnjudgedText

SECRET = "The patient is called Dorothea."
CHUNKS = [Chunk(id=f"d{index}", text="", source="a.pdf", relevance_score=0.5, age_days=2.0) for index in range(3)]
SOURCE = Source(document_id="d0", document_index=0, source="a.pdf", content=SECRET, score=0.9, span=Span(3, 9))
VERDICT = ClaimVerdict(
    claim=Claim(text=SECRET, span=Span(0, 5), sentence_index=2, context=SECRET),
    label=Label.SUPPORTED,
    entailed=0.9,
    contradicted=0.25,
    best_source=SOURCE,
    contradicting_source=replace(SOURCE, document_index=1),
    explanation=SECRET,
    correction=SECRET,
    corrected=(
        ClaimVerdict(
            claim=Claim(text=ELLIPSIS, span=Span(0, 7), sentence_index=2),
            label=Label.SUPPORTED,
            entailed=0.8,
            contradicted=0.125,
            escalated=True,
        ),
    ),
    escalated=True,
    support={0: 0.9, 1: 0.1},
)
COMPARED = Consistency(
    contradictions=[
        Contradiction(
            first=LocatedStatement(text=SECRET, span=Span(0, 3)),
            second=LocatedStatement(text=SECRET, span=Span(4, 9)),
            score=0.8,
        )
    ],
    skipped=2,
)
FIELDS: dict[str, Any] = {
    "injectable": True,
    "final": False,
    "citations": [
        Citation(marker="[1]", document_index=0, sentence_index=2, span=Span(1, 4)),
        Citation(marker="[7]"),
        Citation(marker=SECRET),
        Citation(marker=SECRET, reported=True),
        Citation(marker="a.pdf", document_index=1, reported=True),
    ],
    "reported_scores": [0.25, 1.0],
    "reported_unsupported": [SECRET],
    "output_confidence": 0.75,
    "trust_score": 0.5,
    "unjudged": [UnjudgedText(kind="code", text=SECRET, span=Span(3, 34), sentence_index=1)],
    "coverage": 0.75,
    "documents_may_follow": True,
    "judged": False,
    "judge_unavailable": True,
    "tool_calls_only": True,
    "strippable": False,
    "indivisible": True,
    "withheld": frozenset({3}),
    "dropped": frozenset({1}),
    "cited_support": {(Span(0, 5), 2): 0.125},
    "consistency": COMPARED,
    "conflicts": COMPARED,
    "llm_scores": [LlmScore(request=ScoreRequest(model="m"), score=0.5, reasoning=SECRET)],
    "answer_relevance": 0.25,
    "question_parts": [QuestionPart(text=SECRET, in_documents=True, in_reply=False)],
    "of_run": True,
}
LOG = RequestLog(
    chunks=CHUNKS,
    late=1,
    dropped=frozenset({1}),
    injectable=True,
    stream=True,
    blocked=True,
    tools=False,
    conflicts=COMPARED,
    judging=JudgeOptions(thresholds=Thresholds(entailment=0.6), max_sources=4, max_claims=9),
    choices=[
        ChoiceLog(
            inputs=PolicyInputs(claims=[VERDICT], **FIELDS), positions=(0, 2), ready=False, complete=False, skipped=3
        ),
        ChoiceLog(inputs=PolicyInputs(), positions=(0, 2)),
    ],
)


def stored(how: StoreText) -> LoggedRows:
    return LoggedRows(
        extra=orjson.dumps(request_extra(LOG, how)).decode(),
        stream=True,
        blocked=True,
        claims=[(0, orjson.dumps(claim_extra(VERDICT, how)).decode()), (0, "{}")],
        documents=[(chunk, index != 1) for index, chunk in enumerate(CHUNKS)],
    )


def test_test_data_covers_every_input_field() -> None:
    """A new field that isn't logged would silently make simulations wrong."""
    worked_out_again = {"unfit", "of_sentence"}
    assert set(FIELDS) | {"chunks", "claims"} | worked_out_again == {field.name for field in fields(PolicyInputs)}


def test_everything_not_stored_elsewhere_is_restored_with_texts() -> None:
    log = read_log(stored(StoreText.FULL))
    assert log is not None
    assert replace(log, choices=()) == replace(LOG, choices=())
    first, second = log.choices
    plain = replace(SOURCE, content="")
    verdict = replace(
        VERDICT,
        claim=replace(VERDICT.claim, context=""),
        best_source=plain,
        contradicting_source=replace(plain, document_index=1),
    )
    assert list(first.inputs.claims) == [verdict]
    assert (first.positions, first.ready, first.complete, first.skipped) == ((0, 2), False, False, 3)
    for name, value in FIELDS.items():
        kept = getattr(first.inputs, name)
        assert (list(kept) if isinstance(value, list) else kept) == value, name
    assert second.inputs == PolicyInputs()


@pytest.mark.parametrize("how", [StoreText.HASH, StoreText.NONE])
def test_no_text_is_kept_without_texts(how: StoreText) -> None:
    rows = stored(how)
    assert "Dorothea" not in rows.extra + "".join(extra for _, extra in rows.claims)
    log = read_log(rows)
    assert log is not None
    inputs = log.choices[0].inputs
    assert [citation.marker for citation in inputs.citations][:3] == ["[1]", "[7]", "…"]
    assert inputs.citations[3].marker not in ("", "…")
    assert list(inputs.reported_unsupported) == ["…"]
    assert [(text.kind, text.excerpt, text.characters) for text in inputs.unjudged] == [("code", "…", 31)]
    (claim,) = inputs.claims
    assert (claim.claim.text, claim.entailed, dict(claim.support)) == ("…", 0.9, {0: 0.9, 1: 0.1})


@pytest.mark.parametrize("how", [StoreText.HASH, StoreText.NONE])
def test_only_fields_without_text_are_kept_without_texts(how: StoreText) -> None:
    part = Claim(text=SECRET, span=Span(0, 5), sentence_index=2, context=SECRET, question=SECRET)
    claim = replace(part, parts=(part,), question_known=False, correctable=False, stands_alone=True)
    verdict = replace(
        VERDICT,
        claim=claim,
        corrected=(replace(VERDICT, claim=claim, corrected=(VERDICT,)),),
        reason="skipped",
        judge_score=0.5,
        spans=(UnsupportedSpan(0, 5, 0.5),),
    )
    defaults = {
        (kind, each.name)
        for kind, made in ((Claim, claim), (ClaimVerdict, verdict))
        for each in fields(kind)
        if getattr(made, each.name) == each.default
    }
    assert not defaults, "each field needs a value, so that a new one is noticed"
    stored = claim_extra(verdict, how)["verdict"]
    assert "Dorothea" not in orjson.dumps(stored).decode()
    assert {each.name for each in fields(ClaimVerdict)} - set(stored) == {"explanation"}
    assert {each.name for each in fields(Claim)} - set(stored["claim"]) == {"context", "question", "parts"}


def test_rows_of_an_earlier_version_are_unreadable() -> None:
    assert read_log(LoggedRows(extra="{}", stream=False, blocked=False)) is None


def test_every_excluded_field_exists() -> None:
    """A renamed field would be stored, whatever text of users it contains."""
    for kind, names in replay_data._ELSEWHERE.items():
        assert names <= {each.name for each in fields(kind)}, kind


@pytest.mark.parametrize("how", list(StoreText))
def test_question_of_the_user_is_never_stored(how: StoreText) -> None:
    claim = Claim(text="It is 7.", span=Span(0, 8), sentence_index=0, context=SECRET, question=SECRET)
    stored = claim_extra(ClaimVerdict(claim=claim, label=Label.SUPPORTED, entailed=0.9, contradicted=0.1), how)
    assert SECRET not in str(stored)
