"""Evaluates grounding policies: does the reply say what its sources say?

``mid_execution`` checks what is known for each sentence as it comes (scores, claims that must not be sent),
``after_workflow`` what needs the whole reply. The evaluator keeps no state between calls: given all claims so far, it
finds again what it found claim by claim.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from policies.base import CategoryResult, comparison_gaps
from policies.citations.extraction import distinct_documents
from policies.grounding.citation_checks import check_citations, check_grounding_required, check_min_citations
from policies.grounding.claim_checks import (
    check_contradictions,
    check_sentence_claims,
    check_unsupported_claims,
    check_unverifiable_ratio,
)
from policies.grounding.confidence_check import check_confidence
from policies.grounding.consistency_check import check_consistency
from policies.grounding.llm_score_check import check_llm_score, llm_notes, llm_warnings
from policies.grounding.rules import GroundingRules
from policies.grounding.score_check import check_scores, scores_of
from policies.types import Action, Phase, PolicyInputs, Violation

__all__ = ["GROUNDING", "GroundingEvaluator", "GroundingRules"]


class GroundingEvaluator:
    """The category ``grounding``."""

    name = "grounding"
    rules = GroundingRules

    def evaluate(self, phase: Phase, rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult | None:
        """See ``policies.base.Category``."""
        match phase:
            case Phase.BEFORE_WORKFLOW:
                return CategoryResult(reason="Grounding rules bound")
            case Phase.MID_EXECUTION:
                result = _check_sentences(rules, inputs)
            case Phase.AFTER_WORKFLOW:
                result = _check_reply(rules, inputs)
        return replace(result, notes=llm_notes(rules, inputs, phase), warnings=llm_warnings(rules, inputs, phase))


def _check_sentences(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    scores = scores_of(rules, inputs)
    violations = (
        # Contradictions come before low scores: a contradicted claim has a low score too, and the first violation
        # names the decision.
        *([] if inputs.final else _check_judged(rules, inputs)),
        *check_sentence_claims(rules, inputs),
        *check_scores(rules, inputs, scores),
        *check_llm_score(rules, inputs, Phase.MID_EXECUTION),
    )
    reason = f"Grounding scores within policy ({len(scores)} scores)" if scores else "No grounding scores to check"
    return CategoryResult(violations=violations, reason=reason, metadata={"score_count": len(scores)})


def _check_reply(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    if inputs.tool_calls_only:
        return CategoryResult(reason="Reply not checked: it calls tools only", reason_code="GROUNDING_NOT_CHECKED")
    delivered = replace(
        inputs,
        claims=[claim for claim in inputs.claims if claim.claim.sentence_index not in inputs.withheld],
        citations=[citation for citation in inputs.citations if citation.sentence_index not in inputs.withheld],
    )
    if not inputs.chunks and not _anything_reported(inputs):
        # There is nothing to ground against; if grounding is required, that itself is the violation.
        required = (check_min_citations, check_grounding_required) if rules.require_source_grounding else ()
        return CategoryResult(
            violations=_run((*required, check_consistency), rules, delivered),
            reason="No sources to ground against",
            reason_code="GROUNDING_NO_SOURCES",
        )
    if not inputs.judged and not _anything_reported(inputs):
        return CategoryResult(
            violations=_run((_check_judged, check_consistency, _check_llm_score), rules, inputs),
            reason="Reply not checked against its sources",
            reason_code="GROUNDING_NOT_CHECKED",
        )
    count = len(distinct_documents(delivered.citations))
    gaps = comparison_gaps(inputs.consistency) if rules.factual_consistency_check else {}
    return CategoryResult(
        violations=_run((_check_judged, *_REPLY_CHECKS), rules, delivered),
        reason=f"Grounding audit passed ({count} citations)",
        metadata={"citation_count": count, **gaps},
    )


_ReplyCheck = Callable[[GroundingRules, PolicyInputs], Iterator[Violation]]


def _run(checks: Sequence[_ReplyCheck], rules: GroundingRules, inputs: PolicyInputs) -> tuple[Violation, ...]:
    return tuple(violation for check in checks for violation in check(rules, inputs))


def _anything_reported(inputs: PolicyInputs) -> bool:
    if inputs.of_run or inputs.reported_scores or inputs.reported_unsupported or inputs.output_confidence is not None:
        return True
    return any(citation.reported for citation in inputs.citations)


def _check_judged(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """No judge is available for a reply with documents, and ``on_judge_unavailable`` blocks it."""
    if inputs.judge_unavailable and inputs.chunks and rules.on_judge_unavailable == "block":
        yield Violation(
            action=Action.BLOCK,
            reason="Reply not checked: no judge is available",
            reason_code="GROUNDING_NOT_CHECKED",
        )


def _check_llm_score(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    return check_llm_score(rules, inputs, Phase.AFTER_WORKFLOW)


_REPLY_CHECKS: tuple[_ReplyCheck, ...] = (
    check_min_citations,
    check_grounding_required,
    check_unsupported_claims,
    check_unverifiable_ratio,
    check_contradictions,
    check_consistency,
    check_confidence,
    _check_llm_score,
    check_citations,
)
"""In the order of evaluation."""

GROUNDING = GroundingEvaluator()
