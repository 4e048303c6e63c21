"""Policy decisions at each step of a run, as pure functions of the policies and the recorded data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.runs.steps import RunRecord
from judges.types import Chunk
from policies.engine import PolicySet, decision_to_dict
from policies.grounding.combined_settings import grounding_rules
from policies.grounding.rules import GroundingRules
from policies.types import Action, Decision, Phase, Policy, PolicyInputs, strictest


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The decisions of one step.

    ``decisions`` is plain JSON; ``made`` holds the same decisions as objects if they were made now rather than read
    from the database. ``blocked_by`` is the first blocking decision; ``abstention_response`` is the text that its
    policy provides to show instead of an answer.
    """

    action: Action
    decisions: Sequence[Mapping[str, Any]]
    blocked_by: Mapping[str, Any] | None
    abstention_response: str | None
    made: Sequence[Decision] = ()

    @classmethod
    def of(
        cls, decisions: Sequence[Mapping[str, Any]], policies: Sequence[Policy], made: Sequence[Decision] = ()
    ) -> "StepOutcome":
        blocking = [decision for decision in decisions if decision["action"] == Action.BLOCK]
        return cls(
            action=strictest([Action(decision["action"]) for decision in decisions]),
            decisions=decisions,
            blocked_by=blocking[0] if blocking else None,
            abstention_response=_abstention({decision["policy_id"] for decision in blocking}, policies),
            made=made,
        )


def decide_start(policies: PolicySet) -> StepOutcome:
    """Decide on the start of a run, which binds the rules."""
    inputs = PolicyInputs(final=False, of_run=True)
    return _outcome(policies, policies.evaluate("grounding", Phase.BEFORE_WORKFLOW, inputs).decisions)


def decide_document(policies: PolicySet, chunk: Chunk, number: int) -> StepOutcome:
    """Decide on a newly recorded document, the last of ``number``: check the document, and that there are not too
    many."""
    # Earlier documents were checked when they were recorded; only their number matters.
    inputs = PolicyInputs(chunks=(chunk,) * number, final=False, of_run=True)
    return _outcome(policies, policies.evaluate_documents(inputs, Phase.MID_EXECUTION).decisions)


def decide_scores(policies: PolicySet, scores: Sequence[float]) -> StepOutcome:
    """Decide on the scores in one report, checked as a set."""
    inputs = PolicyInputs(reported_scores=scores, judged=False, final=False, of_run=True)
    return _outcome(policies, policies.evaluate("grounding", Phase.MID_EXECUTION, inputs).decisions)


def decide_completion(policies: PolicySet, run_record: RunRecord) -> StepOutcome:
    """Make the decisions that need the complete run."""
    inputs = run_record.policy_inputs()
    retrieval = policies.evaluate_documents(inputs, Phase.AFTER_WORKFLOW)
    # The documents' scores are complete only now; reported and judged scores were checked when they were recorded.
    retrieval_scored = PolicySet(
        tuple(policy for policy in policies.in_category("grounding") if _scores_documents(policy))
    )
    documents = PolicyInputs(chunks=run_record.chunks, judged=False, of_run=True)
    scores = retrieval_scored.evaluate("grounding", Phase.MID_EXECUTION, documents)
    reply = policies.evaluate("grounding", Phase.AFTER_WORKFLOW, inputs)
    return _outcome(policies, [*retrieval.decisions, *scores.decisions, *reply.decisions])


def _outcome(policies: PolicySet, made: Sequence[Decision]) -> StepOutcome:
    return StepOutcome.of([decision_to_dict(decision) for decision in made], policies.policies, made)


def _scores_documents(policy: Policy) -> bool:
    return isinstance(policy.rules, GroundingRules) and policy.rules.score_source == "retrieval"


def _abstention(blocking: set[str], policies: Sequence[Policy]) -> str | None:
    rules = grounding_rules([policy for policy in policies if policy.id in blocking])
    return next((each.abstention_response for each in rules if each.abstention_response is not None), None)
