"""Checks the number of documents."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from judges.types import Chunk
from policies.retrieval.relevance import by_relevance, irrelevance
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import set_violation
from policies.types import Action, PolicyInputs, Violation


def check_too_few(rules: RetrievalRules, count: int) -> Iterator[Violation]:
    """Check that ``count`` is at least ``min_chunks``."""
    fewest = max(rules.min_chunks, 1) if rules.require_documents else rules.min_chunks
    if count < fewest:
        yield Violation(
            action=Action.BLOCK if rules.action_on_chunk_violation == "block" else Action.WARN,
            reason=f"Retrieved chunks ({count}) below minimum ({fewest})",
            reason_code="RETRIEVAL_CHUNK_COUNT",
            metadata={"chunk_count": count, "limit": fewest},
        )


def check_all_dropped(rules: RetrievalRules, count: int, gone: Collection[int]) -> Iterator[Violation]:
    """Check that at least one of ``count`` documents is left after these rules have dropped documents."""
    if len(gone) < count or not count or not rules.drops:
        return
    yield Violation(
        action=Action.BLOCK if rules.on_all_dropped == "refuse" else Action.WARN,
        reason=f"No document left ({count} dropped)",
        reason_code="RETRIEVAL_ALL_DROPPED",
        metadata={"chunk_count": count},
    )


def check_too_many(rules: RetrievalRules, inputs: PolicyInputs, unfit: Collection[int]) -> Iterator[Violation]:
    """Check that there are at most ``max_chunks`` documents. ``unfit`` are the documents that other rules drop."""
    count = len(inputs.chunks)
    if count > rules.max_chunks:
        yield set_violation(
            rules.action_on_chunk_violation,
            inputs,
            reason=f"Retrieved chunks ({count}) above maximum ({rules.max_chunks})",
            reason_code="RETRIEVAL_CHUNK_COUNT",
            metadata={"chunk_count": count, "limit": rules.max_chunks},
            drop=_surplus(rules, inputs.chunks, unfit),
        )


def _surplus(rules: RetrievalRules, chunks: Sequence[Chunk], unfit: Collection[int]) -> list[int]:
    """Return the documents beyond ``max_chunks``: the least relevant ones. Among equally relevant documents at the
    limit, the ``unfit`` ones are dropped first. After those, the last ones in the given order are dropped or, with
    ``require_source_diversity``, the last ones from the source with the most documents. So the order of equally
    relevant documents doesn't affect whether a source dominates or too few documents are left.
    """
    ranked = by_relevance(chunks, range(len(chunks)))
    least = irrelevance(chunks[ranked[rules.max_chunks]])
    safe = [index for index in ranked if irrelevance(chunks[index]) < least]
    equal = [index for index in ranked if irrelevance(chunks[index]) == least]
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
    """Sort key: the number of documents left from ``source``; the source's name breaks ties. Documents without a source
    don't count."""
    return (0, "") if source is None or not rules.require_source_diversity else (left[source], source)
