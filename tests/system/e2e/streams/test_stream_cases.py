"""The content of a stream that must reach the client, whatever the upstream's framing: in pass-through and in every
stream mode."""

import json
from typing import Any

import pytest
from openai import APIError

from tests.support.apis.reply_reader import Reading, read_stream, read_with_sdk
from tests.support.apis.stream_cases import StreamCase, load
from tests.support.apis.stream_modes import GOVERNED, MODES, play
from tests.support.gateways.live_gateway import Gateway

TEXTS = {
    "S01": "Leave requests are approved within five working days.",
    "S02": "Größe: 5 µm, Preis: 12 €. 予約を確認しました。🚆 Gute Fahrt! 👩🏽‍🔧",
    "S03": "上海明天有小雨，气温在十五到十八度之间。",
    "S05": "Check-in opens 24 hours before departure.",
    "S06": "Tariff B costs 31 cents per kWh.",
    "S09": "The warranty lasts two years.",
    "S10": "Meals are included.",
    "S11": "Luggage up to 23 kg.",
    "S12": "Refunds take ten days.",
    "S14": "The gate closes at 18:40.",
    "S15": "The pool opens at seven.",
    "S18": "".join(f"Clause {number} binds both parties. " for number in range(1, 1601)),
    "S22": "Fares are final.",
    "S23": "Fares are final.",
    "S28": "Wind speeds reach 90 km/h.",
    "S29": "Train A leaves at nine. It is direct.",
    "S31": "",
    "S32": "",
    "S33": "",
    "S36": "Permanent staff receive 25 days.",
    "S37": "Zone 2 applies.",
    "S38": "The fee is 12 euros.",
    "S39": "Platform 9.",
    "S41": "Row 3 says 40 bar.",
    "S42": "Open daily.",
    "S43": "Permanent staff receive 25 days. They also get a boat.",
    "S44": "Yes.",
    "S45": "",
    "S61": "Compressed answers work.",
    "S63": "Received.",
    "S65": "Ok.",
    "S66": "It is 42.",
    "S71": "Ok.",
    "S72": "Hi.",
    "S80": "".join(f"Sentence number {number} is here. " for number in range(1, 101)),
    "S84": "Slow but steady.",
    "S86": "The contract ends on 31 May 2027. " * 20,
    "S87": "Stored later.",
    "S91": "Permanent staff receive 60 days of annual leave.",
    "S93": "Use this:\n\n```python\nx = 1.5\n# v2.0 comment. Not a heading\nprint(x",
    "S94": "Permanent staff receive 25 days. Approval takes five working days",
    "S96": "Permanent staff receive 60 days. Model zx-9.1-mini is used.",
    "S97": "长期员工每年有25天年假。经理在五个工作日内审批申请。员工还可以得到一艘船。",
    "S98": "word " * 6000,
}
FINISHES = {"S31": "tool_calls", "S32": "tool_calls", "S33": "tool_calls", "S93": "length"}

TOUCHED = {
    "S10": "a comment must not become an event of its own for an SDK that has seen an id",
    "S11": "frames without data are swallowed",
    "S12": "frames with empty data are swallowed",
    "S14": "[DONE] is added",
    "S15": "[DONE] is completed",
    "S61": "decoded, or sent on as it was encoded",
}
"""The cases whose bytes a pass-through may or must change; it changes no others."""


def is_whole(reading: Reading) -> None:
    """The stream causes no problem in any client."""
    assert reading.terminated
    assert (reading.done, reading.ends_with_done) == (1, True)
    assert reading.empty_frames == 0
    assert "\ufffd" not in reading.raw.decode()
    assert [frame.event for frame in reading.frames if frame.event] == []
    for chunk in reading.chunks:
        assert chunk["choices"] or chunk.get("usage"), chunk
    read_with_sdk(reading.raw)


def is_same_reply(reading: Reading, sent: Reading, mode: str) -> None:
    """Nothing from the upstream is lost, changed, duplicated or reordered; text may be cut differently. Under a policy,
    only known fields arrive, and log-probabilities only of text."""
    indexes = {choice["index"] for chunk in sent.chunks for choice in chunk["choices"]}
    for index in indexes:
        for name in ("content", "reasoning_content", "reasoning", "refusal"):
            assert reading.text(index, name) == sent.text(index, name), name
        assert reading.finishes(index)[-1] == sent.finishes(index)[-1]
        if mode == "pass":
            assert reading.tokens(index) == sent.tokens(index)
        assert reading.tool_calls(index) == sent.tool_calls(index)
        for name in ("audio", "reasoning_items") if mode == "pass" else ():
            assert [d[name] for d in reading.deltas(index) if name in d] == [
                d[name] for d in sent.deltas(index) if name in d
            ]
    assert [usage["usage"] for usage in reading.usages] == [usage["usage"] for usage in sent.usages]
    assert {chunk["id"] for chunk in reading.chunks} == {chunk["id"] for chunk in sent.chunks}
    assert {chunk["model"] for chunk in reading.chunks} == {chunk["model"] for chunk in sent.chunks}


def sent_by(case: StreamCase) -> Reading:
    """The stream of the case as a direct client would read it."""
    return read_stream(case.body)


def read(gateway: Gateway, case: StreamCase, mode: str, **changes: Any) -> Reading:
    """Play a case that must succeed."""
    with play(gateway, case, mode, **changes) as call:
        assert call.status == 200
        assert (call.header("content-type") or "").startswith("text/event-stream")
        return call.reading()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case_id", sorted(TEXTS.keys() - {"S61"}))
def test_whole_reply_reaches_the_client(gateway: Gateway, case_id: str, mode: str) -> None:
    case = load(case_id)
    reading = read(gateway, case, mode, pause_s=0.0005)
    is_whole(reading)
    assert reading.text() == TEXTS[case_id]
    assert reading.finishes()[-1] == FINISHES.get(case_id, "stop")
    is_same_reply(reading, sent_by(case), mode)


@pytest.mark.parametrize("case_id", sorted(TEXTS.keys() - TOUCHED.keys()))
def test_bytes_are_unchanged_without_documents_and_policy(gateway: Gateway, case_id: str) -> None:
    case = load(case_id)
    assert read(gateway, case, "pass", pause_s=0.0005).raw == case.body


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case_id", ["S05", "S06", "S10", "S11", "S12", "S15"])
def test_sse_framing_adds_and_loses_no_event(gateway: Gateway, case_id: str, mode: str) -> None:
    case = load(case_id)
    reading = read(gateway, case, mode)
    sent = list(sent_by(case).payloads) if case_id != "S12" else None
    if mode == "pass" and sent is not None:
        assert reading.payloads == sent
    assert all(frame.data is None or frame.data for frame in reading.frames)


@pytest.mark.parametrize("mode", MODES)
def test_s10_comments_stay_comments(gateway: Gateway, mode: str) -> None:
    """They are never data, and the text between them is complete."""
    reading = read(gateway, load("S10"), mode)
    assert all(
        b"ping" not in (frame.data or b"") and b"PROCESSING" not in (frame.data or b"") for frame in reading.frames
    )
    assert reading.empty_frames == 0


@pytest.mark.parametrize("mode", MODES)
def test_s14_missing_done_is_added_at_once(gateway: Gateway, mode: str) -> None:
    with play(gateway, load("S14"), mode) as call:
        assert call.reading().raw.endswith(b"data: [DONE]\n\n")
    row = gateway.trace(call.request_id).request
    assert (row["status"], row["finish_reason"]) == ("completed", "stop")
    assert row["total_ms"] < 2000


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "until-close"])
def test_s15_unterminated_done_is_completed(gateway: Gateway, mode: str, chunked: bool) -> None:
    assert read(gateway, load("S15"), mode, chunked=chunked).raw.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("mode", MODES)
def test_s16_truncated_reply_ends_visibly(gateway: Gateway, mode: str) -> None:
    """The text so far, then an error and [DONE]; no invented finish, and a row that says incomplete."""
    case = load("S16")
    with play(gateway, case, mode) as call:
        reading = call.reading()
    assert reading.text() == "The premium rises by four percent because the index"
    assert reading.finishes() == []
    assert len(reading.errors) == 1
    assert reading.errors[0]["message"]
    assert (reading.done, reading.ends_with_done, reading.terminated) == (1, True, True)
    with pytest.raises(APIError):
        read_with_sdk(reading.raw)
    assert gateway.trace(call.request_id).request["status"] == "incomplete"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case_id", ["S22", "S23"])
def test_usage_passes_as_sent_and_is_stored(gateway: Gateway, case_id: str, mode: str) -> None:
    """One usage chunk with no choices, after the finish and before [DONE]; the gateway doesn't request any itself."""
    case = load(case_id)
    with play(gateway, case, mode) as call:
        reading = call.reading()
    assert [(chunk["choices"], chunk["usage"]) for chunk in reading.usages] == [
        ([], {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24})
    ]
    assert reading.chunks[-1] == reading.usages[0]
    row = gateway.trace(call.request_id).request
    assert (row["prompt_tokens"], row["completion_tokens"]) == (20, 4)
    assert gateway.upstream.wait_exchange().json.get("stream_options") == case.request.get("stream_options")


@pytest.mark.parametrize("mode", MODES)
def test_s29_choices_stay_separate(gateway: Gateway, mode: str) -> None:
    reading = read(gateway, load("S29"), mode)
    assert (reading.text(0), reading.text(1)) == ("Train A leaves at nine. It is direct.", "Bus 12 leaves at ten.")
    assert (reading.finishes(0), reading.finishes(1)) == (["stop"], ["stop"])
    for index in (0, 1):
        for annotation in reading.annotations(index):
            assert span_of(annotation)[1] <= len(reading.text(index))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case_id", ["S31", "S32", "S33"])
def test_tool_calls_pass_unchanged_and_unjudged(gateway: Gateway, case_id: str, mode: str) -> None:
    case = load(case_id)
    with play(gateway, case, mode) as call:
        reading = call.reading()
    sent = sent_by(case)
    assert reading.tool_calls() == sent.tool_calls()
    assert reading.finishes() == ["tool_calls"]
    assert gateway.judge.claims == []
    if mode != "pass":
        assert reading.grounding["verdict"] == "not_checked"
        assert gateway.trace(call.request_id).request["verdict"] == "not_checked"


@pytest.mark.parametrize("mode", GOVERNED)
def test_s32_parallel_calls_are_not_merged(gateway: Gateway, mode: str) -> None:
    arguments: dict[int, str] = {}
    for piece in read(gateway, load("S32"), mode).tool_calls():
        arguments[piece["index"]] = arguments.get(piece["index"], "") + piece["function"].get("arguments", "")
    assert [json.loads(arguments[index]) for index in (0, 1)] == [{"to": "Basel"}, {"city": "Basel"}]


@pytest.mark.parametrize("mode", GOVERNED)
@pytest.mark.parametrize(
    ("case_id", "name"), [("S36", "reasoning_content"), ("S37", "reasoning"), ("S38", "reasoning_content")]
)
def test_reasoning_is_neither_merged_nor_judged(gateway: Gateway, case_id: str, name: str, mode: str) -> None:
    reading = read(gateway, load(case_id), mode)
    text = reading.text()
    assert reading.text(name=name) == sent_by(load(case_id)).text(name=name)
    assert text == TEXTS[case_id]
    assert [
        claim for claim in gateway.judge.claims if "document says" in claim or "Check" in claim or "Almost" in claim
    ] == []
    assert all(span_of(annotation)[1] <= len(text) for annotation in reading.annotations())


@pytest.mark.parametrize("mode", MODES)
def test_s39_mid_stream_finish_ends_nothing(gateway: Gateway, mode: str) -> None:
    reading = read(gateway, load("S39"), mode)
    last = max(
        number for number, chunk in enumerate(reading.chunks) if any(c.get("finish_reason") for c in chunk["choices"])
    )
    assert reading.where("Platform 9.") <= last


@pytest.mark.parametrize("mode", MODES)
def test_s41_typed_parts_pass_and_their_text_is_judged(gateway: Gateway, mode: str) -> None:
    reading = read(gateway, load("S41"), mode)
    parts = [part for delta in reading.deltas() if isinstance(delta.get("content"), list) for part in delta["content"]]
    others = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Look at row 3."}]},
        {"type": "x_vendor", "value": 1},
    ]
    assert [part for part in parts if part["type"] != "text"] == (others if mode == "pass" else [])
    assert reading.text() == "Row 3 says 40 bar."
    if mode != "pass":
        assert set(gateway.judge.claims) == {"Row 3 says 40 bar."}


@pytest.mark.parametrize("mode", MODES)
def test_s42_unknown_fields_survive_unless_a_policy_applies(gateway: Gateway, mode: str) -> None:
    reading = read(gateway, load("S42"), mode)
    passes = mode == "pass"
    assert {chunk["x_top"] for chunk in reading.chunks if "x_top" in chunk} == ({"keep"} if passes else set())
    of_choices = [choice["x_choice"] for choice in reading.choices() if "x_choice" in choice]
    assert bool(of_choices) == passes
    assert all(value == {"a": 1} for value in of_choices)
    assert {chunk["system_fingerprint"] for chunk in reading.chunks if "system_fingerprint" in chunk} == {"fp_1"}
    assert {chunk["service_tier"] for chunk in reading.chunks if "service_tier" in chunk} == {"flex"}
    items = [item for delta in reading.deltas() for item in delta.get("reasoning_items", ())]
    assert items == ([{"enc": "b3BhcXVl"}, {"enc": "ZW5k"}] if passes else [])


@pytest.mark.parametrize("mode", MODES)
def test_s44_logprobs_stay_with_their_own_chunk(gateway: Gateway, mode: str) -> None:
    """More or fewer entries than tokens in the text are no error. Under a policy, entries that don't spell the text are
    removed."""
    reading = read(gateway, load("S44"), mode)
    assert reading.tokens() == [*(["Hm", "<tool>"] if mode == "pass" else []), "Yes", "."]
    with_text = [choice for choice in reading.choices() if (choice.get("delta") or {}).get("content")]
    tokens = [entry["token"] for choice in with_text for entry in choice["logprobs"]["content"]]
    assert "".join(tokens).endswith("Yes.")


@pytest.mark.parametrize("mode", GOVERNED)
def test_s45_audio_passes_and_is_reported_as_unchecked(gateway: Gateway, mode: str) -> None:
    case = load("S45")
    with play(gateway, case, mode) as call:
        reading = call.reading()
    assert [delta["audio"] for delta in reading.deltas() if "audio" in delta] == [
        {"id": "audio_1", "transcript": ""},
        {"data": "UklGRg=="},
        {"transcript": ""},
        {"expires_at": 1790003600},
    ]
    assert reading.grounding["verdict"] == "not_checked"


@pytest.mark.parametrize("mode", MODES)
def test_s52_mid_stream_error_is_forwarded_and_stored(gateway: Gateway, mode: str) -> None:
    with play(gateway, load("S52"), mode) as call:
        reading = call.reading()
    assert len(reading.errors) == 1
    error = reading.errors[0]
    assert (error if isinstance(error, str) else error["message"]) == "rate limit reached"
    assert (reading.done, reading.ends_with_done) == (1, True)
    assert reading.finishes() == []
    with pytest.raises(APIError):
        read_with_sdk(reading.raw)
    assert gateway.trace(call.request_id).request["status"] == "upstream_error"


@pytest.mark.parametrize("mode", GOVERNED)
def test_s93_open_code_fence_is_not_judged(gateway: Gateway, mode: str) -> None:
    reading = read(gateway, load("S93"), mode)
    assert reading.text() == TEXTS["S93"]
    assert [claim for claim in gateway.judge.claims if "print" in claim or "v2.0" in claim or "1.5" in claim] == []


def span_of(annotation: dict[str, Any]) -> tuple[int, int]:
    inner = annotation.get("url_citation") or annotation
    start, end = inner["start_index"], inner["end_index"]
    assert 0 <= start <= end
    return start, end
