"""How the choices of a reply are opened: each with its own policy evaluation, and a check where a judge reads it."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from app.events.recorder import Trace
from app.reply.choice import Choice
from app.reply.context import Terms
from app.reply.passthrough import Late
from app.reply.reader import Admit
from app.reply.shadow_check import Watch
from app.reply.stream_guard import Opener
from judges.checker import GroundingChecker, ReplyCheck
from judges.types import Chunk
from policies.engine import GroundingSettings, PolicySet, ReplyEvaluation
from policies.types import Action


def is_refused(policies: PolicySet, terms: Terms) -> bool:
    """Whether a policy blocks the reply for what is known before it: that no judge can look at it, say."""
    return bool(policies.in_category("grounding")) and _evaluation(policies, terms).start().action is Action.BLOCK


def _evaluation(policies: PolicySet, terms: Terms) -> ReplyEvaluation:
    return policies.evaluate_reply(terms.policy_inputs(judged=terms.unjudged is None, final=False))


def opener_of(policies: PolicySet, trace: Trace, checker: GroundingChecker, terms: Terms, evidence: Any) -> Opener:
    """Makes the choices of a reply under ``terms``; ``evidence`` is what the checker made ready of their documents."""
    if terms.unjudged is not None:
        evidence = None
    if evidence is not None:
        terms = replace(terms, attribution=checker.attribution(evidence))

    def open_choice(index: int) -> Choice:
        evaluation = _evaluation(policies, terms)
        check = _open_check(checker, evidence, evaluation.settings, terms) if evidence is not None else None
        return Choice(index, terms=terms, trace=trace, evaluation=evaluation, check=check)

    return open_choice


def admitting(late: Late, opener: Callable[[Terms, Any], Opener]) -> Admit:
    """Takes in documents that come with the reply, and opens the choices after them under what holds then."""

    async def admit(documents: Sequence[Chunk]) -> Opener:
        return opener(*await late(documents))

    return admit


def _open_check(checker: GroundingChecker, evidence: Any, settings: GroundingSettings, terms: Terms) -> ReplyCheck:
    return checker.reply(
        evidence,
        thresholds=settings.thresholds,
        max_sources_per_claim=settings.max_sources_per_claim,
        max_claims=settings.max_claims,
        correct=settings.corrects and terms.strippable,
        is_json=terms.is_json,
        asked=terms.asked,
    )


def watch(policies: PolicySet, terms: Terms, checker: GroundingChecker, evidence: Any) -> Watch:
    """Judges a reply that passes untouched, for the policies in shadow."""
    settings = policies.grounding_settings
    return Watch(lambda: _open_check(checker, evidence, settings, terms), terms.names, terms.positions)
