"""The category ``retrieval``: are the documents good enough to answer from?

A gateway request knows all its documents at once and is checked in ``before_workflow`` alone. A run records them one by
one: each is checked in ``mid_execution`` as it comes, and the set as a whole in ``after_workflow``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from judges.types import Chunk
from policies import formatting as wording
from policies.base import CategoryResult, comparison_gaps
from policies.retrieval.conflict_check import conflicts
from policies.retrieval.rules import RetrievalRules
from policies.types import Action, Phase, PolicyInputs, Violation

__all__ = ["RETRIEVAL", "Retrieval", "RetrievalRules"]

NOT_DROPPABLE = " (it cannot be dropped, since the gateway does not write the prompt)"


class Retrieval:
    """Evaluates ``RetrievalRules``."""

    name = "retrieval"
    rules = RetrievalRules

    def evaluate(self, phase: Phase, rules: RetrievalRules, inputs: PolicyInputs) -> CategoryResult | None:
        if not inputs.chunks and not rules.require_documents:
            return None
        match phase:
            case Phase.BEFORE_WORKFLOW if inputs.final:
                violations = tuple(_whole_set(rules, inputs))
            case Phase.MID_EXECUTION if inputs.chunks:
                violations = _up_to_block(_newest(rules, inputs))
            case Phase.AFTER_WORKFLOW:
                violations = (*_too_few(rules, len(inputs.chunks)), *_domination(rules, inputs, frozenset()))
            case _:
                return None
        count = len(inputs.chunks)
        return CategoryResult(
            violations=violations,
            reason=f"Retrieval quality within policy ({count} chunks)",
            metadata={"chunk_count": count, **(comparison_gaps(inputs.conflicts) if rules.check_conflicts else {})},
        )


def _whole_set(rules: RetrievalRules, inputs: PolicyInputs) -> Iterator[Violation]:
    too_few = list(_too_few(rules, len(inputs.chunks)))
    single = [violation for index in range(len(inputs.chunks)) for violation in _document(rules, inputs, index)]
    found = [*too_few, *_too_many(rules, inputs, _dropped(single)), *single]
    found += _domination(rules, inputs, _dropped(found) | inputs.unfit)
    yield from found
    gone = _dropped(found) | inputs.dropped
    if gone and not too_few:
        yield from _too_few(rules, len(inputs.chunks) - len(gone))
    yield from conflicts(rules, inputs, gone)


def _newest(rules: RetrievalRules, inputs: PolicyInputs) -> Iterator[Violation]:
    yield from _too_many(rules, inputs, frozenset())
    yield from _document(rules, inputs, len(inputs.chunks) - 1)


def _up_to_block(violations: Iterator[Violation]) -> tuple[Violation, ...]:
    found: list[Violation] = []
    for violation in violations:
        found.append(violation)
        if violation.action is Action.BLOCK:
            break
    return tuple(found)


def _dropped(violations: Sequence[Violation]) -> frozenset[int]:
    return frozenset[int]().union(*(violation.drop for violation in violations))


def _fewest(rules: RetrievalRules) -> int:
    return max(rules.min_chunks, 1) if rules.require_documents else rules.min_chunks


def _too_few(rules: RetrievalRules, count: int) -> Iterator[Violation]:
    if count < _fewest(rules):
        yield Violation(
            action=Action.BLOCK if rules.action_on_chunk_violation == "block" else Action.WARN,
            reason=f"Retrieved chunks ({count}) below minimum ({_fewest(rules)})",
            reason_code="RETRIEVAL_CHUNK_COUNT",
            metadata={"chunk_count": count, "limit": _fewest(rules)},
        )


def _too_many(rules: RetrievalRules, inputs: PolicyInputs, unfit: frozenset[int]) -> Iterator[Violation]:
    """``unfit``: the documents that other rules take out."""
    count = len(inputs.chunks)
    if count > rules.max_chunks:
        yield _violation(
            rules.action_on_chunk_violation,
            inputs,
            reason=f"Retrieved chunks ({count}) above maximum ({rules.max_chunks})",
            reason_code="RETRIEVAL_CHUNK_COUNT",
            metadata={"chunk_count": count, "limit": rules.max_chunks},
            drop=_surplus(rules, inputs.chunks, unfit),
        )


def _surplus(rules: RetrievalRules, chunks: Sequence[Chunk], unfit: frozenset[int]) -> list[int]:
    """The documents that ``max_chunks`` has no room for: the least relevant.

    Documents as relevant as each other may stand on both sides of the limit. Of those the ``unfit`` go first and then
    the last given; with ``require_source_diversity`` the last of whichever source has the most. Their order then does
    not tell whether a source dominates or too few are left.
    """
    ranked = _by_relevance(chunks, range(len(chunks)))
    least = _irrelevance(chunks[ranked[rules.max_chunks]])
    safe = [index for index in ranked if _irrelevance(chunks[index]) < least]
    equal = [index for index in ranked if _irrelevance(chunks[index]) == least]
    fit = [index for index in equal if index not in unfit]
    going = [index for index in equal if index in unfit][: len(safe) + len(equal) - rules.max_chunks]
    left = Counter(chunks[index].source for index in (*safe, *fit) if index not in unfit)
    while len(safe) + len(equal) - len(going) > rules.max_chunks:
        last = max(reversed(fit), key=lambda index: _crowding(rules, chunks[index].source, left))
        fit.remove(last)
        left[chunks[last].source] -= 1
        going.append(last)
    return going + ranked[len(safe) + len(equal) :]


def _crowding(rules: RetrievalRules, source: str | None, left: Counter[str | None]) -> tuple[int, str]:
    """How much a source crowds out others; its name decides between equals. A document without one crowds nobody."""
    return (0, "") if source is None or not rules.require_source_diversity else (left[source], source)


def _by_relevance(chunks: Sequence[Chunk], indices: Sequence[int]) -> list[int]:
    """``indices``, the most relevant first. Equal scores keep their order."""
    return sorted(indices, key=lambda index: _irrelevance(chunks[index]))


def _irrelevance(chunk: Chunk) -> float:
    """A missing score counts as the least."""
    return 1.0 if chunk.relevance_score is None else -chunk.relevance_score


def _document(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    """The checks of one document, in the order of evaluation."""
    yield from _relevance(rules, inputs, index)
    yield from _source(rules, inputs, index)
    yield from _collection(rules, inputs, index)
    yield from _age(rules, inputs, index)


def _relevance(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    score = inputs.chunks[index].relevance_score
    if score is None:
        if rules.min_relevance_score > 0:
            yield from _missing(rules, inputs, index, "relevance score", "min_relevance_score")
    elif score < rules.min_relevance_score:
        yield _of_document(
            rules.action_on_low_relevance,
            inputs,
            index,
            reason=f"Retrieval relevance ({wording.score(score)}) below threshold "
            f"({wording.score(rules.min_relevance_score)})",
            reason_code="RETRIEVAL_LOW_RELEVANCE",
            metadata={"relevance_score": score, "threshold": rules.min_relevance_score},
        )


def _source(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    source = inputs.chunks[index].source
    if source is None:
        if rules.blocked_sources or rules.require_source_diversity:
            rule = "blocked_sources" if rules.blocked_sources else "require_source_diversity"
            yield from _missing(rules, inputs, index, "source", rule)
    elif source in rules.blocked_sources:
        yield _of_document(
            rules.action_on_blocked_source,
            inputs,
            index,
            reason=f"Retrieved from blocked source '{source}'",
            reason_code="RETRIEVAL_BLOCKED_SOURCE",
            metadata={"blocked_source": source},
        )


def _collection(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    if not rules.allowed_collections:
        return
    collection = inputs.chunks[index].collection
    if collection is None:
        yield from _missing(rules, inputs, index, "collection", "allowed_collections")
    elif collection not in rules.allowed_collections:
        yield _of_document(
            rules.action_on_disallowed_collection,
            inputs,
            index,
            reason=f"Collection '{collection}' not in allowed list",
            reason_code="RETRIEVAL_COLLECTION",
            metadata={"collection": collection, "allowed": list(rules.allowed_collections)},
        )


def _age(rules: RetrievalRules, inputs: PolicyInputs, index: int) -> Iterator[Violation]:
    age = inputs.chunks[index].age_days
    if age is None:
        yield from _missing(rules, inputs, index, "age", "max_source_age_days")
    elif age > rules.max_source_age_days:
        yield _of_document(
            rules.action_on_stale_source,
            inputs,
            index,
            reason=f"Source age ({wording.number(age)} days) exceeds max ({rules.max_source_age_days} days)",
            reason_code="RETRIEVAL_STALE_SOURCE",
            metadata={"age_days": wording.whole(age), "max_age": rules.max_source_age_days},
        )


def _missing(rules: RetrievalRules, inputs: PolicyInputs, index: int, what: str, rule: str) -> Iterator[Violation]:
    if rules.on_missing_metadata != "ignore":
        yield _of_document(
            rules.on_missing_metadata,
            inputs,
            index,
            reason=f"Document '{inputs.chunks[index].id}' has no {what} ({rule} needs it)",
            reason_code="RETRIEVAL_MISSING_METADATA",
            metadata={"rule": rule, "missing": what},
        )


def _domination(rules: RetrievalRules, inputs: PolicyInputs, gone: frozenset[int]) -> Iterator[Violation]:
    """One violation for each source that dominates, the largest first. With ``drop``, sources that come to dominate as
    documents of another go are among them."""
    if not rules.require_source_diversity:
        return
    left = [index for index in range(len(inputs.chunks)) if index not in gone]
    drops = rules.action_on_domination == "drop" and inputs.injectable
    taken: dict[str, list[int]] = {}
    ratios: dict[str, float] = {}
    while dominating := _dominating(rules, inputs, left):
        for source, ratio in dominating:
            ratios.setdefault(source, ratio)
        if not drops:
            break
        source = dominating[0][0]
        worst = _by_relevance(inputs.chunks, [index for index in left if inputs.chunks[index].source == source])[-1]
        taken.setdefault(source, []).append(worst)
        left.remove(worst)
    for source, ratio in ratios.items():
        yield _violation(
            rules.action_on_domination,
            inputs,
            reason=f"Source '{source}' dominates at {wording.share(ratio)} "
            f"(max {wording.limit(rules.max_single_source_ratio)})",
            reason_code="RETRIEVAL_DIVERSITY",
            metadata={"source": source, "ratio": ratio, "max": rules.max_single_source_ratio},
            drop=taken.get(source, ()),
            relative=True,
        )


def _dominating(rules: RetrievalRules, inputs: PolicyInputs, left: Sequence[int]) -> list[tuple[str, float]]:
    counts = Counter(source for index in left if (source := inputs.chunks[index].source) is not None)
    shares = ((source, count / len(left)) for source, count in counts.items())
    over = [(source, ratio) for source, ratio in shares if ratio > rules.max_single_source_ratio]
    return sorted(over, key=lambda item: (-item[1], item[0]))


def _of_document(
    action: str, inputs: PolicyInputs, index: int, *, reason: str, reason_code: str, metadata: dict[str, Any]
) -> Violation:
    metadata |= {"document_id": inputs.chunks[index].id, "document_index": index}
    return _violation(action, inputs, reason=reason, reason_code=reason_code, metadata=metadata, drop=(index,))


def _violation(
    action: str,
    inputs: PolicyInputs,
    *,
    reason: str,
    reason_code: str,
    metadata: dict[str, Any],
    drop: Sequence[int],
    relative: bool = False,
) -> Violation:
    """A violation whose ``drop`` holds only where the gateway writes the prompt; else it blocks and says why."""
    if action != "drop":
        return Violation(action=Action(action), reason=reason, reason_code=reason_code, metadata=metadata)
    if not inputs.injectable:
        return Violation(action=Action.BLOCK, reason=reason + NOT_DROPPABLE, reason_code=reason_code, metadata=metadata)
    if "document_id" not in metadata:
        metadata |= {"dropped": [inputs.chunks[index].id for index in sorted(drop)]}
    return Violation(
        action=Action.DROP,
        reason=reason,
        reason_code=reason_code,
        metadata=metadata,
        drop=frozenset(drop),
        relative=relative,
    )


RETRIEVAL = Retrieval()
