"""The checks of grounding policies, each with when it decides: the one list that everything else is derived from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from policies.grounding.citation_checks import check_citations, check_grounding_required, check_min_citations
from policies.grounding.claim_checks import (
    check_contradictions,
    check_sentence_claims,
    check_unsupported_claims,
    check_unverifiable_ratio,
)
from policies.grounding.consistency_check import check_consistency
from policies.grounding.llm_score_check import check_llm_score
from policies.grounding.rules import GroundingRules
from policies.grounding.score_check import check_confidence, check_scores
from policies.grounding.unjudged_check import check_coverage, check_sentence_unjudged, check_unjudged
from policies.types import Action, Phase, PolicyInputs, Violation

RulesTest = Callable[[GroundingRules], bool]
InputsTest = Callable[[GroundingRules, PolicyInputs], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check and when it decides.

    ``blocks_at_end``: with these rules it can block a reply that passed sentence by sentence; ``rule`` names the rule
    that makes it. ``known_before``: what it finds before the reply, from what the request says, nothing in the reply
    can change.
    """

    find: Callable[[GroundingRules, PolicyInputs], Iterator[Violation]]
    rule: str | None = None
    blocks_at_end: RulesTest = lambda rules: False
    known_before: InputsTest = lambda rules, inputs: False


def find_violations(checks: Sequence[Check], rules: GroundingRules, inputs: PolicyInputs) -> tuple[Violation, ...]:
    """The violations that ``checks`` find, in their order."""
    return tuple(violation for check in checks for violation in check.find(rules, inputs))


def whole_reply_rules(rules: GroundingRules) -> tuple[str, ...]:
    """The names of the rules that block and are decided only when the reply is complete."""
    checks = (*SENTENCE_CHECKS, *REPLY_CHECKS)
    return tuple(dict.fromkeys(each.rule for each in checks if each.rule is not None and each.blocks_at_end(rules)))


def anything_reported(inputs: PolicyInputs) -> bool:
    """The caller reports something about the reply, or may still do so in its run."""
    if inputs.of_run or inputs.reported_scores or inputs.reported_unsupported or inputs.output_confidence is not None:
        return True
    return any(citation.reported for citation in inputs.citations)


def _blocks(rules: GroundingRules) -> bool:
    return rules.action_on_violation == "block"


def _cannot_cite(rules: GroundingRules, inputs: PolicyInputs) -> bool:
    """Grounding is required, but there is nothing to cite."""
    has_sources = inputs.chunks or inputs.documents_may_follow or anything_reported(inputs)
    return rules.require_source_grounding and not has_sources


def _check_judged(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    """No judge is available for a reply with documents, and ``on_judge_unavailable`` blocks it."""
    if inputs.judge_unavailable and inputs.chunks and rules.on_judge_unavailable == "block":
        yield Violation(
            action=Action.BLOCK,
            reason="Reply not checked: no judge is available",
            reason_code="GROUNDING_NOT_CHECKED",
        )


def _check_judged_early(rules: GroundingRules, inputs: PolicyInputs) -> Iterator[Violation]:
    if not inputs.final:
        yield from _check_judged(rules, inputs)


def _check_llm_score(phase: Phase) -> Callable[[GroundingRules, PolicyInputs], Iterator[Violation]]:
    return lambda rules, inputs: check_llm_score(rules, inputs, phase)


def _llm_score_blocks(rules: GroundingRules) -> bool:
    return _blocks(rules) and rules.llm_grounding_check


SENTENCE_CHECKS = (
    # Contradictions come before low scores: a contradicted claim has a low score too, and the first violation names
    # the decision.
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
"""Of ``mid_execution``, in the order of evaluation."""

JUDGED_CHECK = Check(find=_check_judged)
CITATION_CHECKS = (
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
)
STANDING_CHECKS = (
    Check(find=check_unjudged),
    Check(
        find=check_coverage,
        rule="min_coverage",
        blocks_at_end=lambda rules: _blocks(rules) and rules.min_coverage > 0,
    ),
)
CONSISTENCY_CHECK = Check(
    find=check_consistency,
    rule="factual_consistency_check",
    blocks_at_end=lambda rules: _blocks(rules) and rules.factual_consistency_check,
)
LLM_SCORE_CHECK = Check(
    find=_check_llm_score(Phase.AFTER_WORKFLOW), rule="llm_grounding_check", blocks_at_end=_llm_score_blocks
)
REPLY_CHECKS = (
    JUDGED_CHECK,
    *CITATION_CHECKS,
    Check(
        find=check_unsupported_claims,
        rule="max_unsupported_claims",
        blocks_at_end=lambda rules: _blocks(rules) and rules.max_unsupported_claims is not None,
        known_before=lambda rules, inputs: True,  # claims are only added to those reported
    ),
    Check(
        find=check_unverifiable_ratio,
        rule="max_unverifiable_ratio",
        blocks_at_end=lambda rules: rules.unverifiable_action == "block" and rules.max_unverifiable_ratio < 1,
    ),
    Check(find=check_contradictions),
    CONSISTENCY_CHECK,
    Check(
        find=check_confidence,
        rule="abstention_threshold",
        blocks_at_end=lambda rules: _blocks(rules) and rules.abstention_threshold is not None,
        known_before=lambda rules, inputs: inputs.output_confidence is not None,
    ),
    LLM_SCORE_CHECK,
    Check(
        find=check_citations,
        rule="require_valid_citations",
        blocks_at_end=lambda rules: _blocks(rules) and rules.require_valid_citations,
    ),
    *STANDING_CHECKS,
)
"""Of ``after_workflow``, in the order of evaluation."""
