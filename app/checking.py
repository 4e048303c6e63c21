"""Check a text against sources without a server: what ``groundlane check`` does."""

import asyncio
from collections.abc import Mapping

import orjson

from app.check_view import shown_claim, shown_report
from app.config import load_config
from app.llm_judge import open_llm_judge
from app.screen import Screen
from app.settings import Settings, SettingsError
from judges.base import PairScorer
from judges.cross_encoder import open_scorer, spec_languages
from judges.llm import LlmJudge
from judges.pipeline import GroundingChecker
from judges.types import Chunk, GroundingReport, ReplyVerdict, Thresholds


class JudgeMissingError(Exception):
    """There is no judge to ask; the message says why."""


def check_text(settings: Settings, text: str, sources: Mapping[str, str]) -> GroundingReport:
    """Judge ``text`` against ``sources`` (name to text) by the default thresholds. Runs an event loop of its own.

    An LLM that the settings name is asked as the gateway asks it, but for keys that are kept as secrets.

    Raises SettingsError for a judge that does not exist, JudgeMissingError for one that cannot be loaded.
    """
    llm = open_llm(settings)
    checker = GroundingChecker(
        open_cross_encoder(settings),
        llm=llm,
        languages=spec_languages(settings.judge),
        timeout_s=settings.judge_timeout_ms / 1e3,
        max_sentence_chars=settings.max_sentence_chars,
    )
    chunks = [Chunk(id=name, text=source, source=name) for name, source in sources.items()]
    return asyncio.run(_check(checker, llm, text, chunks))


def open_cross_encoder(settings: Settings) -> PairScorer | None:
    """The cross-encoder of the settings, not loaded yet. Raises SettingsError for one that does not exist."""
    try:
        key = settings.judge_api_key.get_secret_value() if settings.judge_api_key else None
        return open_scorer(settings.judge, threads=settings.judge_threads, api_key=key)
    except ValueError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None


def open_llm(settings: Settings) -> LlmJudge:
    """The LLM judge of the settings, without the keys that are kept as secrets. Raises SettingsError."""
    upstreams = load_config(settings).upstreams if settings.llm_judge_model is not None else ()
    return open_llm_judge(settings, upstreams, _NoSecrets(), lambda _call: None)


class _NoSecrets:
    """The secrets are in the gateway's database, which is not opened here."""

    def key(self, name: str) -> str | None:
        return None


async def _check(checker: GroundingChecker, llm: LlmJudge, text: str, chunks: list[Chunk]) -> GroundingReport:
    try:
        evidence = await checker.prepare(chunks)
        if not checker.available:
            raise JudgeMissingError(f"the judge cannot be loaded: {checker.error}")
        reply = checker.reply(evidence, thresholds=Thresholds())
        for sentence in [*reply.push(text), *reply.flush()]:
            await reply.check(sentence)
        return reply.report()
    finally:
        await checker.aclose()
        await llm.aclose()


def is_grounded(report: GroundingReport) -> bool:
    """Nothing contradicted, and at most half of the claims found in no source; a text without claims is grounded."""
    return report.is_trusted or report.verdict is ReplyVerdict.NO_CLAIMS


def report_json(report: GroundingReport) -> str:
    """The report as indented JSON, with the names of ``POST /v1/grounding/check``."""
    body = {"grounded": is_grounded(report), **shown_report(report)}
    return orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()


def show_report(report: GroundingReport, screen: Screen) -> None:
    """Each sentence with its verdict and evidence, then the whole."""
    for sentence in report.sentences:
        screen.field(sentence.label.value, sentence.sentence.plain or sentence.sentence.text)
        for claim in sentence.claims:
            screen.claim(shown_claim(claim))
    screen.line()
    screen.field(
        "verdict", f"{report.verdict.value}: {report.summary}", color="green" if is_grounded(report) else "red"
    )
