"""Our own protocol, as a gateway speaks it with a server; the server's side has its tests with the judge server."""

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from judges.protocols import JudgeError, JudgeUnavailableError
from judges.types import EvidenceWindows
from tests.support.scorer_calls import OTHER, PAIRS, THREE_WAY, opened, rounded
from tests.support.stub_models import Own

pytestmark = pytest.mark.anyio


async def test_our_own_protocol_tells_its_limits_and_languages() -> None:
    server = Own(prefix="/nli")
    async with opened(server, "http://judge/nli") as scorer:
        assert rounded(await scorer.score(PAIRS)) == THREE_WAY
        assert (scorer.name, scorer.max_tokens, scorer.languages) == ("http:judge@1", 200, frozenset({"en"}))
        assert [len(body["pairs"]) for body in server.asked("/judge")] == [2, 1]
    async with opened(Own(languages=None), "groundlane+http://judge", options={"languages": "en, de"}) as scorer:
        assert scorer.languages == frozenset({"en", "de"})


async def test_a_judge_that_fuses_gets_the_windows_and_says_what_each_holds() -> None:
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


async def test_parts_that_are_missing_are_noticed() -> None:
    class Odd(Own):
        def _scored(self, evidence: str | list[str], claim: str) -> dict[str, Any]:
            return super()._scored(" ".join(evidence), claim)

    async with opened(Odd(fuses=True)) as scorer:
        with pytest.raises(JudgeError, match="does not have 2 results"):
            await scorer.score([(EvidenceWindows(["a", "b"]), "c")])


async def test_claims_against_the_same_windows_go_where_those_are_known() -> None:
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


async def test_a_server_that_hands_out_its_tokenizer_is_counted_by_it(tmp_path: Path) -> None:
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


async def test_a_model_that_is_replaced_behind_the_url_is_noticed() -> None:
    server = Own()
    async with opened(server) as scorer:
        await scorer.score(PAIRS)
        server.model = "judge@2"
        assert rounded(await scorer.score(PAIRS)) == THREE_WAY
        assert scorer.name == "http:judge@2"
        before = len(server.sent)
        await scorer.score(PAIRS[:1])
        assert len(server.sent) == before + 1, "it is asked once"


async def test_probabilities_that_are_none_are_refused() -> None:
    class Odd(Own):
        async def answer(self, method: str, path: str, body: Any) -> httpx.Response:
            if path == "/judge":
                return httpx.Response(200, json={"scores": [{"entailed": 0.9, "neutral": 0.9, "contradicted": 0.0}]})
            return await super().answer(method, path, body)

    async with opened(Odd()) as scorer:
        with pytest.raises(JudgeError, match="do not sum to 1"):
            await scorer.score(PAIRS[:1])
