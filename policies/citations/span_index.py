"""Looks up whether a position is inside one of many spans."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from judges.types import Span


@dataclass(frozen=True, slots=True)
class SpanIndex:
    """An index over spans."""

    starts: list[int]
    ends: list[int]

    @classmethod
    def of(cls, spans: Sequence[Span]) -> "SpanIndex":
        starts: list[int] = []
        ends: list[int] = []
        for span in sorted(spans, key=lambda span: span.start):
            if ends and span.start < ends[-1]:
                ends[-1] = max(ends[-1], span.end)
            else:
                starts.append(span.start)
                ends.append(span.end)
        return cls(starts, ends)

    def cover(self, place: int) -> bool:
        """Whether ``place`` is inside one of the spans."""
        at = bisect_right(self.starts, place) - 1
        return at >= 0 and place < self.ends[at]
