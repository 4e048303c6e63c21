"""What the policies of a run hold of what it is told. Pure: a run and a report in, decisions out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.runs.steps import RunRecord
from judges.types import Chunk
from policies.engine import PolicySet, decision_to_dict
from policies.grounding.evaluator import GroundingRules
from policies.types import Action, Decision, Phase, Policy, PolicyInputs, strictest


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The decisions that one call to a run caused.

    ``decisions`` are plain JSON, and ``made`` the same as the policies made them, where they were made just now.
    ``blocked_by`` is the first that blocks; ``abstention_response`` what its policy wants said in place of an answer.
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


def started(policies: PolicySet) -> StepOutcome:
    """The run begins: the rules are bound."""
    record = PolicyInputs(final=False, of_run=True)
    return _outcome(policies, policies.evaluate("grounding", Phase.BEFORE_WORKFLOW, record).decisions)


def document_recorded(policies: PolicySet, chunk: Chunk, number: int) -> StepOutcome:
    """A document came, the last of ``number``: it is checked by itself, and that there are not too many."""
    # Those before it were checked as they came. All that counts of them is how many there are.
    record = PolicyInputs(chunks=(chunk,) * number, final=False, of_run=True)
    return _outcome(policies, policies.evaluate_documents(record, Phase.MID_EXECUTION).decisions)


def grounding_recorded(policies: PolicySet, scores: Sequence[float]) -> StepOutcome:
    """Scores came: those of one report are a set, and are checked by themselves."""
    record = PolicyInputs(reported_scores=scores, judged=False, final=False, of_run=True)
    return _outcome(policies, policies.evaluate("grounding", Phase.MID_EXECUTION, record).decisions)


def completed(policies: PolicySet, recorded: RunRecord) -> StepOutcome:
    """The run is over: everything that needs the whole of it."""
    record = recorded.policy_inputs()
    retrieval = policies.evaluate_documents(record, Phase.AFTER_WORKFLOW)
    # The scores of documents are a set only now; those that were reported or judged were checked as they came.
    by_documents = PolicySet(tuple(policy for policy in policies.in_category("grounding") if _scores_documents(policy)))
    documents = PolicyInputs(chunks=recorded.chunks, judged=False, of_run=True)
    scores = by_documents.evaluate("grounding", Phase.MID_EXECUTION, documents)
    reply = policies.evaluate("grounding", Phase.AFTER_WORKFLOW, record)
    return _outcome(policies, [*retrieval.decisions, *scores.decisions, *reply.decisions])


def _outcome(policies: PolicySet, made: Sequence[Decision]) -> StepOutcome:
    return StepOutcome.of([decision_to_dict(decision) for decision in made], policies.policies, made)


def _scores_documents(policy: Policy) -> bool:
    return isinstance(policy.rules, GroundingRules) and policy.rules.score_source == "retrieval"


def _abstention(blocking: set[str], policies: Sequence[Policy]) -> str | None:
    responses = (
        policy.rules.abstention_response
        for policy in policies
        if policy.id in blocking and isinstance(policy.rules, GroundingRules)
    )
    return next((response for response in responses if response is not None), None)
