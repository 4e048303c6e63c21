"""What policies read of the standings of a reply's text: the unjudged parts."""

from judges.types import Sentence, SentenceVerdict, Span, Standing
from policies.types import UnjudgedText

NO_DOCUMENTS = "no_documents"
"""The kind of a reply without documents."""
UNAVAILABLE = "unavailable"
"""The kind of text that no judge could be found for."""


def unjudged_texts(verdict: SentenceVerdict) -> list[UnjudgedText]:
    """The text of a sentence that is neither judged nor harmless, in order. Nobody looked at a sentence without parts:
    all of it is unjudged."""
    sentence = verdict.sentence
    if not verdict.parts:
        return [] if sentence.text.isspace() else [_text(sentence, sentence.span, UNAVAILABLE)]
    return [
        _text(sentence, part.span, part.kind or UNAVAILABLE)
        for part in verdict.parts
        if part.standing is Standing.UNJUDGED
    ]


def _text(sentence: Sentence, span: Span, kind: str) -> UnjudgedText:
    start = sentence.span.start
    text = sentence.text[span.start - start : span.end - start]
    return UnjudgedText(kind=kind, span=span, sentence_index=sentence.index, text=text)
