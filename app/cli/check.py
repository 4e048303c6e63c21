"""``groundlane check``: checks text against sources without a server."""

import asyncio
from collections.abc import Mapping

import orjson

from app.cli.terminal import Screen
from app.judge_runtime.offline import JudgeMissingError, open_cross_encoder, open_llm
from app.reply.inline_reasoning import blank_reasoning
from app.settings import Settings
from app.text_checks.presentation import claim_to_dict, report_to_dict
from judges.checker import GroundingChecker
from judges.cross_encoder import spec_languages
from judges.label_thresholds import Thresholds
from judges.llm import LlmJudge
from judges.types import Chunk, GroundingReport, ReplyVerdict


def check_text(settings: Settings, text: str, sources: Mapping[str, str]) -> GroundingReport:
    """Judge ``text`` against ``sources``, a mapping from name to text, with the default thresholds. Don't call this in
    an event loop.

    An LLM judge in the settings works as in the gateway, except that it can't use API keys stored as secrets.

    Raises SettingsError for an unknown judge, and JudgeMissingError if the judge cannot be loaded.
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


async def _check(checker: GroundingChecker, llm: LlmJudge, text: str, chunks: list[Chunk]) -> GroundingReport:
    try:
        evidence = await checker.prepare(chunks)
        if not checker.available:
            raise JudgeMissingError(f"the judge cannot be loaded: {checker.error}")
        reply = checker.reply(evidence, thresholds=Thresholds())
        for sentence in [*reply.push(blank_reasoning(text)), *reply.flush()]:
            await reply.check(sentence)
        return reply.report()
    finally:
        await checker.aclose()
        await llm.aclose()


def is_grounded(report: GroundingReport, *, strict: bool) -> bool:
    """Whether all of the text was judged, no claim is contradicted, and at most half of the claims are unverifiable. If
    ``strict``, no claim may be unverifiable. Text without claims is grounded."""
    if strict and report.unverifiable_count:
        return False
    return report.is_trusted or (report.verdict is ReplyVerdict.NO_CLAIMS and not report.unjudged)


def report_json(report: GroundingReport, *, strict: bool) -> str:
    """Format the report as indented JSON, with the field names of ``POST /v1/grounding/check``."""
    body = {"grounded": is_grounded(report, strict=strict), **report_to_dict(report)}
    return orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()


def show_report(report: GroundingReport, screen: Screen, *, strict: bool) -> None:
    """Print each sentence with its verdict and evidence, then the verdict on the whole text."""
    for sentence in report.sentences:
        screen.field(sentence.label.value, sentence.sentence.plain or sentence.sentence.text)
        for claim in sentence.claims:
            screen.claim(claim_to_dict(claim))
    screen.line()
    screen.field(
        "verdict",
        f"{report.verdict.value}: {report.summary}",
        color="green" if is_grounded(report, strict=strict) else "red",
    )
