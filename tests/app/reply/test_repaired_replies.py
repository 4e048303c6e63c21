"""Sentences that are left out or corrected: the delivered text and the reported claims."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from judges.llm_types import LlmVerdict
from judges.testing import ScriptedJudge, ScriptedLlm, contradicts, entails
from judges.types import Label
from tests.support.gateways.in_process_gateway import (
    FALSE,
    LINKED,
    TRUE,
    UNKNOWN,
    URL,
    Bench,
    bench,
    chunk,
    finish_of,
    policy,
    said,
    sse,
    summary_of,
    text_of,
    whole,
)

pytestmark = pytest.mark.anyio

STRIP: dict[str, Any] = {"unverifiable_action": "strip", "max_unverifiable_ratio": 1.0, "min_citations": 0}
CORRECT: dict[str, Any] = {"contradiction_action": "correct", "min_citations": 0}
STANDING = "Permanent staff receive [CORRECTED: 25] days of annual leave."


def llm(correction: str | None = TRUE) -> ScriptedLlm:
    opinion = LlmVerdict(label=Label.CONTRADICTED, confidence=0.9, reasoning="25, not 40.", correction=correction)
    return ScriptedLlm({FALSE: opinion})


def says(label: Label, correction: str | None = None) -> LlmVerdict:
    return LlmVerdict(label=label, confidence=0.9, reasoning="So it is.", correction=correction)


def sound() -> ScriptedLlm:
    """An LLM that is the only judge, and corrects with what it finds supported."""
    return ScriptedLlm({FALSE: says(Label.CONTRADICTED, TRUE), TRUE: says(Label.SUPPORTED)})


async def both(text: str, rules: dict[str, Any], **more: Any) -> tuple[Bench, str]:
    """The gateway that streamed ``text``, and what a client received; a whole reply has the same result."""
    streamed = await bench(said(*(text[i : i + 5] for i in range(0, len(text), 5))), policy(**rules), **more)
    plain = await bench(whole(text), policy(**rules), **more)
    shown = text_of(await streamed.stream())
    assert (await plain.unary())["choices"][0]["message"]["content"] == shown
    return streamed, shown


class TestStrip:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            (f"{TRUE} {UNKNOWN} {TRUE}", f"{TRUE} {TRUE}"),
            (f"{TRUE}\n\n{UNKNOWN}\n\n{TRUE}", f"{TRUE}\n\n{TRUE}"),
            (f"{TRUE}\n\n{UNKNOWN} {TRUE}", f"{TRUE}\n\n{TRUE}"),
            (f"- {TRUE}\n- {UNKNOWN}\n- {TRUE}\n", f"- {TRUE}\n- {TRUE}\n"),
            (f"- {TRUE}\n- {UNKNOWN} {TRUE}\n- {TRUE}", f"- {TRUE}\n- {TRUE}\n- {TRUE}"),
            (f"- {UNKNOWN} {TRUE}\n- {UNKNOWN}", f"- {TRUE}"),
            (f"1. {UNKNOWN}\n2. {TRUE}\n3. {UNKNOWN}\n\n{TRUE}", f"2. {TRUE}\n\n{TRUE}"),
            (f"{UNKNOWN}\n\n{TRUE}", TRUE),
            (f"{TRUE} {UNKNOWN}\n", TRUE),
        ],
    )
    async def test_markers_and_breaks_of_removed_text_are_removed(self, text: str, shown: str) -> None:
        _, got = await both(text, STRIP)
        assert got == shown

    async def test_removed_sentences_are_counted_and_reported_without_text(self) -> None:
        at = await bench(said(f"{TRUE}\n\n{UNKNOWN} {TRUE}"), policy(**STRIP))
        summary = summary_of(await at.stream())
        assert summary["stripped_count"] == 1
        assert [(c["claim"], c["verdict"], c.get("delivered", True)) for c in summary["claims"]] == [
            (TRUE, "supported", True),
            (None, "unverifiable", False),
            (TRUE, "supported", True),
        ]
        start = len(TRUE) + 2
        assert summary["claims"][2]["span"] == {"start": start, "end": start + len(TRUE)}

    async def test_removed_sentences_of_all_choices_are_counted(self) -> None:
        body = await (await bench(whole(UNKNOWN, f"{UNKNOWN} {TRUE}"), policy(**STRIP))).unary(n=2)
        assert body["grounding"]["stripped_count"] == 2

    async def test_nothing_is_counted_if_nothing_was_removed(self) -> None:
        body = await (await bench(whole(TRUE), policy(**STRIP))).unary()
        assert not {"stripped_count", "corrected_count", "regenerations"} & set(body["grounding"])


class TestCorrect:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            (f"{TRUE} {FALSE} {TRUE}", f"{TRUE} {STANDING} {TRUE}"),
            (f"{FALSE}\n", f"{STANDING}\n"),
            (f"- {TRUE}\n- {FALSE}\n- {TRUE}", f"- {TRUE}\n- {STANDING}\n- {TRUE}"),
            (f"- {UNKNOWN} {FALSE}", f"- {STANDING}"),
        ],
    )
    async def test_correction_replaces_the_sentence(self, text: str, shown: str) -> None:
        _, got = await both(text, CORRECT | STRIP, llm=llm())
        assert got == shown

    @pytest.mark.parametrize("mode", ["hold", "final"])
    async def test_correction_reports_its_position_and_sources(self, mode: str) -> None:
        at = await bench(said(f"{TRUE} ", FALSE), policy(stream_mode=mode, **CORRECT), llm=llm())
        stream = await at.stream(documents=LINKED)
        summary = summary_of(stream)
        place = {"start": len(TRUE) + 1, "end": len(TRUE) + 1 + len(STANDING)}
        assert finish_of(stream) == ["stop"]
        assert (summary["action"], summary["verdict"], summary["corrected_count"]) == ("warn", "has_contradictions", 1)
        wrong = summary["claims"][1]
        assert (wrong["claim"], wrong["delivered"], wrong["correction"], wrong["span"]) == (None, False, TRUE, place)
        notes = [
            note["url_citation"]
            for frame in stream
            if isinstance(frame, dict)
            for choice in frame["choices"]
            for note in choice["delta"].get("annotations", ())
        ]
        assert [(n["start_index"], n["end_index"], n["url"]) for n in notes] == [
            (0, len(TRUE), URL),
            (place["start"], place["end"], URL),
        ]
        (reason,) = [d for d in summary["decisions"] if d["reason_code"] == "GROUNDING_CONTRADICTION"]
        assert reason["metadata"]["correction"] == TRUE
        assert FALSE not in json.dumps(stream)

    async def test_unsupported_correction_is_discarded(self) -> None:
        at = await bench(said(FALSE), policy(**CORRECT), llm=llm(UNKNOWN))
        stream = await at.stream()
        assert text_of(stream) == FALSE
        assert summary_of(stream)["claims"][0]["correction"] is None

    @pytest.mark.parametrize("mode", ["hold", "final", "live"])
    @pytest.mark.parametrize("action", ["flag", "block", "correct"])
    async def test_unsupported_correction_is_not_in_the_findings(self, action: str, mode: str) -> None:
        unsound = "25 days of annual leave receive permanent staff."
        opinions = {FALSE: says(Label.CONTRADICTED, unsound), TRUE: says(Label.SUPPORTED)}
        at = await bench(
            said(FALSE),
            policy(contradiction_action=action, stream_mode=mode, min_citations=0),
            llm=ScriptedLlm(opinions, default=says(Label.UNVERIFIABLE)),
            scorer=False,
        )
        stream = await at.stream()
        assert unsound not in json.dumps(stream)
        at = await bench(said(FALSE), policy(contradiction_action=action, min_citations=0), scorer=False, llm=sound())
        (claim,) = summary_of(await at.stream())["claims"]
        assert claim["correction"] == TRUE

    @pytest.mark.parametrize("correction", [None, UNKNOWN])
    async def test_sentence_without_a_correction_is_an_ordinary_violation(self, correction: str | None) -> None:
        rules = CORRECT | {"action_on_violation": "block", "abstention_response": "Ask HR."}
        streamed = await bench(said(f"{TRUE} ", FALSE), policy(**rules), llm=llm(correction))
        stream = await streamed.stream()
        assert (text_of(stream), finish_of(stream)) == (f"{TRUE} Ask HR.", ["content_filter"])

    @pytest.mark.parametrize(("action", "finish"), [("warn", "stop"), ("block", "content_filter")])
    async def test_delivered_text_cannot_be_corrected(self, action: str, finish: str) -> None:
        rules = CORRECT | {"stream_mode": "live", "action_on_violation": action}
        stream = await (await bench(said(FALSE), policy(**rules), llm=llm())).stream()
        assert (text_of(stream), finish_of(stream)) == (FALSE, [finish])

    async def test_corrected_claims_do_not_count_against_limits(self) -> None:
        rules = CORRECT | {"action_on_violation": "block", "max_unsupported_claims": 0}
        stream = await (await bench(said(f"{FALSE} ", TRUE), policy(**rules), llm=llm())).stream()
        assert (text_of(stream), finish_of(stream)) == (f"{STANDING} {TRUE}", ["stop"])

    async def test_sentence_stripped_by_another_policy_is_not_corrected(self) -> None:
        policies = [policy(**CORRECT), policy(contradiction_action="block")]
        stream = await (await bench(said(FALSE), *policies, llm=llm())).stream()
        assert finish_of(stream) == ["content_filter"]
        assert "CORRECTED" not in text_of(stream)


ORION, NOVA, OLD = "The Orion lamp is made of brass.", "The Nova lamp is made of gold.", "It is very old."
"""``OLD`` is true of the Nova lamp only."""
AFTER = {ORION: entails(), f"{NOVA} {OLD}": entails(), TRUE: entails()}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{ORION} {NOVA} {OLD}", ORION),
        (f"{ORION}\n\n{NOVA} {OLD}", ORION),
        (f"{ORION} {NOVA} {TRUE}", f"{ORION} {TRUE}"),
        (f"1. {ORION}\n2. {NOVA}\n3. {TRUE}", f"1. {ORION}\n3. {TRUE}"),
    ],
)
async def test_sentence_is_judged_as_it_reads_after_what_was_left_out(text: str, shown: str) -> None:
    _, got = await both(text, STRIP, judge=ScriptedJudge(AFTER))
    assert got == shown


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        (0.2, 0.2, "[CORRECTED: Trainees] receive [CORRECTED: 25] days of annual leave."),
        (0.2, 0.9, "Ask HR."),
        (0.9, 0.2, "Ask HR."),
    ],
)
async def test_every_policy_must_accept_a_correction(first: float, second: float, shown: str) -> None:
    correction = "Trainees receive 25 days of annual leave."
    known = {FALSE: contradicts(), correction: entails(0.5)}
    rules = CORRECT | {"action_on_violation": "block", "min_grounding_score": 0.0, "abstention_response": "Ask HR."}
    policies = [policy(**rules, entailment_threshold=threshold) for threshold in (first, second)]
    documents = [{"id": "hr", "text": f"{TRUE} Trainees ask their supervisor.", "age_days": 1, "relevance_score": 1}]
    at = await bench(said(FALSE), *policies, judge=ScriptedJudge(known), llm=llm(correction))
    stream = await at.stream(documents=documents)
    assert text_of(stream) == shown
    assert (correction in json.dumps(stream)) is (shown != "Ask HR.")


PARTS = st.sampled_from([TRUE, FALSE, UNKNOWN, f"\n- {FALSE}", f"\n- {UNKNOWN}", "Hello!", "# Leave\n", "[1]"])
GAPS = st.sampled_from([" ", "\n", "\n\n"])


@st.composite
def replies(draw: st.DrawFn) -> tuple[str, list[str]]:
    pairs = draw(st.lists(st.tuples(PARTS, GAPS), min_size=1, max_size=6))
    text = "".join(part + gap for part, gap in pairs)
    places = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=8))})
    return text, [text[a:b] for a, b in pairwise(places)]


@given(replies(), st.sampled_from(["hold", "final"]))
@example((f"{TRUE} \n- {UNKNOWN} {UNKNOWN} ", [f"{TRUE} \n- {UNKNOWN} {UNKNOWN} "]), "hold")
@example((f"{TRUE} \n- {UNKNOWN}\n{UNKNOWN} ", [f"{TRUE} \n- {UNKNOWN}\n{UNKNOWN} "]), "final")
@settings(max_examples=150)
async def test_streamed_and_unary_replies_agree_for_any_chunking(reply: tuple[str, list[str]], mode: str) -> None:
    text, pieces = reply
    rules = CORRECT | STRIP | {"stream_mode": mode}
    streamed = await bench(
        sse(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop")), policy(**rules), llm=llm()
    )
    plain = await bench(whole(text), policy(**rules), llm=llm())
    stream, body = await streamed.stream(), await plain.unary()
    shown, told = text_of(stream), summary_of(stream)
    assert shown == body["choices"][0]["message"]["content"]
    assert UNKNOWN not in shown
    assert FALSE not in shown
    assert [claim["span"] for claim in told["claims"]] == [claim["span"] for claim in body["grounding"]["claims"]]
    for claim in told["claims"]:
        if claim.get("delivered", True):
            assert claim["claim"] in shown[claim["span"]["start"] : claim["span"]["end"]]
        elif claim["span"] is not None:
            assert shown[claim["span"]["start"] : claim["span"]["end"]] == STANDING
