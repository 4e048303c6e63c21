"""The judge gives the same verdicts over HTTP as in process, and invalid requests get an explanation."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from app.judge_runtime.offline import open_cross_encoder
from app.judge_server import http_server
from app.judge_server.http_server import judge_app
from app.settings import Settings, SettingsError
from judges.call_recording import recording
from judges.checker import GroundingChecker
from judges.cross_encoder import ServiceAccess, cascade, open_scorer, spec_languages
from judges.cross_encoder.batching import BatchingScorer
from judges.cross_encoder.remote.http_scorer import HttpScorer
from judges.cross_encoder.score_cache import CachingScorer
from judges.label_thresholds import Thresholds
from judges.llm_types import LlmCall
from judges.types import Chunk, Label
from tests.support.judging import tiny_models
from tests.support.judging.judged_replies import report_on, reports
from tests.support.judging.pair_services import Vectara, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[httpx.ASGITransport]:
    app = judge_app(Settings(_env_file=None, judge_threads=1, **settings))
    async with app.router.lifespan_context(app):
        yield httpx.ASGITransport(app)


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with served(**settings) as transport, httpx.AsyncClient(transport=transport, base_url="http://judge") as one:
        yield one


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["embedded", "embedded-large"])
async def test_verdicts_equal_the_in_process_judge_exactly(judge: str) -> None:
    here = open_scorer(judge, threads=1)
    assert here is not None
    async with served(judge=judge) as transport:
        remote = HttpScorer("http://judge", transport=transport)
        assert not remote.fuses, "which it cannot know yet"
        far = await reports(remote, spec_languages("http://judge"))
        assert remote.pairs_cut == 0
    near = await reports(here, spec_languages(judge))
    assert far == near
    assert "language" in {claim.reason for claim in near[0].claims}
    assert {claim.label for report in near for claim in report.claims} >= {"supported", "contradicted", "unverifiable"}


async def test_info_describes_the_judge_and_its_tokenizer() -> None:
    here = open_scorer("embedded")
    assert here is not None
    await here.start()
    async with served() as transport:
        scorer = HttpScorer("http://judge", transport=transport)
        await scorer.start()
        assert (scorer.name, scorer.max_tokens, scorer.fuses) == (f"http:{here.name}", here.max_tokens, True)
        assert scorer.languages == frozenset({"en"})
        text = "Unbelievably, the naïve café’s 1,234.50 €-bill was wrong…"
        assert scorer.count_tokens(text) == here.count_tokens(text)
        await scorer.aclose()
    await here.aclose()


async def test_api_key_is_required() -> None:
    async with opened(judge_api_key=SecretStr("s3cret")) as client:
        asked = ("GET", "/info"), ("GET", "/tokenizer"), ("POST", "/judge")
        for given in ({}, {"Authorization": "Bearer wr0ng"}, {b"Authorization": "Bearer s3cret\u00e9".encode()}):
            assert {(await client.request(*one, headers=given)).status_code for one in asked} == {401}
        known = {"Authorization": "Bearer s3cret"}
        assert (await client.get("/info", headers=known)).status_code == 200
        assert (await client.get("/healthz")).status_code == 200


REFUSED: Sequence[tuple[bytes, int, str]] = (
    (b"{", 400, "the body is not JSON"),
    (b"\xff\xfe\xfa", 400, "the body is not JSON"),
    (b"[" * 100_000, 400, "the body is not JSON"),
    (b"[]", 400, "pairs: expected a list"),
    (b'{"pairs": [1]}', 400, "pairs[0].claim: expected a string"),
    (b'{"pairs": [{"claim": "a"}]}', 400, "pairs[0].evidence: expected a string or a list of strings"),
    (b'{"pairs": [{"claim": "a", "evidence": []}]}', 400, "pairs[0].evidence: expected 1 to 256 strings, not 0"),
    (b'{"pairs": [{"claim": "a", "evidence": ["b", 1]}]}', 400, "pairs[0].evidence: expected a string or a list"),
    (json.dumps({"pairs": [{}] * 65}).encode(), 400, "pairs: at most 64 in one request, not 65"),
    (b" " * (4 * 1024 * 1024 + 1), 413, "the body exceeds the limit of 4194304 bytes"),
)


async def test_invalid_request_is_refused_with_the_reason() -> None:
    async with opened(judge_queue_limit=1) as client:
        for body, status, told in REFUSED:
            answer = await client.post("/judge", content=body)
            assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text
        two = [{"evidence": "It rains.", "claim": claim} for claim in ("It rains.", "It snows.")]
        answer = await client.post("/judge", json={"pairs": two})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert (await client.post("/judge", json={"pairs": []})).json()["scores"] == []
        assert (await client.post("/judge", json={"pairs": two[:1]})).status_code == 200


@pytest.mark.parametrize("judge", ["none", "http://judge", "quatsch", "embedded then http://judge if uncertain"])
def test_judges_that_cannot_be_served_are_rejected_at_startup(judge: str) -> None:
    with pytest.raises(SettingsError, match="GROUNDLANE_JUDGE: "):
        judge_app(Settings(_env_file=None, judge=judge))


@pytest.mark.sentence_transformers
@pytest.mark.filterwarnings("default")
async def test_preset_is_served_with_its_threshold_windows_tokens_and_spans(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    tiny_models.modernbert_token_classifier(tmp_path)
    spec = f"preset:lettucedetect-base?device=cpu&model={tmp_path}"
    here = open_scorer(spec)
    assert here is not None
    chunks = [Chunk(id="a", text="The cat sleeps on a mat in the house of grandma. " * 60)]
    found = []
    async with served(judge=spec) as transport:
        remote = HttpScorer("http://judge", transport=transport)
        for scorer in (remote, here):
            checker = GroundingChecker(BatchingScorer(scorer))
            await checker.start()
            assert checker.available, checker.error
            found.append(await report_on(checker, "The **cat** sleeps. The dog runs in the house.", chunks))
            windowing: Any = getattr(scorer, "windowing", None)
            assert (getattr(scorer, "threshold", None), windowing.tokens) == (0.5, 2048)
            await checker.aclose()
    assert found[0] == found[1]
    assert any(claim.spans for claim in found[0].claims)


# Cascades and services

PETS = [
    Chunk(id="a", text="A cat is sleeping on the red sofa. The sofa costs 600 euros."),
    Chunk(id="b", text="The garden has two apple trees."),
]
SAID = "A cat is sleeping. The dog is barking loudly. The sofa costs 700 euros. There are trees."


@pytest.mark.slow
async def test_cascade_is_served_with_the_scores_stages_and_costs_of_its_judges() -> None:
    with serving(Vectara()) as url:
        settings = {
            "judge": f"embedded then preset:vectara?price=0.002&url={url} if uncertain 0..1",
            "vectara_api_key": SecretStr("the-key"),
        }
        found, costs, observed = [], [], list[LlmCall]()
        async with served(**settings) as transport:
            remote = HttpScorer("http://judge", transport=transport, observe=observed.append)
            here = open_cross_encoder(Settings(_env_file=None, judge_threads=1, **settings))
            assert here is not None
            for scorer in (remote, here):
                checker = GroundingChecker(BatchingScorer(scorer), timeout_s=60.0)
                await checker.start()
                assert checker.available, checker.error
                reply = checker.reply(await checker.prepare(PETS), thresholds=Thresholds())
                for sentence in [*reply.push(SAID), *reply.flush()]:
                    await reply.check(sentence)
                found.append(reply.report())
                costs.append([call.cost_usd for call in reply.llm_calls])
                stages = tuple(getattr(scorer, "stage_thresholds", ()))
                assert (stages, getattr(scorer, "paid", None)) == ((None, 0.5), True)
                assert scorer.name.removeprefix("http:").startswith("embedded@")
                await checker.aclose()
    assert found[0] == found[1]
    assert {claim.label for claim in found[0].claims} >= {Label.SUPPORTED, Label.CONTRADICTED}
    assert costs[0] == costs[1] == [0.002] * len(costs[0])
    assert len(costs[0]) > 1
    assert [call.cost_usd for call in observed] == costs[0]


async def test_served_cascade_survives_a_missing_judge_and_its_client_notices_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cascade, "_RETRY_S", 0.0)
    pairs = [("The lamp is red.", "A lamp is red.")]
    with serving(Vectara()) as url:
        keys: dict[str, str] = {}
        monkeypatch.setattr(http_server, "judge_access", lambda _settings: ServiceAccess(keys=keys.get))
        async with served(judge=f"embedded then preset:vectara?url={url} if uncertain 0..1") as transport:
            remote = HttpScorer("http://judge", transport=transport)
            await remote.start()
            cache = CachingScorer(remote, max_bytes=1 << 20)
            assert "then" not in remote.name
            (score,) = await cache.score(pairs)
            assert (score.stage, score.provisional, len(cache)) == (0, True, 0)
            keys["vectara"] = "the-key"
            (score,) = await cache.score(pairs)
            assert (score.stage, score.provisional) == (1, False)
            assert remote.name.endswith("then preset:vectara if 0..1")
            await remote.aclose()


@pytest.mark.parametrize("count", [1, 3])
async def test_concurrent_requests_are_charged_for_their_own_judge_calls(count: int) -> None:
    with serving(Vectara()) as url:
        settings = {"judge": f"preset:vectara?price=0.002&url={url}", "vectara_api_key": SecretStr("the-key")}
        async with served(**settings) as transport:
            batcher = BatchingScorer(HttpScorer("http://judge", transport=transport, concurrency=1))
            await batcher.start()

            async def ask(number: int) -> int:
                calls: list[LlmCall] = []
                with recording(calls.append):
                    await batcher.score([("The lamp is red.", f"Lamp {number} is {place}.") for place in range(count)])
                return len(calls)

            assert await asyncio.gather(*map(ask, range(4))) == [count] * 4
            await batcher.aclose()
