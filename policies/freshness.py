"""The category ``freshness``, which checks that the documents that support a reply are recent enough.

A retrieval policy rejects or drops old documents before the call. A freshness policy allows them in the prompt as
background, but requires that each claim in the reply is supported by a document that is recent enough.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from judges.label_thresholds import Thresholds
from judges.types import ClaimVerdict, Label
from policies import reason_texts
from policies.base import Category, CategoryResult, ReplyNeeds, Rules, Text
from policies.types import Action, Phase, PolicyInputs, PolicySubject, Violation


class FreshnessRules(Rules):
    """Rules for the age of the documents that support a reply."""

    max_support_age_days: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(
        90,
        description="Maximum document age in days; at least one document that supports a claim must be no older",
    )
    entailment_threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        0.7, description="Minimum probability of support for a document to count as supporting a claim"
    )
    action_on_stale_support: Literal["warn", "block"] = Field(
        "warn", description="Action if only documents older than max_support_age_days support a claim"
    )
    on_missing_metadata: Literal["ignore", "warn", "block"] = Field(
        "ignore",
        description="Action if no document that supports a claim is known to be recent, and at least one has no age",
    )
    on_block: Literal["replace", "error"] = Field(
        "replace", description="What the client receives instead of a blocked reply: a text (replace) or an error"
    )
    abstention_response: Text | None = Field(None, description="Text sent in place of a blocked reply")


class FreshnessEvaluator(Category):
    """The category ``freshness``."""

    name = "freshness"
    rules = FreshnessRules
    subjects = frozenset({PolicySubject.REPLY})

    def reply_needs(self, rules: FreshnessRules) -> ReplyNeeds:
        """See ``policies.base.Category``."""
        blocks = "block" in (rules.action_on_stale_support, rules.on_missing_metadata)
        return ReplyNeeds(
            stream_mode="hold" if blocks else None,
            on_block=rules.on_block,
            abstention_response=rules.abstention_response,
        )

    def evaluate(self, phase: Phase, rules: FreshnessRules, inputs: PolicyInputs) -> CategoryResult | None:
        """See ``policies.base.Category``. A reply is checked sentence by sentence, and a run at its end."""
        due = Phase.AFTER_WORKFLOW if inputs.of_run else Phase.MID_EXECUTION
        if phase is not due or not inputs.chunks:
            return None
        claims = [claim for claim in inputs.claims if claim.claim.sentence_index not in inputs.withheld]
        supported = [(claim, documents) for claim in claims if (documents := _supporting(rules, claim))]
        violations = (
            violation for claim, documents in supported for violation in _check(rules, inputs, claim, documents)
        )
        return CategoryResult(
            violations=tuple(violations),
            reason=f"Age of support within policy ({len(supported)} claims)",
            metadata={"claim_count": len(supported)},
        )


def _supporting(rules: FreshnessRules, claim: ClaimVerdict) -> list[int]:
    """Return the indices of the documents that support the claim, in order."""
    if Thresholds(entailment=rules.entailment_threshold).label_of(claim) is not Label.SUPPORTED:
        return []
    documents = {index for index, score in claim.support.items() if score >= rules.entailment_threshold}
    if claim.best_source is not None:  # two passages may support the claim only together
        documents.add(claim.best_source.document_index)
    return sorted(documents)


def _check(
    rules: FreshnessRules, inputs: PolicyInputs, claim: ClaimVerdict, documents: list[int]
) -> Iterator[Violation]:
    limit = rules.max_support_age_days
    ages = {index: inputs.chunks[index].age_days for index in documents}
    known = {index: age for index, age in ages.items() if age is not None}
    if any(age <= limit for age in known.values()):
        return
    if len(known) < len(ages):
        if rules.on_missing_metadata != "ignore":
            index = next(index for index in documents if index not in known)
            reason = f"Supporting document '{inputs.chunks[index].id}' has no age (needed by max_support_age_days)"
            metadata = {"missing": "age", **_place(inputs, claim, index)}
            yield _violation(rules.on_missing_metadata, reason, "FRESHNESS_MISSING_AGE", metadata)
        return
    index = min(known, key=lambda each: known[each])
    age = reason_texts.whole(known[index])
    yield _violation(
        rules.action_on_stale_support,
        f"Supporting source age ({age} days) exceeds max ({limit} days)",
        "FRESHNESS_STALE_SUPPORT",
        {"age_days": age, "max_age": limit, **_place(inputs, claim, index)},
    )


def _place(inputs: PolicyInputs, claim: ClaimVerdict, index: int) -> dict[str, Any]:
    return {
        "document_id": inputs.chunks[index].id,
        "document_index": index,
        "claim": claim.claim.text,
        "sentence_index": claim.claim.sentence_index,
    }


def _violation(action: str, reason: str, code: str, metadata: dict[str, Any]) -> Violation:
    return Violation(action=Action(action), reason=reason, reason_code=code, metadata=metadata)


FRESHNESS = FreshnessEvaluator()
