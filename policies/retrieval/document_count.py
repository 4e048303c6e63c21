"""Are there too few or too many documents?"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from judges.types import Chunk
from policies.retrieval.relevance import by_relevance, irrelevance
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import set_violation
from policies.types import Action, PolicyInputs, Violation


def check_too_few(rules: RetrievalRules, count: int) -> Iterator[Violation]:
    """``count`` documents are fewer than ``min_chunks``."""
    fewest = max(rules.min_chunks, 1) if rules.require_documents else rules.min_chunks
    if count < fewest:
        yield Violation(
            action=Action.BLOCK if rules.action_on_chunk_violation == "block" else Action.WARN,
            reason=f"Retrieved chunks ({count}) below minimum ({fewest})",
            reason_code="RETRIEVAL_CHUNK_COUNT",
            metadata={"chunk_count": count, "limit": fewest},
        )


def check_too_many(rules: RetrievalRules, inputs: PolicyInputs, unfit: Collection[int]) -> Iterator[Violation]:
    """There are more documents than ``max_chunks``. ``unfit``: the documents that other rules drop."""
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
    """The documents beyond ``max_chunks``: the least relevant.

    Among equally relevant documents at the limit, the ``unfit`` are dropped first and then the last given; with
    ``require_source_diversity`` the last of the source that has the most. So the order of equally relevant documents
    does not decide whether a source dominates or too few are left.
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
    """How many documents of ``source`` are left; its name breaks ties. A document without a source crowds nobody."""
    return (0, "") if source is None or not rules.require_source_diversity else (left[source], source)
