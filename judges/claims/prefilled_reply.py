"""Reads a reply that continues a text from the request (a prefill). A sentence that begins in the prefill and ends in
the reply is judged as a whole."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import structs

from judges.claims.claim_context import COLON, END, has_words, is_title
from judges.claims.introductions.label_lookahead import LabelLookahead, LabelReader
from judges.claims.introductions.label_scopes import ScopedLabel
from judges.protocols import ClaimExtractor, SentenceSplitter
from judges.text.markdown import HEADING, ITEM, ROW
from judges.types import Claim, Sentence, Span

_MAX_PREFILL = 2000
"""Maximum number of characters that are read, at the end of the prefill."""
_MAX_LOOK_BACK = 64
"""Number of preceding sentences that may contain a claim's context."""
_NUMBER = re.compile(r"\d[.,]?\Z")
"""The end of a text that may be the beginning of a number."""
_ELLIPSIS = re.compile(r"(?:\.\.|…)[\"'”’»“)\]」』】\s]*\Z")
"""The end of a text that may continue."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


class PrefilledReply:
    """Reads one reply. Implements ``SentenceSplitter`` and ``ClaimExtractor`` of ``judges.protocols``, and
    ``LabelReader`` of ``judges.claims.introductions.label_lookahead``.

    The reply is split without the prefill, because it is delivered without it. If the prefill ends with an unfinished
    sentence, the extractor reads that sentence together with the first sentence of the reply.

    Args:
        prefill: the text that the reply continues.
        splitter: creates a splitter.
        extractor: finds the claims.
        may_instruct: whether ``prefill`` may also be an instruction that the reply follows. The first sentence of the
            reply is then read in both ways, unless it begins a new paragraph.
        label_reader: finds the labels that introduce nothing. Without it, every label introduces something.
        question: the question that the reply answers.
        reply_splitter: creates the splitter for the reply. Defaults to ``splitter``.
    """

    def __init__(
        self,
        prefill: str,
        splitter: Callable[[], SentenceSplitter],
        extractor: ClaimExtractor,
        *,
        may_instruct: bool = False,
        label_reader: LabelReader | None = None,
        question: str = "",
        reply_splitter: Callable[[], SentenceSplitter] | None = None,
    ) -> None:
        self._prefill = prefill[-_MAX_PREFILL:]
        self._may_instruct = may_instruct
        self._new_splitter = splitter
        self._splitter, reader = (reply_splitter or splitter)(), splitter()
        self._label_reader = label_reader
        if label_reader is not None:
            self._splitter = LabelLookahead(self._splitter, self, question=question)
        self._extractor = extractor
        self._before = [*reader.push(self._prefill), *reader.flush()]
        """The sentences of the prefill."""

    def push(self, text: str) -> Sequence[Sentence]:
        """Add a delta of the reply. Return the sentences that are now complete."""
        return self._splitter.push(text)

    def pause(self) -> Sequence[Sentence]:
        """Return the remaining sentences. Called when something other than text follows."""
        return self._splitter.pause()

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """Return the remaining sentences. Called when the reply has ended."""
        return self._splitter.flush(truncated=truncated)

    def restart(self, index: int) -> None:
        """Forget the sentence ``index`` and all sentences after it."""
        self._splitter.restart(index)

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims in ``sentence``, including any beginning in the prefill. Spans are limited to the reply."""
        begun = self._begun(sentence, previous)
        if begun is None:
            return await self._extractor.extract(sentence, previous)
        if not begun:
            return await self._extractor.extract(sentence, self._with_prefill(previous))
        claims = await self._continued(begun, sentence, previous)
        alone = await self._extractor.extract(sentence, previous) if self._may_instruct else ()
        return [_in_reply(claim, sentence) for claim in (*claims, *alone)]

    def label_of(self, sentence: Sentence, previous: Sequence[Sentence]) -> ScopedLabel | None:
        """Return the label that ``sentence`` is, read together with any text before it in the prefill."""
        reader = self._label_reader
        readings = self._readings(sentence, previous) if reader is not None else ()
        return next((label for each in readings if reader and (label := reader.label_of(*each)) is not None), None)

    def states(self, sentence: Sentence, previous: Sequence[Sentence]) -> bool:
        """Return whether ``sentence`` has text to judge."""
        reader = self._label_reader
        return reader is not None and any(reader.states(*each) for each in self._readings(sentence, previous))

    def refuses(self, sentence: Sentence, label: Sentence) -> bool:
        """Return whether ``sentence`` is a refusal to tell what the user asked about the thing that ``label`` names."""
        return self._label_reader is not None and self._label_reader.refuses(sentence, label)

    def _readings(
        self, sentence: Sentence, previous: Sequence[Sentence]
    ) -> Sequence[tuple[Sentence, Sequence[Sentence]]]:
        """Return the readings of ``sentence``: the sentence as it is read, and the sentences before it."""
        begun = self._begun(sentence, previous)
        if begun is None:
            return ((sentence, previous),)
        if not begun:
            return ((sentence, self._with_prefill(previous)),)
        joined = sentence if _is_block(sentence) else _joined(begun, sentence)
        together = joined, [*(said for said in previous if said.index < 0), *self._before[:-1]]
        return (together, (sentence, previous)) if self._may_instruct else (together,)

    async def _continued(self, begun: str, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims in the text ``begun`` and ``sentence`` together, except for those that end in ``begun``."""
        before = [*(said for said in previous if said.index < 0), *self._before[:-1]]
        if not _is_block(sentence):
            claims = await self._extractor.extract(_joined(begun, sentence), before)
            return [claim for claim in claims if claim.span.end > sentence.span.start]
        claims = await self._extractor.extract(sentence, before)
        first, *others = claims or [Claim(text=sentence.plain, span=sentence.span, sentence_index=sentence.index)]
        return [replace(first, text=f"{begun}{first.text}", context="", question="", parts=()), *others]

    def _begun(self, sentence: Sentence, previous: Sequence[Sentence]) -> str | None:
        """Return the text that ``sentence``, the first sentence with words, completes, or "" if there is none. If a
        line break follows the text, the text must be neither a heading nor a lead-in. Return None if ``sentence``
        begins a new paragraph, because the text is then an instruction."""
        last = self._before[-1] if self._before else None
        if last is None or not has_words(last.plain) or not has_words(sentence.plain):
            return ""
        if any(said.index >= 0 and has_words(said.plain) for said in previous):
            return ""
        text = sentence.text.lstrip()
        gap = self._prefill[len(self._prefill.rstrip()) :] + "".join(said.text for said in previous if said.index >= 0)
        gap += sentence.text[: len(sentence.text) - len(text)]
        if not gap and text[0].isdigit() and _NUMBER.search(last.plain):
            return last.plain
        introduces = last.in_code or is_title(last) or COLON.search(last.plain)
        if (introduces and "\n" in gap) or self._is_finished(last, gap, text):
            return ""
        if self._may_instruct and "\n\n" in gap and _is_whole(sentence):
            return None
        return f"{last.plain} " if gap or text[0].isalnum() or _is_block(sentence) else last.plain

    def _is_finished(self, last: Sentence, gap: str, text: str) -> bool:
        """Return whether ``last``, the last sentence of the prefill, is finished if ``text`` follows it after the
        whitespace ``gap``."""
        if not END.search(last.plain) or _ELLIPSIS.search(last.plain):
            return False
        splitter, begun, gap = self._new_splitter(), last.text.rstrip(), gap or " "
        sentences = [*splitter.push(f"{begun}{gap}{text}"), *splitter.flush()]
        return any(len(begun) <= one.span.end <= len(begun) + len(gap) for one in sentences)

    def _with_prefill(self, previous: Sequence[Sentence]) -> Sequence[Sentence]:
        """Return ``previous``, preceded by the sentences of the prefill that may contain context."""
        if len(previous) > _MAX_LOOK_BACK:
            return previous
        asked = [said for said in previous if said.index < 0]
        said = previous[len(asked) :]
        begun = "" if not said or _is_block(said[0]) else self._begun(said[0], ())
        if begun:
            return [*asked, *self._before[:-1], _joined(begun, said[0]), *said[1:]]
        return [*asked, *(self._before if begun is not None else self._before[:-1]), *said]


def _joined(begun: str, sentence: Sentence) -> Sentence:
    """Return ``sentence`` with the text ``begun`` before it."""
    text = sentence.text.lstrip()
    start = sentence.span.start + len(sentence.text) - len(text) - len(begun)
    plain = f"{begun}{sentence.plain}"
    return structs.replace(sentence, text=f"{begun}{text}", span=Span(start, sentence.span.end), plain=plain)


def _in_reply(claim: Claim, sentence: Sentence) -> Claim:
    """Return ``claim`` without the part of its span that is before ``sentence``. It can't be corrected, because a
    correction would repeat the prefill."""
    span = Span(max(sentence.span.start, claim.span.start), claim.span.end)
    parts = tuple(_in_reply(part, sentence) for part in claim.parts)
    return replace(claim, span=span, parts=parts, correctable=False)


def _is_whole(sentence: Sentence) -> bool:
    """Return whether ``sentence`` may be complete: it doesn't begin with a lower-case letter or a digit."""
    first = next(filter(str.isalnum, sentence.plain))
    return first.isalpha() and not first.islower()


def _is_block(sentence: Sentence) -> bool:
    """Return whether ``sentence`` is not plain text but a heading, a list item, a table row or code."""
    text = sentence.text
    return sentence.in_code or any(block.match(text) for block in (HEADING, ITEM, ROW))


def opens_json(prefill: str) -> bool:
    """Return whether the end of ``prefill`` may be inside a JSON object or array."""
    return any(map(_is_unclosed, (prefill, _STRING.sub("", prefill))))


def _is_unclosed(text: str) -> bool:
    depth = 0
    for character in text:
        if character in "{[":
            depth += 1
        elif character in "}]":
            depth = max(0, depth - 1)
    return depth > 0
