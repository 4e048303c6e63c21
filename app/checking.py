"""Check a text against sources without a server: what ``groundlane check`` does."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from app.screen import Screen
from app.settings import Settings, SettingsError
from judges.cross_encoder import open_scorer
from judges.pipeline import GroundingChecker
from judges.types import Chunk, ClaimVerdict, GroundingReport, Label, ReplyVerdict, Source, Thresholds


class JudgeMissingError(Exception):
    """There is no judge to ask; the message says why."""


def check_text(settings: Settings, text: str, sources: Mapping[str, str]) -> GroundingReport:
    """Judge ``text`` against ``sources`` (name to text) by the default thresholds. Runs an event loop of its own.

    Raises SettingsError for a judge that does not exist, JudgeMissingError for one that cannot be loaded.
    """
    try:
        scorer = open_scorer(settings.judge, threads=settings.judge_threads)
    except ValueError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None
    checker = GroundingChecker(
        scorer, timeout_s=settings.judge_timeout_ms / 1e3, max_sentence_chars=settings.max_sentence_chars
    )
    chunks = [Chunk(id=name, text=source, source=name) for name, source in sources.items()]
    return asyncio.run(_check(checker, text, chunks))


async def _check(checker: GroundingChecker, text: str, chunks: list[Chunk]) -> GroundingReport:
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


def is_grounded(report: GroundingReport) -> bool:
    """Nothing contradicted, and at most half of the claims found in no source; a text without claims is grounded."""
    return report.is_trusted or report.verdict is ReplyVerdict.NO_CLAIMS


def report_json(report: GroundingReport) -> str:
    """The report as indented JSON, with the names of ``POST /v1/grounding/check``."""
    body = {
        "grounded": is_grounded(report),
        "verdict": report.verdict,
        "claims": [_claim(claim) for claim in report.claims],
        "total_claims": report.total_claims,
        "supported_count": report.supported_count,
        "contradicted_count": report.contradicted_count,
        "unverifiable_count": report.unverifiable_count,
        "unverifiable_ratio": report.unverifiable_ratio,
        "trust_score": report.trust_score,
        "summary": report.summary,
    }
    return orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()


def show_report(report: GroundingReport, screen: Screen) -> None:
    """Each sentence with its verdict and evidence, then the whole."""
    for sentence in report.sentences:
        screen.field(sentence.label.value, sentence.sentence.plain or sentence.sentence.text)
        for claim in sentence.claims:
            screen.claim({**_claim(claim), "reason": claim.reason})
    screen.line()
    screen.field(
        "verdict", f"{report.verdict.value}: {report.summary}", color="green" if is_grounded(report) else "red"
    )


def _claim(verdict: ClaimVerdict) -> dict[str, Any]:
    source = verdict.contradicting_source if verdict.label is Label.CONTRADICTED else verdict.best_source
    return {
        "claim": verdict.claim.text,
        "verdict": verdict.label,
        "confidence": verdict.confidence,
        "best_source": _source(source),
        "escalated": verdict.escalated,
    }


def _source(source: Source | None) -> dict[str, Any] | None:
    if source is None:
        return None
    return {"chunk_id": source.document_id, "content": source.content, "score": source.score}
