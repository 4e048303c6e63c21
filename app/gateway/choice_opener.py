"""Opens the choices of a reply: each with its own evaluation of the policies, and a check if a judge looks at it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from app.events.recorder import Timings
from app.reply.checks.shadow_check import ShadowCheck
from app.reply.choice import Choice
from app.reply.context import ReplyContext
from judges.checker import GroundingChecker, ReplyCheck
from judges.evidence.index import EvidenceIndex
from judges.types import Chunk
from policies.citations.markers import names_only_documents
from policies.engine import GroundingSettings, PolicySet, ReplyEvaluation
from policies.types import PolicyInputs

LateDocuments = Callable[[Sequence[Chunk]], Awaitable[tuple[ReplyContext, EvidenceIndex | None]]]
"""Takes in documents that come with a reply; returns the context and the evidence of the choices opened after them."""

_NO_DECISIONS = PolicySet().evaluate_reply(PolicyInputs())
"""Stateless, since no policy is in it."""


class UntouchedChoices:
    """Opens the choices of a reply that passes untouched. Without ``late``, documents in the reply are no evidence."""

    def __init__(self, context: ReplyContext, timings: Timings, late: LateDocuments | None) -> None:
        self._context = context
        self._timings = timings
        self._late = late

    def open(self, index: int) -> Choice:
        return Choice(index, context=self._context, timings=self._timings, evaluation=_NO_DECISIONS, check=None)

    async def add_documents(self, documents: Sequence[Chunk]) -> None:
        if self._late is not None:
            self._context, _ = await self._late(documents)


class GovernedChoices:
    """Opens the choices of a reply that ``policies`` decide about. ``evidence``: their documents, prepared."""

    def __init__(
        self,
        *,
        policies: PolicySet,
        checker: GroundingChecker,
        context: ReplyContext,
        evidence: EvidenceIndex | None,
        timings: Timings,
        late: LateDocuments | None,
    ) -> None:
        self._policies = policies
        self._checker = checker
        self._timings = timings
        self._late = late
        self._use(context, evidence)

    def open(self, index: int) -> Choice:
        evaluation = _evaluate(self._policies, self._context)
        check = None
        if self._evidence is not None:
            check = _open_check(self._checker, self._evidence, evaluation.settings, self._context)
        return Choice(index, context=self._context, timings=self._timings, evaluation=evaluation, check=check)

    async def add_documents(self, documents: Sequence[Chunk]) -> None:
        if self._late is not None:
            self._use(*await self._late(documents))

    def _use(self, context: ReplyContext, evidence: EvidenceIndex | None) -> None:
        self._evidence = evidence if context.unjudged is None else None
        if self._evidence is None and self._policies.in_category("grounding"):
            # Nothing can be judged, but what of the reply states nothing is known all the same.
            self._evidence = EvidenceIndex((), (), window_tokens=1, chunks=context.chunks)
        elif self._evidence is not None:
            context = replace(context, citation_checker=self._checker.citation_checker(self._evidence))
        self._context = context


def shadow_check(
    policies: PolicySet, context: ReplyContext, checker: GroundingChecker, evidence: EvidenceIndex
) -> ShadowCheck:
    """Judges a reply that passes untouched, for the shadow policies."""
    settings = policies.grounding_settings
    return ShadowCheck(lambda: _open_check(checker, evidence, settings, context), context.names)


def _evaluate(policies: PolicySet, context: ReplyContext) -> ReplyEvaluation:
    return policies.evaluate_reply(context.policy_inputs(judged=context.unjudged is None, final=False))


def _open_check(
    checker: GroundingChecker, evidence: EvidenceIndex, settings: GroundingSettings, context: ReplyContext
) -> ReplyCheck:
    return checker.reply(
        evidence,
        thresholds=settings.thresholds,
        max_sources_per_claim=settings.max_sources_per_claim,
        # Where no judge looks at the reply, that is why its claims have no verdict, whatever their number.
        max_claims=settings.max_claims if context.unjudged is None else None,
        correct=settings.corrects and context.strippable,
        is_json=context.is_json,
        question=context.asked,
        conversation=context.conversation,
        resolves=partial(names_only_documents, names=context.names),
    )
