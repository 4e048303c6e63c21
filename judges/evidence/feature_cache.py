"""Evidence made ready for comparison with claims, and kept."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

from judges.features import Prepared


class ReadyTexts:
    """What ``prepare`` makes of the texts used last, ``most`` of them, of some 17 KiB each: documents come back, and
    reading one takes longer than to compare a claim with it. Safe to use from several threads."""

    def __init__(self, prepare: Callable[[str], Prepared], *, most: int = 512) -> None:
        self._prepare = prepare
        self._most = most
        self._kept: OrderedDict[str, Prepared] = OrderedDict()

    def has(self, texts: Sequence[str]) -> bool:
        """Whether all of the texts are ready, so that ``of`` takes no time."""
        return all(text in self._kept for text in texts)

    def of(self, texts: Sequence[str]) -> Sequence[Prepared]:
        """The texts, read now where they are not ready."""
        found = []
        for text in texts:
            ready = self._kept.pop(text, None) or self._prepare(text)
            self._kept[text] = ready
            found.append(ready)
        while len(self._kept) > self._most:
            with suppress(KeyError):
                self._kept.popitem(last=False)
        return found
