"""The stream cases with documents: what is withheld, what is only marked, and what the event log contains."""

import pytest

from judges.types import Label
from tests.support.apis.reply_reader import read_with_sdk
from tests.support.apis.stream_cases import load
from tests.support.apis.stream_modes import OBSERVE, WITHHOLD, body_of, play, reply_of
from tests.support.gateways.live_gateway import Gateway
from tests.system.e2e.streams.test_stream_cases import TEXTS, is_whole, span_of


@pytest.mark.parametrize("case_id", ["S01", "S36", "S94"])
def test_supported_answer_is_annotated_and_unchanged(gateway: Gateway, case_id: str) -> None:
    case = load(case_id)
    gateway.upstream.script(reply_of(case))
    body = body_of(gateway, case, "hold", WITHHOLD)
    # Only a document with an address can be cited in a chat message.
    body["documents"] = [{**each, "url": f"https://docs.example/{each['id']}"} for each in body["documents"]]
    with gateway.call(body) as call:
        reading = call.reading()
    is_whole(reading)
    assert reading.text() == TEXTS[case_id]
    assert (reading.grounding["verdict"], reading.grounding["action"]) == ("supported", "allow")
    assert reading.annotations()
    for annotation in reading.annotations():
        start, end = span_of(annotation)
        assert reading.text()[start:end].strip()
    trace = gateway.trace(call.request_id)
    assert trace.request["status"] == "completed"
    assert {claim["label"] for claim in trace.claims} == {"supported"}


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
def test_s94_last_sentence_without_a_full_stop_is_checked(gateway: Gateway, mode: str) -> None:
    with play(gateway, load("S94"), mode) as call:
        reading = call.reading()
    assert gateway.judge.claims[-1] == "Approval takes five working days"
    assert [claim["verdict"] for claim in reading.grounding["claims"]] == ["supported", "supported"]
    span = reading.grounding["claims"][1]["span"]
    assert reading.text()[span["start"] : span["end"]].strip() == "Approval takes five working days"
    claims = gateway.trace(call.request_id).claims
    assert [claim["label"] for claim in claims] == ["supported", "supported"]


def test_s43_logprobs_of_withheld_text_are_withheld(gateway: Gateway) -> None:
    gateway.judge.labels = {"boat": Label.UNVERIFIABLE}
    with play(gateway, load("S43"), "hold", WITHHOLD) as call:
        reading = call.reading()
    is_whole(reading)
    assert reading.text().rstrip() == "Permanent staff receive 25 days."
    assert "".join(reading.tokens()) == reading.text()
    assert b"boat" not in shown_as_text(reading.raw)
    assert reading.finishes() == ["stop"]


@pytest.mark.parametrize("mode", ["pass", "hold", "live", "final"])
def test_s43_every_entry_arrives_if_nothing_is_withheld(gateway: Gateway, mode: str) -> None:
    with play(gateway, load("S43"), mode) as call:
        reading = call.reading()
    assert reading.tokens() == [
        "Permanent", " staff", " receive", " 25", " days", ".", " They", " also", " get", " a", " boat", "."
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["hold", "final"])
def test_s91_fully_withheld_reply_is_explained(gateway: Gateway, mode: str) -> None:
    """A role, a readable replacement, content_filter and [DONE]; nothing of the withheld sentence."""
    gateway.judge.labels = {"60 days": Label.CONTRADICTED}
    with play(gateway, load("S91"), mode, WITHHOLD) as call:
        reading = call.reading()
    is_whole(reading)
    assert reading.deltas()[0].get("role") == "assistant"
    assert len(reading.text()) > 20
    assert "60" not in reading.text()
    assert "Permanent staff receive" not in reading.text()
    assert reading.finishes() == ["content_filter"]
    assert reading.grounding["action"] == "block"
    assert [chunk.choices[0].finish_reason for chunk in read_with_sdk(reading.raw) if chunk.choices][
        -1
    ] == "content_filter"
    trace = gateway.trace(call.request_id)
    assert (trace.request["status"], trace.request["action"]) == ("blocked", "block")
    assert trace.request["finish_reason"] == "content_filter"
    assert [claim["delivered"] for claim in trace.claims] == [False]


@pytest.mark.parametrize("unverifiable", ["strip"])
def test_s91_reply_stripped_of_its_only_sentence_is_explained(gateway: Gateway, unverifiable: str) -> None:
    gateway.judge.labels = {"annual leave": Label.UNVERIFIABLE}
    case = load("S91")
    text = case.body.replace(b"60 days of annual leave", b"a boat with their annual leave")
    with play(gateway, case, "hold", {**WITHHOLD, "unverifiable_action": unverifiable}, chunks=[text]) as call:
        reading = call.reading()
    is_whole(reading)
    assert "boat" not in reading.text()
    assert len(reading.text()) > 20
    assert reading.finishes()[0] in {"stop", "content_filter"}


@pytest.mark.parametrize("mode", ["hold", "live", "final"])
def test_s96_observing_changes_no_character(gateway: Gateway, mode: str) -> None:
    gateway.judge.labels = {"60 days": Label.CONTRADICTED, "zx-9.1-mini": Label.UNVERIFIABLE}
    with play(gateway, load("S96"), mode, OBSERVE) as call:
        reading = call.reading()
    is_whole(reading)
    assert reading.text() == "Permanent staff receive 60 days. Model zx-9.1-mini is used."
    assert reading.grounding["verdict"] == "has_contradictions"
    assert reading.grounding["action"] != "block"
    assert [claim["verdict"] for claim in reading.grounding["claims"]] == ["contradicted", "unverifiable"]
    assert gateway.trace(call.request_id).request["status"] == "completed"


def test_s97_chinese_sentences_are_sent_one_by_one(gateway: Gateway) -> None:
    """Each at its own full stop, before the upstream has sent the next; the invented sentence never."""
    gateway.judge.labels = {"船": Label.UNVERIFIABLE}
    with play(gateway, load("S97"), "hold", WITHHOLD, gated=True) as call:
        exchange = gateway.upstream.wait_exchange()
        exchange.release(3)  # the role, the first sentence, the beginning of the second
        assert "长期员工每年有25天年假。".encode() in call.read_until("年假。".encode())
        assert exchange.written <= 3
        exchange.release(3)
        reading = call.reading()
    is_whole(reading)
    assert reading.text() == "长期员工每年有25天年假。经理在五个工作日内审批申请。"
    assert reading.finishes() == ["stop"]
    claims = gateway.trace(call.request_id).claims
    assert [(claim["label"], claim["delivered"]) for claim in claims] == [
        ("supported", True),
        ("supported", True),
        ("unverifiable", False),
    ]


def shown_as_text(raw: bytes) -> bytes:
    """The stream without our own ``grounding`` objects, which may quote a withheld claim."""
    kept = []
    for line in raw.split(b"\n"):
        if b'"grounding"' in line:
            head, _, _ = line.partition(b'"grounding"')
            kept.append(head)
        else:
            kept.append(line)
    return b"\n".join(kept)
