"""The cloud checks against stand-ins that follow their API references."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from judges.call_recording import recording
from judges.circuit_breaker import MAX_FAILURES
from judges.cross_encoder.presets import find_preset
from judges.cross_encoder.presets.service_presets import open_service
from judges.cross_encoder.services import service_client
from judges.cross_encoder.services.service_access import ServiceAccess
from judges.cross_encoder.services.service_scorer import ServiceScorer
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, JudgeUnreachableError
from judges.types import EvidenceWindows
from tests.support.judging.pair_services import Azure, Bedrock, ServiceStandin, Vectara, Vertex

pytestmark = pytest.mark.anyio

EVIDENCE = "A cat is sleeping on the red sofa."
SAID, DENIED = "A cat is sleeping.", "No cat is sleeping."


@dataclass(frozen=True)
class Check:
    kind: str
    standin: type[ServiceStandin]
    options: Mapping[str, str]
    setting: str
    good: float
    bad: float
    malformed: tuple[Any, ...] = ()
    variant: str = ""

    @property
    def name(self) -> str:
        return f"preset:{self.kind}{self.variant}"


CHECKS = [
    Check("vectara", Vectara, {}, "GROUNDLANE_VECTARA_API_KEY", 0.93, 0.06, ({}, {"score": "high"}, {"score": 1.5})),
    Check(
        "azure-groundedness",
        Azure,
        {"endpoint": "https://acme.cognitiveservices.azure.com/"},
        "GROUNDLANE_AZURE_CONTENT_SAFETY_API_KEY",
        1.0,
        0.0,
        ({}, {"ungroundedDetected": "no"}, {"ungroundedDetected": True, "ungroundedPercentage": None}),
        "(Generic, 2024-09-15-preview)",
    ),
    Check(
        "vertex-check-grounding",
        Vertex,
        {"project": "acme"},
        "GROUNDLANE_GOOGLE_CREDENTIALS",
        0.97,
        0.03,
        (
            {},
            {"supportScore": 0.9, "claims": [{"groundingCheckRequired": False}]},
            {"claims": [{"score": -1}]},
            {"claims": ["text"]},
        ),
    ),
    Check(
        "bedrock-guardrail",
        Bedrock,
        {"guardrail": "gr1", "region": "eu-west-1"},
        "GROUNDLANE_BEDROCK_API_KEY",
        0.8125,
        0.0360,
        (
            {"assessments": []},
            {"assessments": [{"contextualGroundingPolicy": {"filters": [{"type": "RELEVANCE", "score": 0.9}]}}]},
            {"assessments": [{"contextualGroundingPolicy": {"filters": [{"type": "GROUNDING", "score": None}]}}]},
            {"assessments": "none"},
        ),
        "(gr1, DRAFT)",
    ),
]
ANY = pytest.mark.parametrize("check", CHECKS, ids=[check.kind for check in CHECKS])


@asynccontextmanager
async def opened(
    check: Check, server: ServiceStandin, key: str | None = "the-key", timeout_s: float = 2.0, **options: str
) -> AsyncIterator[ServiceScorer]:
    access = ServiceAccess(keys=lambda _name: key, timeout_s=timeout_s, transport=server.transport)
    scorer = open_service(find_preset(check.kind), {**check.options, **options}, access)
    try:
        await scorer.start()
        yield scorer
    finally:
        await scorer.aclose()


# Answers


@ANY
async def test_check_returns_the_probability_reported_by_the_service(check: Check) -> None:
    server = check.standin()
    async with opened(check, server) as scorer:
        good, bad = await scorer.score([(EVIDENCE, SAID), (EVIDENCE, DENIED)])
        assert (good.entailed, good.contradicted) == (pytest.approx(check.good, abs=1e-4), 0.0)
        assert (bad.entailed, bad.contradicted) == (pytest.approx(check.bad, abs=1e-4), 0.0)
        assert scorer.name == check.name
        assert len(server.requests) == 2


@ANY
async def test_every_request_is_counted_with_its_outcome_and_price(check: Check) -> None:
    calls: list[LlmCall] = []
    server = check.standin(script=[None, httpx.Response(200, json=[])])
    async with opened(check, server, price="0.002") as scorer:
        with recording(calls.append):
            await scorer.score([(EVIDENCE, SAID)])
            with pytest.raises(JudgeError):
                await scorer.score([(EVIDENCE, SAID)])
        await scorer.score([(EVIDENCE, SAID)])
    units = 2 if check.kind == "bedrock-guardrail" else 1
    assert [(call.mode, call.model, call.outcome) for call in calls] == [
        ("judge", check.name, "ok"),
        ("judge", check.name, "unreadable"),
    ]
    assert calls[0].cost_usd == pytest.approx(0.002 * units)


@ANY
async def test_without_a_price_the_cost_is_unknown(check: Check) -> None:
    calls: list[LlmCall] = []
    async with opened(check, check.standin()) as scorer:
        with recording(calls.append):
            await scorer.score([(EVIDENCE, SAID)])
    assert [call.cost_usd for call in calls] == [None]


@ANY
async def test_malformed_answer_is_an_error_and_never_a_score(check: Check) -> None:
    answers = [httpx.Response(200, json=one) for one in (*check.malformed, [], None, 7)]
    server = check.standin(script=[*answers, httpx.Response(200, content=b"<html>"), httpx.Response(200)])
    async with opened(check, server) as scorer:
        for _ in range(len(server.script)):
            with pytest.raises(JudgeError, match=f"preset:{check.kind}"):
                await scorer.score([(EVIDENCE, SAID)])
        assert (await scorer.score([(EVIDENCE, SAID)]))[0].entailed == pytest.approx(check.good, abs=1e-4)


# Limits


@ANY
async def test_throttled_request_waits_as_long_as_the_service_asks(check: Check) -> None:
    server = check.standin(script=[httpx.Response(429, headers={"Retry-After": "0.2"})])
    async with opened(check, server) as scorer:
        clock = asyncio.get_running_loop().time
        started = clock()
        assert (await scorer.score([(EVIDENCE, SAID)]))[0].entailed == pytest.approx(check.good, abs=1e-4)
        assert 0.2 <= clock() - started < 1.5
        assert len(server.requests) == 2


@ANY
async def test_pause_beyond_the_time_limit_is_an_overload_and_stops_further_requests(check: Check) -> None:
    server = check.standin(script=[httpx.Response(429, headers={"Retry-After": "60"})])
    calls: list[LlmCall] = []
    async with opened(check, server) as scorer:
        with recording(calls.append):
            for _ in range(3):
                with pytest.raises(JudgeOverloadedError, match="rate limit reached"):
                    await scorer.score([(EVIDENCE, SAID)])
    assert len(server.requests) == 1
    assert {call.outcome for call in calls} == {"overloaded"}


@ANY
async def test_claims_and_evidence_beyond_the_documented_limits_are_not_sent(check: Check) -> None:
    server = check.standin()
    async with opened(check, server) as scorer:
        with pytest.raises(JudgeError, match="accepts claims of up to"):
            await scorer.score([(EVIDENCE, "word " * 5_000)])
        assert server.requests == []
        longest = "word " * (scorer.max_tokens - 1000)
        assert scorer.count_tokens(longest) <= scorer.max_tokens - 1000
        await scorer.score([(EVIDENCE, longest)])
        assert len(server.requests) == 1


# Failures


@ANY
async def test_server_error_is_retried(check: Check) -> None:
    server = check.standin(script=[httpx.Response(500), httpx.ConnectError("refused"), httpx.Response(503)])
    async with opened(check, server) as scorer:
        assert (await scorer.score([(EVIDENCE, SAID)]))[0].entailed == pytest.approx(check.good, abs=1e-4)
        assert len(server.requests) == 4


@ANY
async def test_slow_service_times_out(check: Check) -> None:
    class Silent(check.standin):  # type: ignore[name-defined, misc]  # a parametrised base
        async def handle(self, request: httpx.Request) -> httpx.Response:
            await asyncio.sleep(5)
            raise AssertionError

    calls: list[LlmCall] = []
    async with opened(check, Silent(), timeout_s=0.1) as scorer:
        with recording(calls.append), pytest.raises(JudgeUnreachableError, match="did not respond in time"):
            await scorer.score([(EVIDENCE, SAID)])
    assert [call.outcome for call in calls] == ["timeout"]


@ANY
async def test_failing_service_is_skipped_for_a_while(check: Check) -> None:
    server = check.standin(script=[httpx.Response(500)] * 100)
    async with opened(check, server, timeout_s=0.05) as scorer:
        for _ in range(MAX_FAILURES):
            with pytest.raises(JudgeUnreachableError):
                await scorer.score([(EVIDENCE, SAID)])
        asked = len(server.requests)
        assert scorer.fault == f"{check.name} failed {MAX_FAILURES} times in a row and is paused"
        with pytest.raises(JudgeUnavailableError, match="is paused"):
            await scorer.score([(EVIDENCE, SAID)])
        assert len(server.requests) == asked


@ANY
async def test_other_error_statuses_are_errors_at_once(check: Check) -> None:
    server = check.standin(script=[httpx.Response(422), httpx.Response(302, headers={"location": "http://evil"})])
    async with opened(check, server) as scorer:
        for status in (422, 302):
            with pytest.raises(JudgeError, match=f"returned {status}"):
                await scorer.score([(EVIDENCE, SAID)])
        assert len(server.requests) == 2


# Keys and options


@ANY
async def test_rejected_key_says_what_to_set(check: Check) -> None:
    async with opened(check, check.standin(key="another")) as scorer:
        with pytest.raises(JudgeUnavailableError, match=rf"key rejected \(401\); set {check.setting}, or store it"):
            await scorer.score([(EVIDENCE, SAID)])


@ANY
async def test_missing_key_says_what_to_set_and_may_be_added_later(check: Check) -> None:
    keys: dict[str, str] = {}
    server = check.standin()
    access = ServiceAccess(keys=lambda _name: keys.get("any"), transport=server.transport)
    scorer = open_service(find_preset(check.kind), check.options, access)
    with pytest.raises(
        JudgeUnreachableError, match=f"no API key; set {check.setting}, or store it as the secret"
    ) as fault:
        await scorer.start()
    assert "\n" not in str(fault.value)
    keys["any"] = "the-key"
    await scorer.start()
    assert (await scorer.score([(EVIDENCE, SAID)]))[0].entailed == pytest.approx(check.good, abs=1e-4)
    assert scorer.fault is None
    keys.clear()
    assert f"no API key; set {check.setting}" in str(scorer.fault)
    with pytest.raises(JudgeUnavailableError, match="no API key"):
        await scorer.score([(EVIDENCE, SAID)])
    await scorer.aclose()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("azure-groundedness", {}, "needs the option 'endpoint', such as https://NAME"),
        ("azure-groundedness", {"endpoint": "acme"}, "endpoint: expected a URL"),
        ("azure-groundedness", {"endpoint": "https://a", "domain": "Legal"}, "domain: expected Generic or Medical"),
        ("vertex-check-grounding", {}, "needs the option 'project'"),
        ("bedrock-guardrail", {"guardrail": "gr1"}, "needs the option 'region'"),
        ("bedrock-guardrail", {"region": "eu-west-1"}, "needs the option 'guardrail'"),
        ("vectara", {"price": "cheap"}, "price: expected US dollars per unit, got 'cheap'"),
        ("vectara", {"concurrency": "0"}, "concurrency: expected an integer from 1 to 1000"),
        ("vectara", {"url": "ftp://vectara"}, "url: expected a URL"),
    ],
)
def test_invalid_option_error_says_what_is_expected(kind: str, options: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as fault:
        open_service(find_preset(kind), options, ServiceAccess())
    assert "\n" not in str(fault.value)


@ANY
async def test_languages_are_those_documented_unless_configured(check: Check) -> None:
    known = {"azure-groundedness": {"en"}, "bedrock-guardrail": {"en", "fr", "es"}}.get(check.kind)
    async with opened(check, check.standin()) as scorer:
        assert scorer.languages == known
    async with opened(check, check.standin(), languages="en,de") as scorer:
        assert scorer.languages == {"en", "de"}


# Privacy


@ANY
async def test_no_text_or_key_is_in_logs_or_messages(check: Check, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    leaky = httpx.Response(500, json={"error": f"{EVIDENCE} {SAID} the-key"})
    refused = httpx.Response(400, json={"error": f"{EVIDENCE} {SAID} the-key"})
    told: list[str] = []
    server = check.standin(script=[leaky] * 60 + [refused])
    async with opened(check, server, timeout_s=0.05) as scorer:
        for _ in range(MAX_FAILURES + 1):
            with pytest.raises(JudgeError) as fault:
                await scorer.score([(EVIDENCE, SAID)])
            told.append(str(fault.value))
    server = check.standin(script=[refused, None])
    async with opened(check, server) as scorer:
        with pytest.raises(JudgeError) as fault:
            await scorer.score([(EVIDENCE, SAID)])
        told.append(str(fault.value))
        await scorer.score([(EVIDENCE, SAID)])
    everything = caplog.text + "".join(told)
    for secret in ("A cat", "sleeping", "sofa", "the-key"):
        assert secret not in everything


# Details of each service


async def test_vertex_reads_all_windows_at_once_and_attributes_support() -> None:
    server = Vertex()
    async with opened(CHECKS[2], server) as scorer:
        assert scorer.fuses
        windows = EvidenceWindows(["A dog barks.", EVIDENCE, "Rain falls."])
        (score,) = await scorer.score([(windows, SAID)])
        assert score.entailed == pytest.approx(0.97)
        assert [round(part.entailed, 2) for part in score.parts] == [0.0, 0.97, 0.0]
        assert len(server.requests) == 1
        (none,) = await scorer.score([(windows, DENIED)])
        assert [part.entailed for part in none.parts] == [0.0, 0.0, 0.0]


async def test_vertex_truncates_a_long_fact_and_still_names_its_window() -> None:
    server = Vertex()
    async with opened(CHECKS[2], server) as scorer:
        windows = EvidenceWindows(["x" * 25_000, EVIDENCE])
        (score,) = await scorer.score([(windows, SAID)])
        assert [len(fact["factText"]) for fact in server.bodies[0]["facts"]] == [10_000, 10_000, 5_000, len(EVIDENCE)]
        assert [round(part.entailed, 2) for part in score.parts] == [0.0, 0.97]


@pytest.mark.parametrize(
    ("index", "source"), [(0, "-1"), (0, float("inf")), (-1, "1"), (0, "3"), (1, "1"), (0, None), ("0", "1")]
)
async def test_vertex_citation_must_name_a_window(index: Any, source: Any) -> None:
    claim = {"score": 0.9, "citationIndices": [index]}
    answer = httpx.Response(200, text=json.dumps({"citedChunks": [{"source": source}], "claims": [claim]}))
    async with opened(CHECKS[2], Vertex(script=[answer])) as scorer:
        with pytest.raises(JudgeError, match="refers to a fact that is not in the request"):
            await scorer.score([(EvidenceWindows(["A dog barks.", EVIDENCE, "Rain falls."]), SAID)])


async def test_azure_never_passes_a_partly_ungrounded_claim() -> None:
    partly = {"ungroundedDetected": True, "ungroundedPercentage": 0.1, "ungroundedDetails": []}
    async with opened(CHECKS[1], Azure(script=[httpx.Response(200, json=partly)])) as scorer:
        assert (await scorer.score([(EVIDENCE, SAID)]))[0].entailed < 0.5


async def test_bedrock_signs_with_an_access_key_and_sends_an_api_key_as_a_bearer_token() -> None:
    server = Bedrock()
    async with opened(CHECKS[3], server, key="the-key:secret:session", version="3", guardrail="arn:x/y") as scorer:
        await scorer.score([(EVIDENCE, SAID)])
    request = server.requests[0]
    assert request.url.raw_path == b"/guardrail/arn%3Ax%2Fy/version/3/apply"
    assert request.url.host == "bedrock-runtime.eu-west-1.amazonaws.com"
    assert request.headers["x-amz-security-token"] == "session"
    assert "/eu-west-1/bedrock/aws4_request, SignedHeaders=" in request.headers["authorization"]
    assert server.bodies[0]["source"] == "OUTPUT"
    assert server.bodies[0]["outputScope"] == "FULL"
    async with opened(CHECKS[3], server) as scorer:
        await scorer.score([(EVIDENCE, SAID)])
    assert server.requests[1].headers["authorization"] == "Bearer the-key"


@pytest.mark.parametrize(("threshold", "expected"), [(0.5, 0.6), (0.6, 0.5), (0.9, 0.1429), (0.0, 0.6), (None, 0.6)])
async def test_claim_at_the_guardrail_threshold_has_even_odds(threshold: Any, expected: float) -> None:
    found = {"type": "GROUNDING", "threshold": threshold, "score": 0.6, "action": "NONE"}
    answer = httpx.Response(200, json={"assessments": [{"contextualGroundingPolicy": {"filters": [found]}}]})
    async with opened(CHECKS[3], Bedrock(script=[answer])) as scorer:
        assert (await scorer.score([(EVIDENCE, SAID)]))[0].entailed == pytest.approx(expected, abs=1e-4)


async def test_requested_pause_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_client, "_MAX_PAUSE_S", 0.1)
    server = Vectara(script=[httpx.Response(429, headers={"Retry-After": "86400"})])
    async with opened(CHECKS[0], server) as scorer:
        assert (await scorer.score([(EVIDENCE, SAID)]))[0].entailed == pytest.approx(0.93)


async def test_pause_may_be_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)
    server = Vectara(script=[httpx.Response(503, headers={"Retry-After": soon}), httpx.Response(503)])
    async with opened(CHECKS[0], server, timeout_s=5.0) as scorer:
        assert (await scorer.score([(EVIDENCE, SAID)]))[0].entailed == pytest.approx(0.93)
