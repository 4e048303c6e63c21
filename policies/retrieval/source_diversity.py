"""Checks whether one source dominates."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from policies import number_format
from policies.retrieval.relevance import by_relevance
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import set_violation
from policies.types import PolicyInputs, Violation


def check_source_diversity(rules: RetrievalRules, inputs: PolicyInputs, gone: Collection[int]) -> Iterator[Violation]:
    """Check that no source has more than ``max_single_source_ratio`` of the documents that are not ``gone``.

    Yields one violation for each such source, largest share first. With ``drop``, this includes sources that come to
    dominate because documents from another source are dropped.
    """
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
        worst = by_relevance(inputs.chunks, [index for index in left if inputs.chunks[index].source == source])[-1]
        taken.setdefault(source, []).append(worst)
        left.remove(worst)
    for source, ratio in ratios.items():
        yield set_violation(
            rules.action_on_domination,
            inputs,
            reason=f"Source '{source}' dominates at {number_format.share(ratio)} "
            f"(max {number_format.limit(rules.max_single_source_ratio)})",
            reason_code="RETRIEVAL_DIVERSITY",
            metadata={"source": source, "ratio": ratio, "max": rules.max_single_source_ratio},
            drop=taken.get(source, ()),
            relative=True,
        )


def _dominating(rules: RetrievalRules, inputs: PolicyInputs, left: Sequence[int]) -> list[tuple[str, float]]:
    """Return the sources above the limit with their shares of the documents ``left``, largest first."""
    counts = Counter(source for index in left if (source := inputs.chunks[index].source) is not None)
    shares = ((source, count / len(left)) for source, count in counts.items())
    over = [(source, ratio) for source, ratio in shares if ratio > rules.max_single_source_ratio]
    return sorted(over, key=lambda item: (-item[1], item[0]))
