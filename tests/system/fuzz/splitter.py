"""The sentence splitter, and the code that reads its sentences: no character is lost, no sentence depends on the
cuts, and none is too long; claims, numbers and a language are extracted from any of them."""

import asyncio
import atexit

from judges.claims.extraction import HeuristicClaimExtractor
from judges.features.numbers import compare
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Sentence
from tests.system.fuzz.draw import Draw

PIECES = (
    ". ", "? ", "!", "…", "。", "؟ ", "।", ":\n", "\n", "\n\n", "\r\n", "\u2028", " ", "  ", "Dr. ", "e.g. ",
    "z. B. ", "U.S. ", "p.m. ", "3.14", "1,000", "12%", "(", ")", "[", "]", "[1]", "[1](http://a.b/c.", "【4†s】",
    "\"", "“", "”", "«", "»", "'", "`", "``", "```", "```py\n", "\n```\n", "~~~\n", "# ", "\n## ", "- ", "\n- ",
    "1. ", "\n2) ", "> ", "| a | b |\n", "|---|\n", "**", "__", "---\n", "The ", "It is ", "not ",
    "Adults take 4 tablets", "hunderttausend", "の", "展厅", "😀", "é", "\0", "\u200b", "http://x.y/z?q=1.",
    "a@b.c", "January 5, 2026", "$", "\\", "<b>", "&amp;", "x" * 50, " " * 40, "(" * 30,
)  # fmt: skip

_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)


def check(data: bytes) -> None:
    """Push text made from ``data`` in pieces and whole."""
    draw = Draw(data)
    longest, step = draw.pick((4000, 200, 40, 7, 1)), 1 + draw.below(40)
    parts: list[str] = []
    while not draw.ended:
        parts.append(draw.text(6) if draw.below(8) == 0 else draw.pick(PIECES))
    text = "".join(parts)
    truncated = len(parts) % 2 == 1
    cut = _split([text[at : at + step] for at in range(0, len(text), step)], longest, truncated)
    whole = _split([text], longest, truncated)
    if cut != whole:
        raise AssertionError("the cuts changed the sentences")
    if "".join(sentence.text for sentence in whole) != text:
        raise AssertionError("characters were lost or doubled")
    extractor = HeuristicClaimExtractor()
    for at, sentence in enumerate(whole):
        if not 0 < len(sentence.text) <= longest or text[sentence.span.start : sentence.span.end] != sentence.text:
            raise AssertionError("a sentence is not what its span says")
        for claim in _LOOP.run_until_complete(extractor.extract(sentence, whole[:at])):
            if not sentence.span.start <= claim.span.start < claim.span.end <= sentence.span.end:
                raise AssertionError("a claim lies outside of its sentence")
            compare(claim.text, text[:500])


def _split(pieces: list[str], longest: int, truncated: bool) -> list[Sentence]:
    splitter = IncrementalSplitter(max_chars=longest)
    sentences = [sentence for piece in pieces for sentence in splitter.push(piece)]
    return [*sentences, *splitter.flush(truncated=truncated)]
