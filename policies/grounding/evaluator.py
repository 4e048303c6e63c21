"""Evaluates grounding policies: does the reply say what its sources say?

``mid_execution`` checks what is known for each sentence as it comes (scores, claims and unjudged text that must not be
sent), ``after_workflow`` what needs the whole reply; with inputs that are not final, only what nothing later can
change. The evaluator keeps no state between calls: given all claims so far, it finds again what it found claim by
claim.
"""

from dataclasses import replace

from policies.base import CategoryResult, comparison_gaps
from policies.citations.extraction import distinct_documents
from policies.grounding.checks import (
    CITATION_CHECKS,
    CONSISTENCY_CHECK,
    JUDGED_CHECK,
    LLM_SCORE_CHECK,
    REPLY_CHECKS,
    SENTENCE_CHECKS,
    STANDING_CHECKS,
    anything_reported,
    find_violations,
)
from policies.grounding.llm_score_check import llm_notes, llm_warnings
from policies.grounding.rules import GroundingRules
from policies.grounding.score_check import scores_of
from policies.types import Phase, PolicyInputs

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
                result = _check_reply(rules, inputs) if inputs.final else _check_request(rules, inputs)
        return replace(result, notes=llm_notes(rules, inputs, phase), warnings=llm_warnings(rules, inputs, phase))


def _check_sentences(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    scores = scores_of(rules, inputs)
    reason = f"Grounding scores within policy ({len(scores)} scores)" if scores else "No grounding scores to check"
    violations = find_violations(SENTENCE_CHECKS, rules, inputs)
    return CategoryResult(violations=violations, reason=reason, metadata={"score_count": len(scores)})


def _check_request(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    """What the request alone decides, whatever the reply."""
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
    if not inputs.chunks and not anything_reported(inputs):
        # There is nothing to ground against; if grounding is required, that itself is the violation.
        required = CITATION_CHECKS if rules.require_source_grounding else ()
        return CategoryResult(
            violations=find_violations((*required, *STANDING_CHECKS, CONSISTENCY_CHECK), rules, delivered),
            reason="No sources to ground against",
            reason_code="GROUNDING_NO_SOURCES",
        )
    if not inputs.judged and not anything_reported(inputs):
        checks = (JUDGED_CHECK, *STANDING_CHECKS, CONSISTENCY_CHECK, LLM_SCORE_CHECK)
        return CategoryResult(
            violations=find_violations(checks, rules, inputs),
            reason="Reply not checked against its sources",
            reason_code="GROUNDING_NOT_CHECKED",
        )
    count = len(distinct_documents(delivered.citations))
    gaps = comparison_gaps(inputs.consistency) if rules.factual_consistency_check else {}
    return CategoryResult(
        violations=find_violations(REPLY_CHECKS, rules, delivered),
        reason=f"Grounding audit passed ({count} citations)",
        metadata={"citation_count": count, **gaps},
    )


GROUNDING = GroundingEvaluator()
