"""Evaluates grounding policies, which check that the sources support the reply.

``mid_execution`` runs the checks that are possible after each sentence (scores, claims, and unjudged text that must not
be sent). ``after_workflow`` runs the checks that need the whole reply. If the inputs are not final, ``after_workflow``
only makes decisions that can no longer change. The evaluator keeps no state between calls. It finds the same violations
whether it gets the claims all at once or one by one.

``SENTENCE_CHECKS`` and ``REPLY_CHECKS`` list all checks and say when each of them decides. Everything else is derived
from these lists.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from policies.base import (
    Category,
    CategoryResult,
    GatewayFacts,
    JudgeOptions,
    ReplyNeeds,
    RuleWarning,
    comparison_gaps,
)
from policies.citations.extraction import distinct_documents
from policies.grounding.citation_checks import check_citations, check_grounding_required, check_min_citations
from policies.grounding.consistency_check import check_consistency
from policies.grounding.minimum_scores import (
    answer_notes,
    check_answer_relevance,
    check_confidence,
    check_llm_score,
    check_scores,
    llm_notes,
    scores_of,
    unused_scores,
)
from policies.grounding.rule_warnings import rule_warnings
from policies.grounding.rules import WITHHOLDING, GroundingRules
from policies.grounding.sentence_checks import (
    check_contradictions,
    check_coverage,
    check_sentence_claims,
    check_sentence_unjudged,
    check_unjudged,
    check_unsupported_claims,
    check_unverifiable_ratio,
)
from policies.types import Action, Phase, PolicyInputs, PolicySubject, Violation

RulesTest = Callable[[GroundingRules], bool]
InputsTest = Callable[[GroundingRules, PolicyInputs], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check, and when it decides. ``blocks_at_end`` returns whether, with the given rules, the check can block a
    reply in which every sentence passed. ``rule`` is the name of the rule that requires the check. ``known_before``
    means that the result of the check depends only on the request, so nothing in the reply can change it."""

    find: Callable[[GroundingRules, PolicyInputs], Iterator[Violation]]
    rule: str | None = None
    blocks_at_end: RulesTest = lambda rules: False
    known_before: InputsTest = lambda rules, inputs: False


def find_violations(checks: Sequence[Check], rules: GroundingRules, inputs: PolicyInputs) -> tuple[Violation, ...]:
    """Return the violations that ``checks`` find, in the order of the checks."""
    return tuple(violation for check in checks for violation in check.find(rules, inputs))


def whole_reply_rules(rules: GroundingRules) -> tuple[str, ...]:
    """Return the names of the blocking rules that can be decided only when the reply is complete."""
    checks = (*SENTENCE_CHECKS, *REPLY_CHECKS)
    return tuple(dict.fromkeys(each.rule for each in checks if each.rule is not None and each.blocks_at_end(rules)))


def anything_reported(inputs: PolicyInputs) -> bool:
    """Return whether the caller has reported information about the reply, or may still report it in the run."""
    if inputs.of_run or inputs.reported_scores or inputs.reported_unsupported or inputs.output_confidence is not None:
        return True
    return any(citation.reported for citation in inputs.citations)


def _blocks(rules: GroundingRules) -> bool:
    return rules.action_on_violation == "block"


def _cannot_cite(rules: GroundingRules, inputs: PolicyInputs) -> bool:
    """Return whether citations are required although there are no documents to cite."""
    has_sources = inputs.chunks or inputs.documents_may_follow or inputs.of_run or inputs.citations
    return rules.require_source_grounding and not has_sources


def _check_judged(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """Report that no judge is available for a reply with documents."""
    if inputs.judge_unavailable and inputs.chunks:
        yield Violation(
            action=Action.BLOCK if rules.on_judge_unavailable == "block" else Action.WARN,
            reason="Reply not checked: no judge is available",
            reason_code="GROUNDING_NOT_CHECKED",
        )


def _check_judged_early(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    if not inputs.final and rules.on_judge_unavailable == "block":
        yield from _check_judged(rules, inputs)


def _check_llm_score(phase: Phase) -> Callable[[GroundingRules, PolicyInputs], Iterator[Violation]]:
    return lambda rules, inputs: check_llm_score(rules, inputs, phase)


def _llm_score_blocks(rules: GroundingRules) -> bool:
    return _blocks(rules) and rules.llm_grounding_check


SENTENCE_CHECKS = (
    # Contradictions come before low scores. A contradicted claim has a low score too, and the first violation
    # determines the reason of the decision.
    Check(find=_check_judged_early),
    Check(find=check_sentence_claims),
    Check(find=check_sentence_unjudged),
    Check(
        find=check_scores,
        rule="score_eval_mode",
        blocks_at_end=lambda rules: _blocks(rules) and rules.score_source == "judge" and rules.score_eval_mode != "all",
    ),
    Check(find=_check_llm_score(Phase.MID_EXECUTION), rule="llm_grounding_check", blocks_at_end=_llm_score_blocks),
)
"""The checks of ``mid_execution``, in the order of evaluation."""

REPLY_CHECKS = (
    Check(find=_check_judged),
    Check(
        find=check_min_citations,
        rule="min_citations",
        blocks_at_end=lambda rules: _blocks(rules) and rules.min_citations > 0,
        known_before=_cannot_cite,
    ),
    Check(
        find=check_grounding_required,
        rule="require_source_grounding",
        blocks_at_end=lambda rules: _blocks(rules) and rules.require_source_grounding,
        known_before=_cannot_cite,
    ),
    Check(
        find=check_unsupported_claims,
        rule="max_unsupported_claims",
        blocks_at_end=lambda rules: _blocks(rules) and rules.max_unsupported_claims is not None,
        known_before=lambda rules, inputs: True,  # the reply can only add to the reported claims
    ),
    Check(
        find=check_unverifiable_ratio,
        rule="max_unverifiable_ratio",
        blocks_at_end=lambda rules: rules.unverifiable_action == "block" and rules.max_unverifiable_ratio < 1,
    ),
    Check(find=check_contradictions),
    Check(
        find=check_consistency,
        rule="factual_consistency_check",
        blocks_at_end=lambda rules: _blocks(rules) and rules.factual_consistency_check,
    ),
    Check(
        find=check_confidence,
        rule="abstention_threshold",
        blocks_at_end=lambda rules: _blocks(rules) and rules.abstention_threshold is not None,
        known_before=lambda rules, inputs: inputs.output_confidence is not None,
    ),
    Check(
        find=check_answer_relevance,
        rule="min_answer_relevance",
        blocks_at_end=lambda rules: _blocks(rules) and bool(rules.min_answer_relevance),
    ),
    Check(find=_check_llm_score(Phase.AFTER_WORKFLOW), rule="llm_grounding_check", blocks_at_end=_llm_score_blocks),
    Check(
        find=check_citations,
        rule="require_valid_citations",
        blocks_at_end=lambda rules: _blocks(rules) and rules.require_valid_citations,
    ),
    Check(find=check_unjudged),
    Check(
        find=check_coverage,
        rule="min_coverage",
        blocks_at_end=lambda rules: _blocks(rules) and rules.min_coverage > 0,
    ),
)
"""The checks of ``after_workflow``, in the order of evaluation."""


__all__ = ["GROUNDING", "GroundingEvaluator", "GroundingRules"]


class GroundingEvaluator(Category):
    """The category ``grounding``."""

    name = "grounding"
    rules = GroundingRules
    subjects = frozenset({PolicySubject.REPLY})

    def reply_needs(self, rules: GroundingRules) -> ReplyNeeds:
        """See ``policies.base.Category``."""
        withholds = rules.unjudged_action in WITHHOLDING
        return ReplyNeeds(
            judging=JudgeOptions(
                thresholds=rules.thresholds, max_sources=rules.max_sources_per_claim, max_claims=rules.max_claims
            ),
            stream_mode=rules.stream_mode,
            blocks_at_end=whole_reply_rules(rules),
            reasoning_action=rules.reasoning_action,
            tool_call_action=rules.tool_call_action,
            withholds_unjudged=withholds,
            reads_standings=withholds or rules.min_coverage > 0,
            wants_citations=rules.require_source_grounding or rules.min_citations > 0,
            corrects=rules.contradiction_action == "correct",
            strips="strip" in (rules.unjudged_action, rules.unverifiable_action),
            evidence_from_tools=rules.evidence_from_tools,
            consistency_check=rules.factual_consistency_check,
            valid_citations=rules.require_valid_citations,
            answer_relevance=rules.min_answer_relevance is not None,
            question_parts=rules.report_completeness,
            max_regenerations=rules.max_regenerations,
            score_request=rules.score_request,
            scores_results=rules.llm_grounding_phase != Phase.MID_EXECUTION.value,
            scores_documents=rules.score_source == "retrieval",
            on_block=rules.on_block,
            abstention_response=rules.abstention_response,
            repairs=rules,
        )

    def warnings(self, rules: GroundingRules, facts: GatewayFacts) -> Iterable[RuleWarning]:
        """See ``policies.base.Category``."""
        return rule_warnings(rules, facts, whole_reply=whole_reply_rules(rules))

    def evaluate(self, phase: Phase, rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult | None:
        """See ``policies.base.Category``."""
        match phase:
            case Phase.BEFORE_WORKFLOW:
                return CategoryResult(reason="Grounding rules bound")
            case Phase.MID_EXECUTION:
                result = _check_sentences(rules, inputs)
            case Phase.AFTER_WORKFLOW:
                result = _check_reply(rules, inputs) if inputs.final else _check_request(rules, inputs)
        notes, warnings = llm_notes(rules, inputs, phase)
        notes = {**result.notes, **unused_scores(rules, inputs), **notes}
        return structs.replace(result, notes=notes, warnings=warnings) if notes or warnings else result


def _check_sentences(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    scores = scores_of(rules, inputs)
    reason = f"Grounding scores within policy ({len(scores)} scores)" if scores else "No grounding scores to check"
    violations = find_violations(SENTENCE_CHECKS, rules, inputs)
    return CategoryResult(violations=violations, reason=reason, metadata={"score_count": len(scores)})


def _check_request(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    """Return the checks that depend only on the request."""
    known = [check for check in REPLY_CHECKS if check.known_before(rules, inputs)]
    return CategoryResult(violations=find_violations(known, rules, inputs), reason="Nothing decided before the reply")


def _check_reply(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    if inputs.tool_calls_only:
        return CategoryResult(reason="Reply not checked: it calls tools only", reason_code="GROUNDING_NOT_CHECKED")
    delivered = replace(
        inputs,
        claims=[claim for claim in inputs.claims if claim.claim.sentence_index not in inputs.withheld],
        citations=[citation for citation in inputs.citations if citation.sentence_index not in inputs.withheld],
        unjudged=[text for text in inputs.unjudged if text.sentence_index not in inputs.withheld],
    )
    violations = find_violations(REPLY_CHECKS, rules, delivered)
    if not inputs.chunks and not anything_reported(inputs):
        return CategoryResult(
            violations=violations, reason="No sources to ground against", reason_code="GROUNDING_NO_SOURCES"
        )
    if not inputs.judged and not anything_reported(inputs):
        return CategoryResult(
            violations=violations, reason="Reply not checked against its sources", reason_code="GROUNDING_NOT_CHECKED"
        )
    count = len(distinct_documents(delivered.citations))
    gaps = comparison_gaps(inputs.consistency) if rules.factual_consistency_check else {}
    return CategoryResult(
        violations=violations,
        reason=f"Grounding audit passed ({count} citations)",
        metadata={"citation_count": count, **gaps},
        notes=answer_notes(rules, inputs),
    )


GROUNDING = GroundingEvaluator()
