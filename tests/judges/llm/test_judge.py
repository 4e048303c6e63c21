"""The LLM judge against a scripted server: its prompts, the parsing of answers, and failures."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from judges.llm import Endpoint, LlmJudge, LlmScoringMode, PriceTable
from judges.llm.llm_client import MAX_FAILURES
from judges.llm.response_parsing import MAX_ANSWER_CHARS
from judges.llm_types import LlmCall, ScoreRequest
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError
from judges.types import Chunk, Claim, Evidence, Label, Span
from tests.support.gateways.llm_server import Answer, JudgeServer, fenced, obedient, serve

pytestmark = pytest.mark.anyio

TRUE = "Staff receive 25 days of leave."
FALSE = "Staff receive 40 days of leave."
OTHER = "Bicycles may be parked behind the canteen."


class Keys:
    def __init__(self, **keys: str) -> None:
        self._keys = keys

    def key(self, name: str) -> str | None:
        return self._keys.get(name)


def passage(text: str, chunk: int = 0) -> Evidence:
    return Evidence(chunk_index=chunk, document_id=f"d{chunk}", source=None, text=text, span=Span(0, len(text)))


def judge(server: JudgeServer, **options: Any) -> LlmJudge:
    options.setdefault("keys", Keys(openai="sk-secret"))
    options.setdefault("model", "gpt-4o-mini")
    endpoint = Endpoint(name="openai", base_url=server.url)
    local = Endpoint(name="local", base_url=server.url, needs_key=False, headers={"x-team": "a"})
    made = LlmJudge(endpoints={"openai": endpoint, "local": local}, **options)
    server.clients.append(made)
    return made


def says(**fields: Any) -> Callable[[dict[str, Any]], str]:
    return lambda body: json.dumps(fields)


async def ask(made: LlmJudge, claim: str = TRUE, *passages: Evidence, context: str = "") -> tuple[Any, list[LlmCall]]:
    calls: list[LlmCall] = []
    return await made.judge(claim, context, passages or [passage(TRUE)], calls.append), calls


async def test_claim_gets_verdict_confidence_reasoning_and_sources() -> None:
    answer = says(verdict="supported", confidence=0.9, reasoning="It is there.", sources=[2], correction=None)
    async with serve(answer) as server:
        verdict, (call,) = await ask(judge(server), TRUE, passage(OTHER), passage(TRUE, 1))
    assert (verdict.label, verdict.confidence, verdict.reasoning) == (Label.SUPPORTED, 0.9, "It is there.")
    assert (verdict.passages, verdict.correction) == ((1,), None)
    assert (call.mode, call.model, call.outcome) == ("claim", "gpt-4o-mini", "ok")
    assert (call.prompt_tokens, call.completion_tokens) == (400, 20)
    assert call.cost_usd == pytest.approx((400 * 0.15 + 20 * 0.60) / 1e6)
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    assert server.paths == ["/v1/chat/completions"]


async def test_request_asks_for_json_schema_at_temperature_zero() -> None:
    async with serve(obedient) as server:
        await ask(judge(server))
    body = server.requests[0]
    assert body["response_format"]["json_schema"]["strict"] is True
    assert body["temperature"] == 0
    assert body["model"] == "gpt-4o-mini"


async def test_reasoning_model_gets_more_tokens_and_no_temperature() -> None:
    async with serve(obedient) as server:
        await ask(judge(server, model="o4-mini"))
    assert "temperature" not in server.requests[0]
    assert server.requests[0]["max_completion_tokens"] > 5_000


async def test_service_rejecting_the_schema_is_asked_without_it() -> None:
    def refuses(body: dict[str, Any]) -> Answer:
        if "response_format" in body:
            return 400, {"error": {"message": "response_format is not supported"}}
        return '```json\n{"verdict": "supported", "confidence": 0.8}\n```'

    async with serve(refuses) as server:
        made = judge(server)
        (first, _), (second, _) = await ask(made), await ask(made)
    assert first.label is second.label is Label.SUPPORTED
    assert ["response_format" in body for body in server.requests] == [True, False, False]
    assert ["temperature" in body for body in server.requests] == [True, False, False]


async def test_every_request_limits_the_length_of_the_answer() -> None:
    """Mistral knows only ``max_tokens``; a small context window has no room for thoughts."""

    def old(body: dict[str, Any]) -> Answer:
        if "max_completion_tokens" in body:
            return 422, {"error": {"message": "extra fields are not permitted"}}
        return '{"verdict": "supported", "confidence": 0.8}'

    async with serve(old) as server:
        made = judge(server)
        for _ in range(2):
            verdict, _ = await ask(made)
            assert verdict.label is Label.SUPPORTED
    limits = [(body.get("max_completion_tokens"), body.get("max_tokens")) for body in server.requests]
    assert limits == [(1_000, None), (9_000, None), (None, 1_000), (None, 1_000)]


async def test_service_that_rejects_every_request_is_an_error() -> None:
    async with serve(lambda body: (400, {"error": {"message": "no"}})) as server:
        with pytest.raises(JudgeError, match="openai returned HTTP 400"):
            await ask(judge(server))
    assert len(server.requests) == 3


async def test_named_endpoint_can_work_without_a_key() -> None:
    async with serve(obedient) as server:
        verdict, _ = await ask(judge(server, model="local/qwen3", keys=Keys()))
    assert verdict.label is Label.SUPPORTED
    assert server.requests[0]["model"] == "qwen3"
    assert server.headers[0]["x-team"] == "a"


async def test_unreadable_answer_is_neutral_and_counted() -> None:
    async with serve(lambda body: "I would rather not say.") as server:
        made = judge(server)
        verdict, (call,) = await ask(made)
        score = await made.score(ScoreRequest(model="gpt-4o-mini"), TRUE, [Chunk(id="a", text=TRUE)])
    assert (verdict.label, verdict.confidence, verdict.readable) == (Label.UNVERIFIABLE, 0.5, False)
    assert call.outcome == "unreadable"
    assert (score.score, score.skipped) == (0.5, None)


@pytest.mark.parametrize(
    ("answer", "error", "outcome"),
    [
        ((401, {"error": {"message": "bad key sk-secret"}}), JudgeError, "error"),
        ((429, {"error": {"message": "slow down"}}), JudgeOverloadedError, "overloaded"),
        ((503, {"error": {"message": "away"}}), JudgeError, "error"),
        ((200, {"choices": []}), JudgeError, "error"),
        ((200, {"unexpected": True}), JudgeError, "error"),
        (None, JudgeUnavailableError, "error"),
    ],
)
async def test_error_names_no_key_and_records_the_call(answer: Answer, error: type[Exception], outcome: str) -> None:
    calls: list[LlmCall] = []
    async with serve(lambda body: answer) as server:
        with pytest.raises(error) as caught:
            await judge(server).judge(TRUE, "", [passage(TRUE)], calls.append)
    assert "sk-secret" not in str(caught.value)
    assert [call.outcome for call in calls] == [outcome]


async def test_slow_service_times_out() -> None:
    calls: list[LlmCall] = []
    never = asyncio.Event()

    async def hangs(body: dict[str, Any]) -> Answer:
        await never.wait()
        return None

    async with serve(hangs) as server:
        with pytest.raises(TimeoutError):
            await judge(server, timeout_s=0.5).judge(TRUE, "", [passage(TRUE)], calls.append)
        never.set()
    assert [call.outcome for call in calls] == ["timeout"]


async def test_judge_without_a_key_is_unavailable_with_a_reason() -> None:
    async with serve(obedient) as server:
        made = judge(server, keys=Keys())
        assert not made.ready
        assert made.fault == made.fault_of("gpt-4o") == "no API key is configured for openai"
        assert made.fault_of("mystery-7b") == "cannot determine the provider of the model 'mystery-7b'"
        score = await made.score(ScoreRequest(model="gpt-4o-mini"), TRUE, [Chunk(id="a", text=TRUE)])
        unknown = await made.score(ScoreRequest(model="mystery-7b"), TRUE, [Chunk(id="a", text=TRUE)])
    assert (score.score, score.skipped, score.calls) == (None, "no_key", ())
    assert (unknown.score, unknown.skipped) == (None, "unknown_model")
    assert server.requests == []


async def test_judge_without_a_model_scores_but_judges_no_claims() -> None:
    async with serve(obedient) as server:
        made = judge(server, model=None)
        assert (made.ready, made.name) == (False, "none")
        score = await made.score(ScoreRequest(model="gpt-4o-mini"), TRUE, [Chunk(id="a", text=TRUE)])
    assert score.score == 1.0


@pytest.mark.parametrize("content", [None, "", ["supported"], 7, {"verdict": "supported"}])
async def test_answer_without_text_is_neutral(content: Any) -> None:
    document = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    async with serve(lambda body: (200, {**document, "choices": [choice]})) as server:
        verdict, (call,) = await ask(judge(server))
    assert (verdict.label, verdict.readable, call.outcome) == (Label.UNVERIFIABLE, False, "unreadable")


SUPPORTED = '{"verdict": "supported", "confidence": 0.9}'


def completion(text: str, *, reason: Any = "stop", **message: Any) -> Answer:
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text, **message}}
    usage = {"prompt_tokens": 10**400, "completion_tokens": 5}
    return 200, {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        (completion(SUPPORTED), Label.SUPPORTED),
        (completion(SUPPORTED, refusal=""), Label.SUPPORTED),
        (completion(SUPPORTED, reason="length"), Label.UNVERIFIABLE),
        (completion(SUPPORTED, reason="content_filter"), Label.UNVERIFIABLE),
        (completion(SUPPORTED, reason="tool_calls"), Label.UNVERIFIABLE),
        (completion(SUPPORTED, reason=None), Label.UNVERIFIABLE),
        (completion(SUPPORTED, refusal="I can't judge this."), Label.UNVERIFIABLE),
        (completion(SUPPORTED + " " * (MAX_ANSWER_CHARS - len(SUPPORTED))), Label.SUPPORTED),
        (completion(SUPPORTED + " " * MAX_ANSWER_CHARS), Label.UNVERIFIABLE),
    ],
)
async def test_incomplete_refused_or_too_long_answer_is_neutral(answer: Answer, label: Label) -> None:
    async with serve(lambda body: answer) as server:
        verdict, (call,) = await ask(judge(server))
    assert (verdict.label, verdict.readable) == (label, label is Label.SUPPORTED)
    assert call.outcome == ("ok" if verdict.readable else "unreadable")
    assert (call.prompt_tokens, call.completion_tokens) == (0, 5)


async def test_unavailable_model_does_not_affect_others_of_its_service() -> None:
    """A policy that names a missing model must not stop the judge of every other policy."""

    def answer(body: dict[str, Any]) -> Answer:
        return (404, {"error": {"message": "no such model"}}) if body["model"] == "gpt-5-tiny" else '{"score": 0.9}'

    async with serve(answer) as server:
        made = judge(server)
        missing, there = (ScoreRequest(model=name) for name in ("gpt-5-tiny", "gpt-4o-mini"))
        for _ in range(MAX_FAILURES + 1):
            assert (await made.score(missing, TRUE, [Chunk(id="a", text=TRUE)])).skipped == "error"
        assert made.ready
        assert (await made.score(there, TRUE, [Chunk(id="a", text=TRUE)])).score == 0.9
    assert len(server.requests) == MAX_FAILURES + 1


async def test_failing_service_is_skipped() -> None:
    async with serve(lambda body: (401, {"error": {"message": "no"}})) as server:
        made = judge(server)
        for _ in range(MAX_FAILURES):
            with pytest.raises(JudgeError):
                await ask(made)
        assert not made.ready
        with pytest.raises(JudgeUnavailableError, match="is paused"):
            await ask(made)
    assert len(server.requests) == MAX_FAILURES


@pytest.mark.parametrize(
    ("mode", "answer", "score"),
    [
        (LlmScoringMode.UNIT, {"score": 0.3, "reasoning": "Thin."}, 0.3),
        (LlmScoringMode.SCALE, {"score": 4, "reasoning": "Thin."}, 0.75),
        (LlmScoringMode.SCALE, {"score": 1, "reasoning": "Thin."}, 0.0),
        (LlmScoringMode.BINARY, {"grounded": True, "reasoning": "Thin."}, 1.0),
        (LlmScoringMode.BINARY, {"grounded": False, "reasoning": "Thin."}, 0.0),
    ],
)
async def test_reply_is_scored_on_each_scale(mode: LlmScoringMode, answer: dict[str, Any], score: float) -> None:
    async with serve(says(**answer)) as server:
        made = judge(server, scoring_mode=mode)
        result = await made.score(ScoreRequest(model="gpt-4o-mini"), TRUE, [Chunk(id="a", text=TRUE)])
    assert (result.score, result.reasoning, result.skipped) == (score, "Thin.", None)
    assert [call.mode for call in result.calls] == ["score"]


async def test_reasoning_is_requested_only_if_wanted() -> None:
    async with serve(says(score=1.0)) as server:
        made = judge(server, include_reasoning=False)
        result = await made.score(ScoreRequest(model="gpt-4o-mini"), TRUE, [Chunk(id="a", text=TRUE)])
    assert (result.score, result.reasoning) == (1.0, None)
    schema = server.requests[0]["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["score"]


async def test_criteria_of_the_operator_are_part_of_the_instructions() -> None:
    async with serve(says(score=1.0)) as server:
        request = ScoreRequest(model="gpt-4o-mini", criteria="Doses must be named with their unit.")
        await judge(server).score(request, TRUE, [Chunk(id="a", text=TRUE)])
    assert "Doses must be named with their unit." in server.requests[0]["messages"][0]["content"]


async def test_most_relevant_sources_are_first_and_last_with_their_numbers() -> None:
    chunks = [
        Chunk(id=str(n), text=f"Text {n}.", relevance_score=score) for n, score in enumerate((0.2, 0.9, 0.5, 0.8), 1)
    ]
    async with serve(says(score=1.0)) as server:
        await judge(server).score(ScoreRequest(model="gpt-4o-mini"), "Text 1. [1]", chunks)
    system, user = (message["content"] for message in server.requests[0]["messages"])
    parts, _ = fenced(system, user)
    assert [text for kind, text in parts if kind == "source"] == ["Text 2.", "Text 3.", "Text 1.", "Text 4."]
    assert [user.index(f"Source [{n}]:") for n in (2, 3, 1, 4)] == sorted(
        user.index(f"Source [{n}]:") for n in range(1, 5)
    )


async def test_passages_over_the_budget_are_batched_and_any_support_counts() -> None:
    filler = "The canteen serves soup on most days of the week. " * 12
    passages = [passage(f"{filler}{number}", number) for number in range(4)]
    passages[1] = passage(f"{filler}{FALSE}", 1)
    passages[3] = passage(f"{filler}{TRUE}", 3)
    async with serve(obedient) as server:
        verdict, calls = await ask(judge(server, token_budget=400), TRUE, *passages)
    assert verdict.label is Label.SUPPORTED
    assert verdict.passages == (3,)
    assert len(calls) == len(server.requests) > 1
    sent = "".join(body["messages"][1]["content"] for body in server.requests)
    assert all(one.text in sent for one in passages)


async def test_contradiction_counts_if_no_batch_supports() -> None:
    filler = "The canteen serves soup on most days of the week. " * 12
    async with serve(obedient) as server:
        verdict, calls = await ask(
            judge(server, token_budget=400), TRUE, passage(filler), passage(filler + FALSE, 1), passage(filler, 2)
        )
    assert len(calls) > 1
    assert (verdict.label, verdict.passages) == (Label.CONTRADICTED, (1,))


async def test_reply_over_the_budget_is_judged_by_statement_without_truncation() -> None:
    filler = [f"Room {n} is on floor {n} of the old house." for n in range(60)]
    chunks = [
        Chunk(id="a", text=" ".join([*filler[:30], TRUE])),
        Chunk(id="b", text=" ".join([OTHER, *filler[30:]])),
    ]
    reply = f"{TRUE} {OTHER} {FALSE} {filler[7]}"
    async with serve(obedient) as server:
        made = judge(server, token_budget=300)
        score = await made.score(ScoreRequest(model="gpt-4o-mini"), reply, chunks)
    assert len(server.requests) > 2
    assert all(call.mode == "statements" for call in score.calls)
    sent = "".join(body["messages"][1]["content"] for body in server.requests)
    assert all(sentence in sent for chunk in chunks for sentence in chunk.text.split(". ") if len(sentence) > 10)
    assert score.score == pytest.approx(3 / 4)
    assert score.reasoning == "3 of 4 statements supported"


async def test_reply_needing_too_many_calls_is_skipped_not_truncated() -> None:
    text = " ".join(f"Room {n} is on floor {n} of the old house." for n in range(2_000))
    async with serve(obedient) as server:
        made = judge(server, token_budget=100)
        score = await made.score(ScoreRequest(model="gpt-4o-mini"), TRUE, [Chunk(id="a", text=text)])
    assert (score.score, score.skipped) == (None, "overloaded")
    assert score.detail is not None
    assert "calls (limit 64)" in score.detail
    assert server.requests == []


async def test_concurrent_calls_are_limited() -> None:
    running, most = 0, 0

    async def counts(body: dict[str, Any]) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return obedient(body)

    async with serve(counts) as server:
        made = judge(server, concurrency=2)
        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(ask(made))
    assert most == 2


async def test_sentence_is_decomposed() -> None:
    async with serve(says(claims=["A is B.", "C is D."])) as server:
        calls: list[LlmCall] = []
        assert await judge(server).decompose("A is B and C is D.", "", calls.append) == ["A is B.", "C is D."]
    assert [call.mode for call in calls] == ["decompose"]


async def test_every_call_is_recorded_and_an_unknown_price_is_none() -> None:
    seen: list[LlmCall] = []
    async with serve(obedient) as server:
        made = judge(server, model="local/qwen3", observe=seen.append, prices=PriceTable())
        await ask(made)
    assert [(call.model, call.cost_usd) for call in seen] == [("local/qwen3", None)]


async def test_azure_deployment_has_the_model_in_its_url_and_its_own_key_header() -> None:
    async with serve(obedient) as server:
        base = server.url.removesuffix("/v1")
        azure = Endpoint(name="azure", base_url=base, api_version="2024-10-21")
        made = LlmJudge(keys=Keys(azure="k-azure"), model="azure/judge", endpoints={"azure": azure})
        server.clients.append(made)
        verdict, _ = await ask(made)
    assert verdict.label is Label.SUPPORTED
    assert server.paths == ["/openai/deployments/judge/chat/completions?api-version=2024-10-21"]
    assert server.headers[0]["api-key"] == "k-azure"
    assert "authorization" not in server.headers[0]


def claims(*texts: str) -> list[Claim]:
    return [Claim(text=text, span=Span(0, len(text)), sentence_index=place) for place, text in enumerate(texts)]


async def rate(made: LlmJudge, found: list[Claim], *texts: str, mode: LlmScoringMode) -> Any:
    chunks = [Chunk(id=f"d{place}", text=text) for place, text in enumerate(texts)]
    return await made.score_claims(
        made.claims_calls(found, chunks, mode=mode, reasoning=True), lambda _: None, mode=mode
    )


async def test_all_claims_are_scored_in_one_prompt() -> None:
    async with serve(says(verdicts=[True, False], reasoning="The second differs.")) as server:
        scores = await rate(judge(server), claims(TRUE, FALSE), TRUE, OTHER, mode=LlmScoringMode.BINARY)
    assert (scores.raw, scores.reasoning) == ((1, 0), "The second differs.")
    (body,) = server.requests
    assert all(text in json.dumps(body) for text in (TRUE, FALSE, OTHER))


async def test_claims_that_do_not_fit_are_read_with_every_source() -> None:
    """Each part of the sources is read with each part of the claims."""

    def answer(body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        return json.dumps({"verdicts": [5 if "Source [9]" in prompt else 1] * prompt.count("Claim ")})

    sources = [f"{OTHER} {place} " * 20 for place in range(12)]
    async with serve(answer) as server:
        made = judge(server, token_budget=600)
        scores = await rate(made, claims(*[TRUE, FALSE] * 20), *sources, mode=LlmScoringMode.SCALE)
    assert len(server.requests) > 2
    assert scores.raw == (5,) * 40


async def test_claims_needing_too_many_calls_are_rejected() -> None:
    async with serve(says(verdicts=[True])) as server:
        with pytest.raises(JudgeOverloadedError, match="limit 64"):
            await rate(judge(server, token_budget=40), claims(*[TRUE] * 80), OTHER * 200, mode=LlmScoringMode.BINARY)
    assert server.requests == []
