"""Checks whether one source dominates."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from policies import reason_texts
from policies.retrieval.relevance import by_relevance
from policies.retrieval.rules import RetrievalRules
from policies.retrieval.violations import set_violation
from policies.types import PolicyInputs, Violation

NOT_DROPPED = " (no document is dropped, since that would not make the documents more diverse)"


def check_source_diversity(rules: RetrievalRules, inputs: PolicyInputs, gone: Collection[int]) -> Iterator[Violation]:
    """Check that no source has more than ``max_single_source_ratio`` of the documents that are not ``gone``.

    Yields one violation for each such source, largest share first. With ``drop``, this includes sources whose share
    rises above the maximum because documents from another source are dropped. ``drop`` leaves at least one document of
    each source, and drops none if there is only one source. If no document of a source is dropped, the violation is a
    warning.
    """
    if not rules.require_source_diversity:
        return
    limit = rules.max_single_source_ratio
    left = [index for index in range(len(inputs.chunks)) if index not in gone]
    drops = rules.action_on_domination == "drop" and inputs.injectable
    taken: dict[str, list[int]] = {}
    ratios: dict[str, float] = {}
    while dominating := _dominating(rules, inputs, left):
        for source, ratio in dominating:
            ratios.setdefault(source, ratio)
        source = dominating[0][0]
        own = [index for index in left if inputs.chunks[index].source == source]
        if not drops or not 1 < len(own) < len(left):
            break
        worst = by_relevance(inputs.chunks, own)[-1]
        taken.setdefault(source, []).append(worst)
        left.remove(worst)
    for source, ratio in ratios.items():
        stays = drops and source not in taken
        yield set_violation(
            "warn" if stays else rules.action_on_domination,
            inputs,
            reason=f"Source '{source}' dominates at {reason_texts.share_beside(ratio, limit)} "
            f"(max {reason_texts.limit(limit)}){NOT_DROPPED if stays else ''}",
            reason_code="RETRIEVAL_DIVERSITY",
            metadata={"source": source, "ratio": ratio, "max": limit},
            drop=taken.get(source, ()),
            relative=True,
        )


def _dominating(rules: RetrievalRules, inputs: PolicyInputs, left: Sequence[int]) -> list[tuple[str, float]]:
    """Return the sources above the limit, with their shares of the documents in ``left``, largest share first."""
    counts = Counter(source for index in left if (source := inputs.chunks[index].source) is not None)
    shares = ((source, count / len(left)) for source, count in counts.items())
    over = [(source, ratio) for source, ratio in shares if ratio > rules.max_single_source_ratio]
    return sorted(over, key=lambda item: (-item[1], item[0]))
