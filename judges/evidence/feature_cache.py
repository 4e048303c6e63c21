"""Caches parsed evidence between replies."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

from judges.features import Prepared


class FeatureCache:
    """Caches the results of ``prepare`` for the ``max_texts`` most recently used texts, about 17 KiB each. The same
    documents recur, and parsing one takes longer than comparing a claim with it. Thread-safe."""

    def __init__(self, prepare: Callable[[str], Prepared], *, max_texts: int = 512) -> None:
        self._prepare = prepare
        self._max_texts = max_texts
        self._entries: OrderedDict[str, Prepared] = OrderedDict()

    def has(self, texts: Sequence[str]) -> bool:
        """Whether all ``texts`` are cached, so that ``get`` takes no time."""
        return all(text in self._entries for text in texts)

    def get(self, texts: Sequence[str]) -> Sequence[Prepared]:
        """Return the parsed ``texts``, in order, and parse those that aren't cached."""
        found = []
        for text in texts:
            prepared = self._entries.pop(text, None) or self._prepare(text)
            self._entries[text] = prepared
            found.append(prepared)
        while len(self._entries) > self._max_texts:
            with suppress(KeyError):
                self._entries.popitem(last=False)
        return found
