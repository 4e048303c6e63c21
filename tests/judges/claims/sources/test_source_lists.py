"""Links to documents in a list of sources are citations. Elsewhere, a link that stands alone may be an answer."""

import pytest

from judges.claims.sources.source_lists import SourceLists
from judges.types import Sentence, Span

NAMES = frozenset(["[1]", "[2]", "[8]"])


def markers(*texts: str) -> list[str]:
    """The markers in the last of ``texts`` that are sources."""
    reply = [Sentence(index=index, text=text, span=Span(0, len(text)), plain=text) for index, text in enumerate(texts)]
    lists = SourceLists(lambda sentence: sentence.text, lambda bracket: bracket in NAMES)
    return [texts[-1][span.start : span.end] for span in lists.markers(reply[-1], reply)]


@pytest.mark.parametrize(
    "texts",
    [
        ("Sources: [1](u), [2](u)",),
        ("**Sources:** [1](u) [2](u)",),
        ("**Quellen**: [1](u) · [2](u)",),
        ("Leave is 25 days.\n\n", "Sources:\n", "- [1](u), [2](u)\n"),
        ("## Sources\n", "1. [1](u) [2](u)\n"),
        ("**References**\n", "- [8](u)\n", "- [1](u)\n", "- [1](u)\n  [2](u)\n"),
    ],
)
def test_links_in_a_list_of_sources_are_found(texts: tuple[str, ...]) -> None:
    assert markers(*texts) == (["[1]", "[2]"])


@pytest.mark.parametrize(
    "texts",
    [
        ("[8](u)",),
        ("Tablets: [8](u)",),
        ("Tablets:\n", "- [8](u)\n"),
        ("Sources: [8](u) tablets",),
        ("Sources: [8](u), [9](u)",),
        ("Sources of water: [8](u)",),
        ("Sources:\n", "Adults take\n", "- [8](u)\n"),
        ("Sources: [1](u)\n\n", "Tablets:\n", "- [8](u)\n"),
        ("Sources:\n", "- [8](u) tablets\n"),
        ("Sources:\n", "- [9](u)\n", "- [9](u)\n"),
    ],
)
def test_other_links_are_not_found(texts: tuple[str, ...]) -> None:
    assert markers(*texts) == []
