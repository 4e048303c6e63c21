"""The category ``grounding``: does the reply say what its sources say?

``mid_execution`` holds what can be told of a sentence as it comes (scores, claims that must not go out),
``after_workflow`` what needs the whole reply. The evaluator keeps nothing between calls: given all claims so far it
finds again what it found claim by claim.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from judges.types import ClaimVerdict, Label, Source
from policies import formatting as wording
from policies.base import CategoryResult, comparison_gaps
from policies.citations.extraction import distinct_documents
from policies.grounding.citation_checks import bad_citations, few_citations, no_citations, of_audit
from policies.grounding.consistency_check import inconsistent
from policies.grounding.llm_score_check import llm_notes, llm_score, llm_warnings
from policies.grounding.rules import GroundingRules
from policies.grounding.score_check import ScoreCheck
from policies.types import Action, Phase, PolicyInputs, Violation

__all__ = ["GROUNDING", "Grounding", "GroundingRules"]


class Grounding:
    """Evaluates ``GroundingRules``."""

    name = "grounding"
    rules = GroundingRules

    def evaluate(self, phase: Phase, rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult | None:
        if phase is Phase.BEFORE_WORKFLOW:
            return CategoryResult(reason="Grounding rules bound")
        if phase is Phase.MID_EXECUTION:
            return _mid(rules, inputs)
        return replace(
            _after(rules, inputs), notes=llm_notes(rules, inputs, phase), warnings=llm_warnings(rules, inputs, phase)
        )


def _mid(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    scores = _scores(rules, inputs)
    violations = (
        # What becomes of a sentence comes before what its score is worth: a contradiction has a low score too, and the
        # first violation names the decision.
        *([] if inputs.final else _unjudged(rules, inputs)),
        *(_contradiction(claim, Action.BLOCK) for claim in inputs.claims if _blocked(rules, inputs, claim)),
        *(_contradiction(claim, Action.WARN) for claim in inputs.claims if _corrected(rules, inputs, claim)),
        *(_left_out(claim) for claim in inputs.claims if _stripped(rules, inputs, claim)),
        *_low_scores(rules, inputs, scores),
        *llm_score(rules, inputs, Phase.MID_EXECUTION),
    )
    reason = f"Grounding scores within policy ({len(scores)} scores)" if scores else "No grounding scores to check"
    return CategoryResult(
        violations=violations,
        reason=reason,
        metadata={"score_count": len(scores)},
        notes=llm_notes(rules, inputs, Phase.MID_EXECUTION),
        warnings=llm_warnings(rules, inputs, Phase.MID_EXECUTION),
    )


def _scores(rules: GroundingRules, inputs: PolicyInputs) -> list[float]:
    if rules.score_source == "retrieval":
        return [chunk.relevance_score for chunk in inputs.chunks if chunk.relevance_score is not None]
    if rules.score_source == "reported" or not inputs.judged:
        return list(inputs.reported_scores)
    return [claim.score for claim in inputs.claims if _has_score(rules, inputs, claim)]


def _has_score(rules: GroundingRules, inputs: PolicyInputs, claim: ClaimVerdict) -> bool:
    """Not so where no judge came to a verdict. And what is left out of the reply cannot be what makes it weak, nor what
    something better stands in place of."""
    judged = claim.label is not Label.NOT_A_CLAIM and claim.reason is None
    return judged and not _stripped(rules, inputs, claim) and not _corrected(rules, inputs, claim)


def _low_scores(rules: GroundingRules, inputs: PolicyInputs, scores: Sequence[float]) -> Iterator[Violation]:
    check = ScoreCheck(
        threshold=rules.min_grounding_score,
        floor=rules.score_relevance_floor,
        mode=rules.score_eval_mode,
        top_n=rules.score_top_n,
    )
    of_judge = rules.score_source == "judge" and inputs.judged
    if low := check.check(scores, complete=inputs.final or not of_judge):
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=low.reason,
            reason_code=low.reason_code,
            metadata=low.metadata,
        )


def _blocked(rules: GroundingRules, inputs: PolicyInputs, claim: ClaimVerdict) -> bool:
    """Whether a contradicted claim ends the reply. One that was to be corrected and cannot be is a violation like any
    other."""
    if rules.label(claim) is not Label.CONTRADICTED or _corrected(rules, inputs, claim):
        return False
    action = rules.action_on_violation if rules.contradiction_action == "correct" else rules.contradiction_action
    return action == "block"


def _corrected(rules: GroundingRules, inputs: PolicyInputs, claim: ClaimVerdict) -> bool:
    return rules.corrects(claim, replaceable=inputs.strippable)


def _stripped(rules: GroundingRules, inputs: PolicyInputs, claim: ClaimVerdict) -> bool:
    return rules.unverifiable_action == "strip" and inputs.strippable and rules.label(claim) is Label.UNVERIFIABLE


def _after(rules: GroundingRules, inputs: PolicyInputs) -> CategoryResult:
    delivered = replace(
        inputs,
        claims=[claim for claim in inputs.claims if claim.claim.sentence_index not in inputs.withheld],
        citations=[citation for citation in inputs.citations if citation.sentence_index not in inputs.withheld],
    )
    count = len(distinct_documents(delivered.citations))
    if inputs.tool_calls_only:
        return CategoryResult(reason="Reply not checked: it calls tools only", reason_code="GROUNDING_NOT_CHECKED")
    if not _anything_reported(inputs):
        if not inputs.chunks:
            # Nothing to ground against; where grounding is required, that itself is the violation.
            checks = (few_citations, no_citations) if rules.require_source_grounding else ()
            return CategoryResult(
                violations=_run((*checks, inconsistent), rules, delivered),
                reason="No sources to ground against",
                reason_code="GROUNDING_NO_SOURCES",
            )
        if not inputs.judged:
            return CategoryResult(
                violations=_run((_unjudged, inconsistent, _llm_score), rules, inputs),
                reason="Reply not checked against its sources",
                reason_code="GROUNDING_NOT_CHECKED",
            )
    return CategoryResult(
        violations=_run((_unjudged, *AUDIT), rules, delivered),
        reason=f"Grounding audit passed ({count} citations)",
        metadata={
            "citation_count": count,
            **(comparison_gaps(inputs.consistency) if rules.factual_consistency_check else {}),
        },
    )


Check = Callable[[GroundingRules, PolicyInputs], Iterator[Violation]]


def _run(checks: Sequence[Check], rules: GroundingRules, inputs: PolicyInputs) -> tuple[Violation, ...]:
    return tuple(violation for check in checks for violation in check(rules, inputs))


def _anything_reported(inputs: PolicyInputs) -> bool:
    if inputs.of_run or inputs.reported_scores or inputs.reported_unsupported or inputs.output_confidence is not None:
        return True
    return any(citation.reported for citation in inputs.citations)


def _unjudged(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    if inputs.judge_unavailable and inputs.chunks and rules.on_judge_unavailable == "block":
        yield Violation(
            action=Action.BLOCK,
            reason="Reply not checked: no judge is available",
            reason_code="GROUNDING_NOT_CHECKED",
        )


def _unsupported(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    if rules.max_unsupported_claims is None:
        return
    missing = (Label.UNVERIFIABLE, Label.CONTRADICTED)
    claims = [*inputs.reported_unsupported, *(c.claim.text for c in inputs.claims if rules.label(c) in missing)]
    if len(claims) > rules.max_unsupported_claims:
        reason = f"Unsupported claims ({len(claims)}) exceeds max ({rules.max_unsupported_claims})"
        yield of_audit(rules, inputs, reason, "GROUNDING_UNSUPPORTED", claims=claims)


def _unverifiable_ratio(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    labels = [(claim, rules.label(claim)) for claim in inputs.claims]
    claims = [claim for claim, label in labels if label is not Label.NOT_A_CLAIM]
    unverifiable = [claim.claim.text for claim, label in labels if label is Label.UNVERIFIABLE]
    if not claims:
        return
    ratio = len(unverifiable) / len(claims)
    if ratio > rules.max_unverifiable_ratio:
        yield Violation(
            action=Action.BLOCK if rules.unverifiable_action == "block" else Action.WARN,
            reason=f"Unverifiable claims {wording.share(ratio)} (max {wording.limit(rules.max_unverifiable_ratio)})",
            reason_code="GROUNDING_UNVERIFIABLE",
            metadata={"ratio": ratio, "max": rules.max_unverifiable_ratio, "claims": unverifiable},
        )


def _contradictions(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    for claim in inputs.claims:
        if rules.label(claim) is Label.CONTRADICTED:
            yield _contradiction(claim, Action.BLOCK if _blocked(rules, inputs, claim) else Action.WARN)


def _contradiction(claim: ClaimVerdict, action: Action) -> Violation:
    against = claim.source_for(Label.CONTRADICTED)
    name = f"source '{against.source or against.document_id}'" if against else "its sources"
    metadata = _of_claim(claim, Label.CONTRADICTED, against)
    if claim.correction is not None:
        metadata["correction"] = claim.correction
    return Violation(
        action=action,
        reason=f'Claim contradicts {name}: "{claim.claim.text}"',
        reason_code="GROUNDING_CONTRADICTION",
        metadata=metadata,
    )


def _left_out(claim: ClaimVerdict) -> Violation:
    return Violation(
        action=Action.DROP,
        reason=f'Unverifiable claim left out: "{claim.claim.text}"',
        reason_code="GROUNDING_UNVERIFIABLE",
        metadata=_of_claim(claim, Label.UNVERIFIABLE, claim.source_for(Label.UNVERIFIABLE)),
    )


def _of_claim(claim: ClaimVerdict, label: Label, source: Source | None) -> dict[str, Any]:
    best = source and {
        "document_id": source.document_id,
        "document_index": source.document_index,
        "source": source.source,
        "score": source.score,
        "span": [source.span.start, source.span.end],
    }
    return {
        "claim": claim.claim.text,
        "verdict": label.value,
        "sentence_index": claim.claim.sentence_index,
        "best_source": best,
    }


def _abstention(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    confidence = inputs.trust_score if inputs.output_confidence is None else inputs.output_confidence
    threshold = rules.abstention_threshold
    if confidence is not None and threshold is not None and confidence < threshold:
        yield Violation(
            action=Action(rules.action_on_violation),
            reason=f"Output confidence ({wording.score(confidence)}) below abstention threshold "
            f"({wording.number(threshold)})",
            reason_code="GROUNDING_ABSTAIN",
            metadata={"output_confidence": confidence, "threshold": threshold},
        )


def _llm_score(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    return llm_score(rules, inputs, Phase.AFTER_WORKFLOW)


AUDIT: tuple[Check, ...] = (
    few_citations,
    no_citations,
    _unsupported,
    _unverifiable_ratio,
    _contradictions,
    inconsistent,
    _abstention,
    _llm_score,
    bad_citations,
)

GROUNDING = Grounding()
