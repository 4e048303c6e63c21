"""A remote judge, from the setting to the verdict, over a real connection."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.cli.check import check_text
from app.judge_runtime.offline import JudgeMissingError
from app.resources import open_resources
from app.settings import Settings, SettingsError
from judges.label_thresholds import Thresholds
from judges.types import Chunk, Label
from tests.support.gateways.json_server import QuietHandler, served

SOURCES = {"hr.txt": "Permanent staff receive 25 days of annual leave."}
TEXT = "Permanent staff receive annual leave. Dauerhaft Beschäftigte bekommen den Urlaub nicht ausgezahlt."


class Judge(QuietHandler):
    """Implements our own protocol, supports English, and finds every claim entailed."""

    key = "s3cret"

    def do_GET(self) -> None:
        self.answer(
            {"protocol": "groundlane-judge/1", "model": "far@1", "max_tokens": 200, "max_batch": 8, "languages": ["en"]}
        )

    def do_POST(self) -> None:
        body = json.loads(self.body())
        self.answer({"scores": [{"entailed": 0.98, "neutral": 0.01, "contradicted": 0.01} for _ in body["pairs"]]})

    def answer(self, body: dict[str, Any]) -> None:
        allowed = self.headers.get("authorization") == f"Bearer {self.key}"
        self.respond_json(200, body) if allowed else self.respond(401, b"")


@pytest.fixture
def url() -> Iterator[str]:
    with served(Judge) as url:
        yield url


def settings(url: str, key: str = "s3cret", **named: Any) -> Settings:
    return Settings(judge=f"http:{url}", judge_api_key=SecretStr(key), judge_preload=True, **named)


def test_remote_judge_checks_texts_in_its_languages(url: str) -> None:
    report = check_text(settings(url), TEXT, SOURCES)
    assert [(claim.label, claim.reason) for claim in report.claims] == [
        (Label.SUPPORTED, None),
        (Label.UNVERIFIABLE, "language"),
    ]


def test_wrong_key_is_reported_without_the_key(url: str) -> None:
    with pytest.raises(JudgeMissingError, match="API key rejected") as refused:
        check_text(settings(url, key="wr0ng"), TEXT, SOURCES)
    assert "wr0ng" not in str(refused.value)


def test_unknown_option_names_the_setting() -> None:
    with pytest.raises(SettingsError, match=r"GROUNDLANE_JUDGE: .* unknown option 'temperature'"):
        check_text(Settings(judge="http:http://judge?temperature=1"), TEXT, SOURCES)


@pytest.mark.anyio
async def test_gateway_uses_it_and_counts_its_requests(url: str, tmp_path: Path) -> None:
    database = f"sqlite+aiosqlite:///{tmp_path}/g.db"
    async with open_resources(settings(url, database_url=database)) as resources:
        assert (resources.checker.available, resources.checker.name) == (True, "http:far@1")
        assert "groundlane_judge_pairs_total 0.0" in resources.metrics.render().decode()


@pytest.mark.anyio
async def test_judged_pair_is_not_requested_again(url: str, tmp_path: Path) -> None:
    database = f"sqlite+aiosqlite:///{tmp_path}/g.db"
    async with open_resources(settings(url, database_url=database)) as resources:
        for _ in range(2):
            evidence = await resources.checker.prepare([Chunk(id="hr", text=SOURCES["hr.txt"])])
            check = resources.checker.reply(evidence, thresholds=Thresholds())
            (sentence,) = [*check.push("Permanent staff receive annual leave."), *check.flush()]
            assert (await check.check(sentence)).label is Label.SUPPORTED
        told = resources.metrics.render().decode()
        assert "groundlane_judge_pairs_total 1.0" in told
        assert "groundlane_judge_cache_hits_total 1.0" in told
