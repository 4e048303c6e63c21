"""Maps spans between two versions of the same text, such as from plain text to Markdown."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from judges.types import UnsupportedSpan

_TOKEN = re.compile(r"\w+|[^\w\s]")


def move_spans(spans: Sequence[UnsupportedSpan], source: str, target: str) -> tuple[UnsupportedSpan, ...]:
    """Map ``spans`` of ``source`` to spans of the same words in ``target``. A span without any word in ``target`` is
    left out. In the worst case, the time is proportional to the product of the lengths; for equal texts, it is
    negligible."""
    if source == target or not spans:
        return tuple(spans)
    here, there = ([(m.start(), m.end(), m[0]) for m in _TOKEN.finditer(text)] for text in (source, target))
    matcher = SequenceMatcher(None, [token[2] for token in here], [token[2] for token in there], autojunk=False)
    shifts = [
        (here[block.a + place][:2], there[block.b + place][0] - here[block.a + place][0])
        for block in matcher.get_matching_blocks()
        for place in range(block.size)
    ]
    moved = []
    for span in spans:
        parts = [
            (max(start, span.start) + shift, min(end, span.end) + shift)
            for (start, end), shift in shifts
            if start < span.end and span.start < end
        ]
        if parts:
            moved.append(UnsupportedSpan(parts[0][0], parts[-1][1], span.score))
    return tuple(moved)
