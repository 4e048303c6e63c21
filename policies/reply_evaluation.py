"""Evaluates policies on one reply as it grows, sentence by sentence, with their combined settings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from msgspec import Struct, structs

from judges.llm_types import ScoreRequest
from judges.types import ClaimVerdict, Label
from policies import registry
from policies.base import JudgeOptions, ReplyNeeds
from policies.evaluation import (
    CombinedDecision,
    PolicyResult,
    combine,
    evaluate_policies,
    evaluate_policy,
    first_strictest,
)
from policies.types import SEVERITY, Action, Citation, Decision, Phase, Policy, PolicyInputs, UnjudgedText, Violation

DEFAULT_STREAM_MODE = "hold"
STREAM_MODES = ("live", "hold", "final")
REASONING_ACTIONS = ("pass", "judge", "drop")
TOOL_CALL_ACTIONS = ("pass", "hold", "drop")
"""The actions for tool calls, from mildest to strictest."""


def reply_needs(policy: Policy) -> ReplyNeeds:
    """Return how ``policy`` requires a reply to be handled."""
    return registry.CATEGORIES[policy.category].reply_needs(policy.rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySettings:
    """The combined settings of the policies that decide about a reply. ``needs`` has the needs of each policy, highest
    priority first."""

    needs: tuple[ReplyNeeds, ...]
    judging: JudgeOptions
    """The thresholds of the highest-priority policy that has any, and the largest limits among the policies."""
    stream_mode: str
    """The strictest mode among the policies; ``final`` is stricter than ``hold``, which is stricter than ``live``. A
    rule in ``held_to_end_by`` turns ``hold`` into ``final``."""
    held_to_end_by: tuple[str, ...]
    """The distinct names of the blocking rules that can be decided only at the end. Text that these rules may block
    must not be sent before the end. The tuple is empty if the mode would not be ``hold`` without these rules."""
    reasoning_action: str
    """The strictest action among the policies: ``drop``, then ``judge``, then ``pass``."""
    tool_call_action: str
    """The strictest action among the policies: ``drop``, then ``hold``, then ``pass``."""
    withholds_unjudged: bool
    """Whether at least one policy withholds unjudged text, by stripping it or blocking the reply."""
    reads_standings: bool
    """Whether the delivered text can depend on which text is unjudged."""
    wants_citations: bool
    """Whether at least one policy requires replies with claims to cite documents."""
    corrects: bool
    """Whether at least one policy replaces contradicted claims with corrections."""
    evidence_from_tools: bool
    """Whether at least one policy counts tool messages as documents."""
    consistency_check: bool
    """Whether at least one policy compares the claims with each other."""
    valid_citations: bool
    """Whether at least one policy checks the citations."""
    answer_relevance: bool
    """Whether at least one policy compares the claims with the question."""
    question_parts: bool
    """Whether at least one policy compares the parts of the question with the documents and the claims."""
    max_regenerations: int
    """The largest number of regenerations that any of the policies allows."""
    score_requests: tuple[ScoreRequest, ...]
    """The distinct requests for LLM scores of the whole reply that the policies need."""

    @property
    def checks_whole_reply(self) -> bool:
        """Whether the policies need results of the slow checks of the whole reply."""
        return (
            self.consistency_check
            or self.valid_citations
            or self.answer_relevance
            or self.question_parts
            or bool(self.score_requests)
        )

    def with_accepted_corrections(self, claims: Sequence[ClaimVerdict]) -> tuple[ClaimVerdict, ...]:
        """Return ``claims`` without corrections that the documents don't support under the thresholds of every
        policy."""
        if all(claim.correction is None for claim in claims):
            return tuple(claims)
        every = [needs.judging.thresholds for needs in self.needs if needs.judging is not None]
        return tuple(
            claim
            if claim.correction is None or all(thresholds.accept_correction(claim) for thresholds in every)
            else replace(claim, correction=None, corrected=())
            for claim in claims
        )

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> "ReplySettings":
        """Combine the settings of ``policies``, which decide about replies and are given in order of priority."""
        every = tuple(reply_needs(policy) for policy in policies)
        modes = [needs.stream_mode for needs in every if needs.stream_mode is not None]
        mode = max(modes, key=STREAM_MODES.index, default=DEFAULT_STREAM_MODE)
        raising = [name for needs in every for name in needs.blocks_at_end] if mode == "hold" else []
        return cls(
            needs=every,
            judging=_joint([needs.judging for needs in every if needs.judging is not None]),
            stream_mode="final" if raising else mode,
            held_to_end_by=tuple(dict.fromkeys(raising)),
            reasoning_action=_strictest((needs.reasoning_action for needs in every), REASONING_ACTIONS),
            tool_call_action=_strictest((needs.tool_call_action for needs in every), TOOL_CALL_ACTIONS),
            withholds_unjudged=any(needs.withholds_unjudged for needs in every),
            reads_standings=any(needs.reads_standings for needs in every),
            wants_citations=any(needs.wants_citations for needs in every),
            corrects=any(needs.corrects for needs in every),
            evidence_from_tools=any(needs.evidence_from_tools for needs in every),
            consistency_check=any(needs.consistency_check for needs in every),
            valid_citations=any(needs.valid_citations for needs in every),
            answer_relevance=any(needs.answer_relevance for needs in every),
            question_parts=any(needs.question_parts for needs in every),
            max_regenerations=max((needs.max_regenerations for needs in every), default=0),
            score_requests=tuple(
                dict.fromkeys(needs.score_request for needs in every if needs.score_request is not None)
            ),
        )


def _joint(every: Sequence[JudgeOptions]) -> JudgeOptions:
    if not every:
        return JudgeOptions()
    limits = [judging.max_claims for judging in every if judging.max_claims is not None]
    return JudgeOptions(
        thresholds=every[0].thresholds,
        max_sources=max(judging.max_sources for judging in every),
        # If one policy sets no limit, every claim is judged.
        max_claims=max(limits) if len(limits) == len(every) else None,
    )


def _strictest(actions: Iterable[str], order: Sequence[str]) -> str:
    return max(actions, key=order.index, default=order[0])


class SentenceDecision(Struct, frozen=True, kw_only=True):
    """The decision on one sentence. If ``action`` is ``block``, the reply ends before the sentence. ``strip`` means
    that the sentence is left out. ``corrected`` are the claims to replace with their ``correction``. ``uncorrected``
    means that a policy requires a correction for a claim that has none. ``left_out`` is the unjudged text to leave out
    of the sentence, in order. ``cause`` is the first of the strictest violations.
    """

    action: Action = Action.ALLOW
    strip: bool = False
    corrected: tuple[ClaimVerdict, ...] = ()
    uncorrected: bool = False
    left_out: tuple[UnjudgedText, ...] = ()
    cause: Violation | None = None

    @property
    def reason(self) -> str | None:
        return self.cause.reason if self.cause else None


_ALLOWED = SentenceDecision()


class ReplyEvaluation:
    """The evaluation of one reply by policies. Each of the reply's ``n`` choices has its own evaluation.

    Call ``start``, then ``sentence`` for each sentence, then ``finish``; or ``abort`` if the reply ends early. Each
    policy makes one decision per phase, however many sentences there are. Without policies, the evaluation never blocks
    and makes no decisions.

    Args:
        policies: the policies that decide about the reply, in order of priority.
        inputs: the information known before the reply: the documents that are kept, the caller's reports, and whether
            there is a judge.
        settings: the combined settings of ``policies``.
    """

    def __init__(self, policies: Sequence[Policy], inputs: PolicyInputs, *, settings: ReplySettings) -> None:
        self.settings = settings
        self._policies = tuple(policies)
        self._inputs = replace(inputs, final=False) if inputs.final else inputs
        self._decisions: list[Decision] = []
        self._claims: list[ClaimVerdict] = []
        self._unjudged: list[UnjudgedText] = []
        # By policy and version: if a policy changes during a run, both versions apply to the run.
        self._withheld: dict[tuple[str, int], set[int]] = {(policy.id, policy.version): set() for policy in policies}
        self._blocking: set[tuple[str, int]] = set()
        self._spent_ms = dict.fromkeys(self._withheld, 0.0)
        self._closed = False

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions so far, in order."""
        return tuple(self._decisions)

    @property
    def withheld(self) -> frozenset[int]:
        """The indices of sentences that were left out or replaced by a correction."""
        return frozenset[int]().union(*self._withheld.values())

    @property
    def on_block(self) -> str:
        """``replace`` or ``error``, as set by the highest-priority blocking policy; ``replace`` if no policy blocks."""
        return next((needs.on_block for needs in self._blocking_needs()), ReplyNeeds().on_block)

    @property
    def abstention_response(self) -> str | None:
        """The abstention response of the highest-priority blocking policy that has one. If no policy blocks but all
        text was removed from the reply, this is the abstention response of the highest-priority policy that leaves text
        out."""
        return first_abstention(self._blocking_needs() or self._stripping_needs())

    def start(self) -> CombinedDecision:
        """Bind the rules and check what is already known. If this blocks, the evaluation is closed."""
        if not self._policies:
            return CombinedDecision()
        before = self._evaluate(Phase.BEFORE_WORKFLOW, self._inputs)
        self._decisions += (result.decision for result in before)
        mid = self._evaluate(Phase.MID_EXECUTION, self._inputs)
        known = combine(mid)
        if known.action is Action.BLOCK:
            return combine([*before, *self._close(mid)])
        return structs.replace(known, decisions=tuple(result.decision for result in before))

    def start_before_call(self) -> CombinedDecision:
        """Like ``start``, but for use before the upstream is called. Also run the checks whose result no reply can
        change, such as those of a reported confidence, or of required citations when there are no documents."""
        opening = self.start()
        if self._closed or not self._policies:
            return opening
        known = self._evaluate(Phase.AFTER_WORKFLOW, self._inputs)
        if combine(known).action is not Action.BLOCK:
            return opening
        mid = self._close(self._evaluate(Phase.MID_EXECUTION, self._inputs))
        self._decisions += (result.decision for result in known)
        return structs.replace(combine([*mid, *known]), decisions=self.decisions)

    def sentence(self, claims: Sequence[ClaimVerdict], unjudged: Sequence[UnjudgedText] = ()) -> SentenceDecision:
        """Check the claims and the unjudged text of the latest sentence before it is sent."""
        if not claims and not unjudged:
            return _ALLOWED
        self._claims += claims
        self._unjudged += unjudged
        claims = self.settings.with_accepted_corrections(claims)
        replaceable = self._inputs.strippable
        inputs = PolicyInputs(
            chunks=self._inputs.chunks,
            claims=claims,
            unjudged=unjudged,
            final=False,
            of_sentence=True,
            strippable=replaceable,
            indivisible=self._inputs.indivisible,
        )
        results = self._evaluate(Phase.MID_EXECUTION, inputs)
        violations = [violation for result in results for violation in result.violations]
        every = [needs.repairs for needs in self.settings.needs if needs.repairs is not None]
        corrected: tuple[ClaimVerdict, ...] = ()
        if any(repairs.is_corrected(claim, replaceable=replaceable) for repairs in every for claim in claims):
            # The corrections of a sentence were judged together, so they are also applied together.
            corrected = tuple(claim for claim in claims if claim.correction is not None)
        failed = [claim for claim in claims if claim not in corrected]
        uncorrected = any(repairs.needs_correction(claim) for repairs in every for claim in failed)
        if not violations and not uncorrected:
            return _ALLOWED
        cause = first_strictest(violations)
        strip = any(repairs.is_stripped(claim, replaceable=replaceable) for repairs in every for claim in claims)
        leaves_out = any(repairs.leaves_out_unjudged(replaceable=replaceable) for repairs in every)
        self._withhold(claims)
        return SentenceDecision(
            action=cause.action if cause else Action.ALLOW,
            strip=strip,
            corrected=corrected,
            uncorrected=uncorrected,
            left_out=tuple(unjudged) if leaves_out else (),
            cause=cause,
        )

    def retract(self, claims: Sequence[ClaimVerdict], unjudged: Sequence[UnjudgedText] = ()) -> None:
        """Undo the check of the latest sentence, with its ``claims`` and ``unjudged`` text, because the sentence is not
        part of the reply after all."""
        self._claims = [claim for claim in self._claims if not any(claim is other for other in claims)]
        self._unjudged = [text for text in self._unjudged if not any(text is other for other in unjudged)]
        for withheld in self._withheld.values():
            withheld.difference_update(claim.claim.sentence_index for claim in claims)
        self._blocking.clear()  # otherwise, the reply would have ended before this sentence

    def finish(self, inputs: PolicyInputs, *, left_out: Sequence[Citation] = ()) -> CombinedDecision:
        """Make the decisions that need the complete reply.

        ``inputs`` are the inputs at the start, plus citations, trust score and coverage. They also have the claims and
        the unjudged text; if these are empty, those checked so far are used. ``left_out`` are the citations in text
        that was left out of the reply. Once the evaluation is closed, this does nothing.

        Each policy decides twice: about the delivered reply, and about the reply that it would have delivered alone,
        which includes text that only other policies left out. The stricter decision counts, so no policy overrules
        another by leaving text out.
        """
        if self._closed or not self._policies:
            return CombinedDecision()
        inputs = replace(
            inputs,
            claims=self.settings.with_accepted_corrections(inputs.claims or self._claims),
            unjudged=inputs.unjudged or tuple(self._unjudged),
            final=True,
            strippable=self._inputs.strippable,
            indivisible=self._inputs.indivisible,
            withheld=self.withheld,
        )
        mid = self._close(self._evaluate(Phase.MID_EXECUTION, inputs, left_out))
        after = self._evaluate(Phase.AFTER_WORKFLOW, inputs, left_out)
        self._decisions += (result.decision for result in after)
        return combine([*mid, *after])

    def abort(self) -> CombinedDecision:
        """Decide based on the checks so far, because the reply ends early. Once the evaluation is closed, this does
        nothing."""
        if self._closed or not self._policies:
            return CombinedDecision()
        claims = self.settings.with_accepted_corrections(self._claims)
        inputs = replace(self._inputs, claims=claims, unjudged=tuple(self._unjudged))
        return combine(self._close(self._evaluate(Phase.MID_EXECUTION, inputs)))

    def _evaluate(
        self, phase: Phase, inputs: PolicyInputs, left_out: Sequence[Citation] | None = None
    ) -> list[PolicyResult]:
        """Evaluate the policies, and record which of them block and how long the checks took. At the end of the reply,
        ``left_out`` are the citations in text that was left out of it."""
        if left_out is None or not (left_out or inputs.withheld):
            results = evaluate_policies(self._policies, phase, inputs)
        else:
            results = self._evaluate_alone(phase, inputs, left_out)
        for result in results:
            key = result.policy.id, result.policy.version
            if result.decision.action is Action.BLOCK:
                self._blocking.add(key)
            if phase is Phase.MID_EXECUTION:
                self._spent_ms[key] += result.decision.latency_ms
        return results

    def _evaluate_alone(self, phase: Phase, inputs: PolicyInputs, left_out: Sequence[Citation]) -> list[PolicyResult]:
        """Evaluate each policy for the delivered reply and for the one that it would have delivered alone, and return
        the stricter results."""
        results = []
        for policy, needs in zip(self._policies, self.settings.needs, strict=True):
            result = evaluate_policy(policy, phase, inputs)
            if result is not None and (alone := self._alone(policy, needs, inputs, left_out)) is not None:
                other = evaluate_policy(policy, phase, alone) or result
                result = max(result, other, key=lambda each: SEVERITY[each.decision.action])
            results += [] if result is None else [result]
        return results

    def _alone(
        self, policy: Policy, needs: ReplyNeeds, inputs: PolicyInputs, left_out: Sequence[Citation]
    ) -> PolicyInputs | None:
        """Return the inputs for the reply that ``policy`` would have delivered alone, or None if it is the same
        reply."""
        own = frozenset(self._withheld[policy.id, policy.version])
        removes = needs.repairs is not None and needs.repairs.leaves_out_unjudged(replaceable=inputs.strippable)
        restored = [
            citation
            for citation in left_out
            if citation.sentence_index not in own and (citation.document_index is not None or not removes)
        ]
        if own == inputs.withheld and not restored:
            return None
        trust = trust_of(claim for claim in inputs.claims if claim.claim.sentence_index not in own)
        return replace(
            inputs,
            withheld=own,
            citations=(*inputs.citations, *restored),
            trust_score=trust if inputs.judged else inputs.trust_score,
        )

    def _withhold(self, claims: Sequence[ClaimVerdict]) -> None:
        """Record which policies leave out or correct a sentence with ``claims``."""
        replaceable = self._inputs.strippable
        for policy, needs in zip(self._policies, self.settings.needs, strict=True):
            repairs = needs.repairs
            if repairs is not None and any(
                repairs.is_stripped(claim, replaceable=replaceable)
                or repairs.is_corrected(claim, replaceable=replaceable)
                for claim in claims
            ):
                self._withheld[policy.id, policy.version].update(claim.claim.sentence_index for claim in claims)

    def _close(self, mid: Sequence[PolicyResult]) -> list[PolicyResult]:
        """Record a single ``mid_execution`` decision for each policy, with the total time of all its checks."""
        self._closed = True
        closed = [
            structs.replace(
                result,
                decision=structs.replace(
                    result.decision, latency_ms=self._spent_ms[result.policy.id, result.policy.version]
                ),
            )
            for result in mid
        ]
        self._decisions += (result.decision for result in closed)
        return closed

    def _blocking_needs(self) -> list[ReplyNeeds]:
        paired = zip(self._policies, self.settings.needs, strict=True)
        return [needs for policy, needs in paired if (policy.id, policy.version) in self._blocking]

    def _stripping_needs(self) -> list[ReplyNeeds]:
        return [needs for needs in self.settings.needs if needs.strips] if self._inputs.strippable else []


def trust_of(claims: Iterable[ClaimVerdict]) -> float | None:
    """Return the share of supported claims, or None if there are no claims."""
    labels = [claim.label for claim in claims]
    return labels.count(Label.SUPPORTED) / len(labels) if labels else None


def first_abstention(every: Iterable[ReplyNeeds]) -> str | None:
    """Return the first abstention response in ``every``, or None."""
    return next((needs.abstention_response for needs in every if needs.abstention_response is not None), None)
