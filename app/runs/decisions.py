"""Makes the policy decisions at each step of a run. All functions are pure and depend only on the policies and the
recorded data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.runs.result_score import unanswered
from app.runs.steps import RunRecord
from judges.llm_types import LlmScore
from judges.types import Chunk
from policies.evaluation import strictest
from policies.policy_selection import PolicySet, decision_to_dict
from policies.reply_evaluation import first_abstention, reply_needs
from policies.types import Action, Decision, Phase, Policy, PolicyInputs, PolicySubject


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The decisions of one step.

    ``decisions`` is plain JSON. ``made`` contains the same decisions as objects, unless they were read from the
    database. ``blocked_by`` is the first blocking decision. ``abstention_response`` is the text that the blocking
    policies show instead of an answer.
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
            abstention_response=_abstention(
                {(decision["policy_id"], decision["policy_version"]) for decision in blocking}, policies
            ),
            made=made,
        )


def decide_start(policies: PolicySet) -> StepOutcome:
    """Make the decisions on the start of a run."""
    inputs = PolicyInputs(final=False, of_run=True)
    return _outcome(policies, policies.evaluate(PolicySubject.REPLY, Phase.BEFORE_WORKFLOW, inputs).decisions)


def decide_document(policies: PolicySet, chunk: Chunk, number: int) -> StepOutcome:
    """Make the decisions on a newly recorded document. The policies check the document and ``number``, the number of
    documents in the run."""
    # Earlier documents were checked when they were recorded, so only their number matters now.
    inputs = PolicyInputs(chunks=(chunk,) * number, final=False, of_run=True)
    return _outcome(policies, policies.evaluate_documents(inputs, Phase.MID_EXECUTION).decisions)


def decide_scores(policies: PolicySet, scores: Sequence[float]) -> StepOutcome:
    """Make the decisions on the scores in one report. They are checked together."""
    inputs = PolicyInputs(
        reported_scores=scores, judged=False, final=False, of_run=True, llm_scores=unanswered(policies)
    )
    return _outcome(policies, policies.evaluate(PolicySubject.REPLY, Phase.MID_EXECUTION, inputs).decisions)


def decide_completion(policies: PolicySet, run_record: RunRecord, llm_scores: Sequence[LlmScore] = ()) -> StepOutcome:
    """Make the decisions that need the complete run. ``llm_scores`` contains an LLM's scores for the result."""
    inputs = run_record.policy_inputs(llm_scores)
    documents = policies.evaluate_documents(inputs, Phase.AFTER_WORKFLOW)
    # Relevance scores of documents are checked here, because all documents are known only now. Other scores were
    # checked when they were recorded.
    scored = PolicySet(
        tuple(policy for policy in policies.by_subject[PolicySubject.REPLY] if reply_needs(policy).scores_documents)
    )
    recorded = PolicyInputs(chunks=run_record.chunks, judged=False, of_run=True)
    scores = scored.evaluate(PolicySubject.REPLY, Phase.MID_EXECUTION, recorded)
    reply = policies.evaluate(PolicySubject.REPLY, Phase.AFTER_WORKFLOW, inputs)
    return _outcome(policies, [*documents.decisions, *scores.decisions, *reply.decisions])


def _outcome(policies: PolicySet, made: Sequence[Decision]) -> StepOutcome:
    return StepOutcome.of([decision_to_dict(decision) for decision in made], policies.policies, made)


def _abstention(blocking: set[tuple[str, int]], policies: Sequence[Policy]) -> str | None:
    return first_abstention(reply_needs(policy) for policy in policies if (policy.id, policy.version) in blocking)
