"""Holds labels back until it is known whether they introduce anything.

A label is harmless only because of the text that it introduces. "**Blue**" alone can be the answer to a question, so it
is then a claim.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from judges.claims.claim_context import asked_sentence, continues_table, indent_after, is_numbered, starts_item
from judges.claims.introductions.label_scopes import LabelScope, ScopedLabel
from judges.protocols import SentenceSplitter
from judges.text.markdown import is_row
from judges.types import Sentence

_MAX_HELD = 64
"""The maximum number of sentences that are held back. If a label introduces nothing in these, it is a claim."""


class LabelReader(Protocol):
    """Reads one sentence of a reply at a time. ``previous`` holds the sentences before it, in order."""

    def label_of(self, sentence: Sentence, previous: Sequence[Sentence]) -> ScopedLabel | None:
        """Return the label that ``sentence`` is, or None if it is no label or makes a claim."""
        ...

    def states(self, sentence: Sentence, previous: Sequence[Sentence]) -> bool:
        """Return whether ``sentence`` has text to judge: a claim, code or an address."""
        ...

    def refuses(self, sentence: Sentence, label: Sentence) -> bool:
        """Return whether ``sentence`` is a refusal to tell what the user asked about the thing that ``label`` names."""
        ...


class _Held(Struct):
    """A sentence that is held back. ``introduces`` is None until it is known whether the sentence introduces anything.
    ``place`` is its position among the sentences."""

    sentence: Sentence
    label: ScopedLabel | None
    place: int
    introduces: bool | None


class LabelLookahead:
    """Marks the labels of one reply that introduce nothing (``Sentence.introduces_nothing``). Implements
    ``judges.protocols.SentenceSplitter``.

    Whether a label introduces something depends only on the text, not on how it is divided into deltas.

    Args:
        splitter: splits the reply.
        reader: reads its sentences.
        question: the question that the reply answers.
    """

    def __init__(self, splitter: SentenceSplitter, reader: LabelReader, *, question: str = "") -> None:
        self._splitter = splitter
        self._reader = reader
        self._before = [asked_sentence(question)] if question else []
        self._held: deque[_Held] = deque()

    def push(self, text: str) -> Sequence[Sentence]:
        """Add a delta. Return the sentences that are complete and known to introduce something or nothing."""
        return self._read(self._splitter.push(text))

    def pause(self) -> Sequence[Sentence]:
        """Return the remaining sentences. Called when something other than text follows, which an announcement may
        introduce."""
        return [*self._read(self._splitter.pause()), *self._release(paused=True)]

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """End the text and return its remaining sentences. The labels among them introduce nothing."""
        return [*self._read(self._splitter.flush(truncated=truncated)), *self._release(paused=False)]

    def restart(self, index: int) -> None:
        """Forget the sentence ``index`` and all sentences after it. Called after ``pause``, so no sentence is held."""
        self._before = [sentence for sentence in self._before if sentence.index < index]

    def _read(self, sentences: Iterable[Sentence]) -> list[Sentence]:
        """Read ``sentences``. Return those that need not be held back, in order."""
        known: list[Sentence] = []
        for sentence in sentences:
            label = self._reader.label_of(sentence, self._before)
            if label is None and not self._held:
                known.append(sentence)
            else:
                states = label is None and self._reader.states(sentence, self._before)
                for held in self._held:
                    if held.introduces is None:
                        self._settle(held, sentence, label, states=states)
                introduces = None if label is not None else True
                self._held.append(_Held(sentence, label, len(self._before), introduces))
                if len(self._held) > _MAX_HELD and self._held[0].introduces is None:
                    self._held[0].introduces = False
                known += self._known()
            self._before.append(sentence)
        return known

    def _known(self) -> list[Sentence]:
        """Take the held sentences up to the first label that may still introduce something."""
        known: list[Sentence] = []
        while self._held and self._held[0].introduces is not None:
            held = self._held.popleft()
            known.append(held.sentence if held.introduces else replace(held.sentence, introduces_nothing=True))
        return known

    def _release(self, *, paused: bool) -> list[Sentence]:
        """Take all held sentences, because the text after them isn't read together with them."""
        for held in self._held:
            if held.introduces is None and held.label is not None:
                held.introduces = paused and held.label.announces
        return self._known()

    def _settle(self, held: _Held, sentence: Sentence, label: ScopedLabel | None, *, states: bool) -> None:
        """Decide whether a held label introduces ``sentence``, if this is certain."""
        ends = False
        match held.label:
            case ScopedLabel(scope=LabelScope.SECTION) as heading:
                ends = label is not None and heading.ends(label)
                states = states or (label is None and self._reader.refuses(sentence, held.sentence))
            case ScopedLabel(scope=LabelScope.TABLE):
                ends = not is_row(sentence) or not continues_table(self._before[-1])
            case ScopedLabel(scope=LabelScope.NEXT) if any(map(str.isalnum, sentence.plain)):
                ends = self._is_sibling(held, sentence)
                if label is not None and not ends:
                    held.label, held.place = label, len(self._before)
                    return
                states = states or self._reader.refuses(sentence, held.sentence)
                ends = ends or not states
        if ends or states:
            held.introduces = not ends

    def _is_sibling(self, held: _Held, sentence: Sentence) -> bool:
        """Return whether ``sentence`` is another item of the list that contains the item ``held``, or of a list around
        it."""
        items = (self._before[held.place], sentence)
        if not all(map(starts_item, items)):
            return False
        above, below = indent_after(self._before[held.place - 1 : held.place]), indent_after(self._before)
        return below < above or (below == above and is_numbered(items[0]) == is_numbered(items[1]))
