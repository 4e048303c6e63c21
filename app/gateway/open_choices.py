"""How the choices of a reply are opened: each with its own policy evaluation, and a check where a judge reads it."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from app.events.recorder import RequestRecorder
from app.reply.choice import Choice
from app.reply.context import ReplyContext
from app.reply.passthrough import Late
from app.reply.reader import Admit
from app.reply.shadow_check import ShadowCheck
from app.reply.stream_guard import Opener
from judges.checker import GroundingChecker, ReplyCheck
from judges.types import Chunk
from policies.engine import GroundingSettings, PolicySet, ReplyEvaluation
from policies.types import Action


def is_refused(policies: PolicySet, context: ReplyContext) -> bool:
    """Whether a policy blocks the reply for what is known before it: that no judge can look at it, say."""
    return bool(policies.in_category("grounding")) and _evaluation(policies, context).start().action is Action.BLOCK


def _evaluation(policies: PolicySet, context: ReplyContext) -> ReplyEvaluation:
    return policies.evaluate_reply(context.policy_inputs(judged=context.unjudged is None, final=False))


def opener_of(
    policies: PolicySet, recorder: RequestRecorder, checker: GroundingChecker, context: ReplyContext, evidence: Any
) -> Opener:
    """Makes the choices of a reply under ``context``; ``evidence`` is their documents, prepared."""
    if context.unjudged is not None:
        evidence = None
    if evidence is not None:
        context = replace(context, citation_checker=checker.citation_checker(evidence))

    def open_choice(index: int) -> Choice:
        evaluation = _evaluation(policies, context)
        check = _open_check(checker, evidence, evaluation.settings, context) if evidence is not None else None
        return Choice(index, context=context, recorder=recorder, evaluation=evaluation, check=check)

    return open_choice


def admitting(late: Late, opener: Callable[[ReplyContext, Any], Opener]) -> Admit:
    """Takes in documents that come with the reply, and opens the choices after them under what holds then."""

    async def admit(documents: Sequence[Chunk]) -> Opener:
        return opener(*await late(documents))

    return admit


def _open_check(
    checker: GroundingChecker, evidence: Any, settings: GroundingSettings, context: ReplyContext
) -> ReplyCheck:
    return checker.reply(
        evidence,
        thresholds=settings.thresholds,
        max_sources_per_claim=settings.max_sources_per_claim,
        max_claims=settings.max_claims,
        correct=settings.corrects and context.strippable,
        is_json=context.is_json,
        question=context.asked,
    )


def watch(policies: PolicySet, context: ReplyContext, checker: GroundingChecker, evidence: Any) -> ShadowCheck:
    """Judges a reply that passes untouched, for the policies in shadow."""
    settings = policies.grounding_settings
    return ShadowCheck(lambda: _open_check(checker, evidence, settings, context), context.names, context.positions)
