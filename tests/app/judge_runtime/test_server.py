"""The judge served over HTTP says what it says in process; bad requests are told what is wrong with them."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from app.judge_runtime.server import judge_app
from app.settings import Settings, SettingsError
from judges.cross_encoder import open_scorer, spec_languages
from judges.cross_encoder.remote.http_scorer import HttpScorer
from tests.support.judged_replies import reports

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
async def test_the_verdicts_are_those_of_the_judge_in_process_to_the_last_digit() -> None:
    here = open_scorer("embedded", threads=1)
    assert here is not None
    async with served() as transport:
        remote = HttpScorer("http://judge", transport=transport)
        assert not remote.fuses, "which it cannot know yet"
        far = await reports(remote, spec_languages("http://judge"))
        assert remote.pairs_cut == 0
    near = await reports(here, spec_languages("embedded"))
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


async def test_the_api_key_is_required() -> None:
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
    (b" " * (4 * 1024 * 1024 + 1), 413, "at most 4194304 bytes"),
)


async def test_an_invalid_request_is_refused_with_the_reason() -> None:
    async with opened(judge_queue_limit=1) as client:
        for body, status, told in REFUSED:
            answer = await client.post("/judge", content=body)
            assert (answer.status_code, told in answer.json()["error"]) == (status, True), answer.text
        two = [{"evidence": "It rains.", "claim": claim} for claim in ("It rains.", "It snows.")]
        answer = await client.post("/judge", json={"pairs": two})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert (await client.post("/judge", json={"pairs": []})).json()["scores"] == []
        assert (await client.post("/judge", json={"pairs": two[:1]})).status_code == 200


@pytest.mark.parametrize("judge", ["none", "http://judge", "quatsch"])
def test_judges_that_cannot_be_served_are_refused_at_the_start(judge: str) -> None:
    with pytest.raises(SettingsError, match="GROUNDLANE_JUDGE: "):
        judge_app(Settings(_env_file=None, judge=judge))
