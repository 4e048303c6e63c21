"""What policies read of the standings of a reply's text: the unjudged parts, and the share of the others."""

from collections.abc import Iterable, Iterator

from judges.report import letters
from judges.types import Sentence, SentenceVerdict, Span, Standing
from policies.types import UnjudgedText

NO_DOCUMENTS = "no_documents"
"""The kind of a reply without documents."""
UNAVAILABLE = "unavailable"
"""The kind of text that no judge could be found for."""


def unjudged_texts(verdict: SentenceVerdict, *, without_parts: str = UNAVAILABLE) -> tuple[UnjudgedText, ...]:
    """The unjudged text of a sentence, in order. A sentence without parts was not judged: all of it is unjudged, of the
    kind ``without_parts``."""
    return tuple(_unjudged_texts(verdict, without_parts))


def coverage_of(verdicts: Iterable[SentenceVerdict], *, without_parts: str = UNAVAILABLE) -> float | None:
    """The share of the letters and digits in a reply that are judged or harmless; None if it has none. ``verdicts`` are
    those of its sentences, with those that are left out."""
    total = uncovered = 0
    for verdict in verdicts:
        total += letters(verdict.sentence.text)
        uncovered += sum(letters(text.text) for text in unjudged_texts(verdict, without_parts=without_parts))
    return (total - uncovered) / total if total else None


def _unjudged_texts(verdict: SentenceVerdict, without_parts: str) -> Iterator[UnjudgedText]:
    sentence = verdict.sentence
    if not verdict.parts and not sentence.text.isspace():
        yield _text(sentence, sentence.span, without_parts)
    for part in verdict.parts:
        if part.standing is Standing.UNJUDGED:
            yield _text(sentence, part.span, part.kind or UNAVAILABLE)


def _text(sentence: Sentence, span: Span, kind: str) -> UnjudgedText:
    start = sentence.span.start
    text = sentence.text[span.start - start : span.end - start]
    return UnjudgedText(kind=kind, span=span, sentence_index=sentence.index, text=text)
