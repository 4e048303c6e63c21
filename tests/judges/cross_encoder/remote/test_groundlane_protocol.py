"""Our own protocol, from the gateway's side; the server's side is tested with the judge server."""

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from judges.call_recording import recording
from judges.cross_encoder.remote.groundlane_protocol import groundlane_protocol, info_response, judge_response
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, JudgeUnavailableError
from judges.testing import ScriptedJudge
from judges.types import EvidenceWindows, Probabilities, UnsupportedSpan, Windowing
from tests.support.judging.scorer_calls import OTHER, PAIRS, THREE_WAY, opened, rounded
from tests.support.judging.stub_models import Own

pytestmark = pytest.mark.anyio


async def test_protocol_reports_limits_and_languages() -> None:
    server = Own(prefix="/nli")
    async with opened(server, "http://judge/nli") as scorer:
        assert rounded(await scorer.score(PAIRS)) == THREE_WAY
        assert (scorer.name, scorer.max_tokens, scorer.languages) == ("http:judge@1", 200, frozenset({"en"}))
        assert [len(body["pairs"]) for body in server.asked("/judge")] == [2, 1]
    async with opened(Own(languages=None), "groundlane+http://judge", options={"languages": "en, de"}) as scorer:
        assert scorer.languages == frozenset({"en", "de"})


async def test_fusing_judge_gets_windows_and_attributes_scores() -> None:
    windows = EvidenceWindows(["A cat is sleeping.", "A dog barks."])
    server = Own(fuses=True)
    async with opened(server) as scorer:
        assert scorer.fuses
        (found,) = await scorer.score([(windows, "A cat barks.")])
        assert rounded([found, *found.parts]) == [THREE_WAY[0], THREE_WAY[2], THREE_WAY[2]]
        assert server.asked("/judge")[0]["pairs"] == [{"evidence": list(windows.parts), "claim": "A cat barks."}]
        (alone,) = await scorer.score([(EvidenceWindows(["A dog barks."]), OTHER)])
        assert alone.parts == ()
    async with opened(Own()) as scorer:
        assert not scorer.fuses
        (found,) = await scorer.score([(windows, OTHER)])
        assert found.parts == (), "one that does not fuse gets one text"


async def test_cascade_reports_the_deciding_judge_and_its_costs() -> None:
    call = LlmCall(mode="judge", model="preset:vectara", outcome="ok", cost_usd=0.01)

    class Cascade(Own):
        row: ClassVar[dict[str, Any]] = {"stage": 1, "provisional": True}
        calls: ClassVar[Any] = [asdict(call)]

        def info(self) -> dict[str, Any]:
            return super().info() | {"stage_thresholds": [None, 0.5], "paid": True}

        def _scored(self, evidence: str | list[str], claim: str) -> dict[str, Any]:
            return super()._scored(evidence, claim) | self.row

        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            response = await super().answer(method, path, body)
            return httpx.Response(200, json=response.json() | {"calls": self.calls}) if path == "/judge" else response

    observed: list[LlmCall] = []
    recorded: list[LlmCall] = []
    async with opened(Cascade(), observe=observed.append) as scorer:
        assert (scorer.stage_thresholds, scorer.threshold, scorer.paid) == ((None, 0.5), None, True)
        with recording(recorded.append):
            (score,) = await scorer.score(PAIRS[:1])
        assert (score.stage, score.provisional) == (1, True)
        assert observed == recorded == [call]
        for odd in ({"row": {"stage": 2}}, {"row": {"stage": "b"}}, {"calls": [{"mode": 1}]}, {"calls": 7}):
            with pytest.MonkeyPatch.context() as patch:
                for name, value in odd.items():
                    patch.setattr(Cascade, name, value)
                with pytest.raises(JudgeError, match=r"must be the position|expected a list of LLM calls"):
                    await scorer.score(PAIRS[:1])


async def test_missing_fields_are_detected() -> None:
    class Odd(Own):
        def _scored(self, evidence: str | list[str], claim: str) -> dict[str, Any]:
            return super()._scored(" ".join(evidence), claim)

    async with opened(Odd(fuses=True)) as scorer:
        with pytest.raises(JudgeError, match="expected 2 results"):
            await scorer.score([(EvidenceWindows(["a", "b"]), "c")])


async def test_claims_with_the_same_windows_share_a_session_header() -> None:
    class Noting(Own):
        headers: ClassVar[list[str | None]] = []

        async def _handle(self, request: httpx.Request) -> httpx.Response:
            self.headers.append(request.headers.get("x-session-id"))
            return await super()._handle(request)

    async with opened(Noting(fuses=True)) as scorer:
        for windows in (["a", "b", "c"], ["c", "a", "b"], ["z", "y"]):
            await scorer.score([(EvidenceWindows(windows), "d")])
    first, second, other = Noting.headers[-3:]
    assert first == second != other
    Noting.headers.clear()
    async with opened(Noting()) as scorer:
        await scorer.score(PAIRS[:1])
    assert Noting.headers == [None, None]


async def test_served_tokenizer_counts_the_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    content = tokenizer.to_str().encode()
    digest = hashlib.sha256(content).hexdigest()
    async with opened(Own(tokenizer=content, digest=digest)) as scorer:
        assert scorer.count_tokens("unbelievable a b") == 3
        assert scorer.count_tokens(EvidenceWindows(["a b", "c"])) == 3
    with pytest.raises(JudgeUnavailableError, match="does not match the SHA-256"):
        async with opened(Own(tokenizer=content, digest="0" * 64)):
            pass
    garbage = b"{}"
    with pytest.raises(JudgeUnavailableError, match="cannot read the server's tokenizer"):
        async with opened(Own(tokenizer=garbage, digest=hashlib.sha256(garbage).hexdigest())):
            pass


async def test_replaced_model_behind_the_url_is_detected() -> None:
    server = Own()
    async with opened(server) as scorer:
        await scorer.score(PAIRS)
        server.model = "judge@2"
        assert rounded(await scorer.score(PAIRS)) == THREE_WAY
        assert scorer.name == "http:judge@2"
        before = len(server.sent)
        await scorer.score(PAIRS[:1])
        assert len(server.sent) == before + 1, "it is asked once"


async def test_malformed_probabilities_are_rejected() -> None:
    class Odd(Own):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            if path == "/judge":
                return httpx.Response(200, json={"scores": [{"entailed": 0.9, "neutral": 0.9, "contradicted": 0.0}]})
            return await super().answer(method, path, body)

    async with opened(Odd()) as scorer:
        with pytest.raises(JudgeError, match="do not sum to 1"):
            await scorer.score(PAIRS[:1])


GOOD = {"entailed": 0.9, "neutral": 0.1, "contradicted": 0.0}


@pytest.mark.parametrize(
    "row",
    [
        {"entailed": 1.9, "neutral": -0.5, "contradicted": -0.4},
        {"entailed": 1.01, "neutral": 0.0, "contradicted": -0.01},
        {"entailed": 10**400, "neutral": 0.0, "contradicted": 0.0},
        {"entailed": True, "neutral": False, "contradicted": False},
        {"entailed": 0.9},
        GOOD | {"second": {"entailed": 2.0, "neutral": -1.0, "contradicted": 0.0}},
        GOOD | {"second": GOOD | {"second": GOOD}},
        GOOD | {"spans": [{"start": 0, "end": 2, "score": 1.5}]},
    ],
)
def test_numbers_that_are_not_probabilities_are_rejected(row: dict[str, Any]) -> None:
    protocol = groundlane_protocol({"model": "m", "max_tokens": 9, "max_batch": 1})
    with pytest.raises(JudgeError):
        protocol.parse({"scores": [row]}, [("evidence", "claim")])


def test_rounded_probabilities_are_accepted() -> None:
    protocol = groundlane_protocol({"model": "m", "max_tokens": 9, "max_batch": 1})
    row = {"entailed": 1.0004, "neutral": -0.0002, "contradicted": 0.0}
    assert protocol.parse({"scores": [row]}, [("evidence", "claim")]) == [Probabilities(1.0, 0.0, 0.0)]


@pytest.mark.parametrize(
    "usage", [{"cost_usd": -1.0}, {"cost_usd": float("nan")}, {"prompt_tokens": 10**400}, {"latency_ms": float("inf")}]
)
def test_impossible_usage_is_rejected(usage: dict[str, Any]) -> None:
    protocol = groundlane_protocol({"model": "m", "max_tokens": 9, "max_batch": 1})
    call = {"mode": "judge", "model": "m", "outcome": "ok", "cost_usd": 0.1} | usage
    with pytest.raises(JudgeError, match="expected a list of LLM calls"):
        protocol.calls({"calls": [call]})


async def test_judge_reports_threshold_windows_and_unsupported_spans() -> None:
    class Telling(Own):
        def info(self) -> dict[str, Any]:
            return super().info() | {"threshold": 0.4, "windows": {"tokens": 300, "sentences": 1000}}

        def _scored(self, evidence: str | list[str], claim: str) -> dict[str, Any]:
            return super()._scored(evidence, claim) | {"spans": [{"start": 2, "end": 5, "score": 0.9}]}

    async with opened(Telling()) as scorer:
        assert (scorer.threshold, scorer.windowing) == (0.4, Windowing(tokens=300, sentences=1000))
        (found,) = await scorer.score([("a", "a cat")])
        assert found.spans == (UnsupportedSpan(2, 5, 0.9),)
    async with opened(Own()) as scorer:
        assert (scorer.threshold, scorer.windowing) == (None, None)
        (found,) = await scorer.score([("a", "a cat")])
        assert found.spans == ()


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"threshold": 1}, "/info: threshold: expected a number between 0 and 1, not 1"),
        ({"threshold": "high"}, "/info: threshold: expected a number between 0 and 1, not 'high'"),
        ({"windows": 400}, "/info: windows: expected an object"),
        ({"windows": {"tokens": 400}}, "/info has no sentences"),
    ],
)
async def test_invalid_threshold_or_window_is_rejected(told: dict[str, Any], message: str) -> None:
    class Odd(Own):
        def info(self) -> dict[str, Any]:
            return super().info() | told

    with pytest.raises(JudgeUnavailableError, match=re.escape(message)):
        async with opened(Odd()):
            pass


@pytest.mark.parametrize("spans", [5, [5], [{"start": 3, "end": 3, "score": 1.0}], [{"start": 0, "end": 2}]])
async def test_invalid_spans_are_an_error(spans: Any) -> None:
    class Odd(Own):
        def _scored(self, evidence: str | list[str], claim: str) -> dict[str, Any]:
            return super()._scored(evidence, claim) | {"spans": spans}

    async with opened(Odd()) as scorer:
        with pytest.raises(JudgeError):
            await scorer.score([("a", "a cat")])


def test_reported_properties_survive_a_round_trip() -> None:
    class Judge(ScriptedJudge):
        threshold = 0.3
        windowing = Windowing(tokens=50, sentences=7)

    info = info_response(Judge({}), batch=4, languages=None, tokenizer=None)
    read = groundlane_protocol(json.loads(json.dumps(info)))
    assert (read.threshold, read.windowing) == (0.3, Windowing(tokens=50, sentences=7))
    second = Probabilities(0.2, 0.5, 0.3)
    score = Probabilities(0.1, 0.9, 0.0, spans=(UnsupportedSpan(0, 4, 0.75),), second=second)
    answer = json.loads(json.dumps(judge_response([score], "m")))
    assert read.parse(answer, [("e", "claim")]) == [score]
