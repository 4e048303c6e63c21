"""Compares this package's sentence splitter with others on replies with known sentence boundaries.

    python -m benchmarks.judging.segmentation [--cases FILE]

Other splitters are included if they are installed (pip install blingfire pysbd sentencex syntok). They are given the
language of each reply. This package's splitter is not, and receives the text one character at a time. White space and
the markers of lists and headings don't count towards the position of a boundary. The end of a reply doesn't count as a
boundary. FILE is a JSON list of objects with ``id``, ``answer`` and ``sentences``. Only this package's splitter was
developed with the default cases.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from judges.sentences.splitter import IncrementalSplitter
from judges.text.languages.detection import languages_of

DEFAULT_CASES = Path(__file__).parents[2] / "tests" / "judges" / "data" / "segmentation.json"
Splitter = Callable[[str, str], Sequence[str]]
_DROPPED = re.compile(r"\s+|(?m:^#{1,6}(?=\s))|(?m:^[-*](?=\s))")


def ours(text: str, _: str) -> Sequence[str]:
    splitter = IncrementalSplitter()
    found = [sentence for character in text for sentence in splitter.push(character)]
    return [sentence.text for sentence in [*found, *splitter.flush()]]


def _sentencex() -> Splitter:
    segment = import_module("sentencex").segment
    return lambda text, language: list(segment(language, text))


def _blingfire() -> Splitter:
    to_sentences = import_module("blingfire").text_to_sentences
    return lambda text, _: to_sentences(text).split("\n")


def _pysbd() -> Splitter:
    segmenter = import_module("pysbd").Segmenter
    return lambda text, language: segmenter(language=language, clean=False).segment(text)


def _syntok() -> Splitter:
    analyze = import_module("syntok.segmenter").analyze

    def split(text: str, _: str) -> Sequence[str]:
        sentences = [sentence for paragraph in analyze(text) for sentence in paragraph]
        return ["".join(token.spacing + token.value for token in sentence) for sentence in sentences]

    return split


OTHERS: dict[str, Callable[[], Splitter]] = {
    "sentencex": _sentencex,
    "pysbd": _pysbd,
    "syntok": _syntok,
    "blingfire": _blingfire,
}


def boundaries(sentences: Sequence[str]) -> frozenset[int]:
    """Return the ends of all sentences except the last, counted in relevant characters."""
    ends, length = [], 0
    for sentence in sentences:
        length += len(_DROPPED.sub("", sentence))
        ends.append(length)
    return frozenset(end for end in ends if 0 < end < length)


def language_of(text: str) -> str:
    possible = languages_of(text)
    return next((language for language in ("en", "de", "fr", "es", "ja", "zh") if language in possible), "en")


def measure(split: Splitter, cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    right = wrong = missed = whole = 0
    failed = []
    began = time.process_time()
    for case in cases:
        expected = boundaries(case["sentences"])
        found = boundaries(split(case["answer"], language_of(case["answer"])))
        right, wrong, missed = (
            right + len(found & expected),
            wrong + len(found - expected),
            missed + len(expected - found),
        )
        whole += found == expected
        if found != expected:
            failed.append(case["id"])
    seconds = time.process_time() - began
    return {
        "precision": right / max(1, right + wrong),
        "recall": right / max(1, right + missed),
        "f1": 2 * right / max(1, 2 * right + wrong + missed),
        "whole": whole,
        "us_a_reply": seconds / len(cases) * 1e6,
        "failed": failed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=DEFAULT_CASES)
    parser.add_argument("--failed", action="store_true", help="list the replies that each splitter gets wrong")
    arguments = parser.parse_args()
    cases = json.loads(arguments.cases.read_text(encoding="utf-8"))
    english = [case for case in cases if language_of(case["answer"]) == "en"]
    print(f"{len(cases)} replies, {len(english)} of them English\n")
    print("| splitter | correct replies | F1 | precision | recall | correct English | µs per reply |")
    print("|---|---|---|---|---|---|---|")
    splitters: dict[str, Callable[[], Splitter]] = {"this package": lambda: ours, **OTHERS}
    for name, load in splitters.items():
        try:
            split = load()
        except ImportError:
            print(f"| {name} | not installed | | | | | |")
            continue
        result, in_english = measure(split, cases), measure(split, english)
        print(
            f"| {name} | {result['whole']} | {result['f1']:.3f} | {result['precision']:.3f} | {result['recall']:.3f} "
            f"| {in_english['whole']} | {result['us_a_reply']:.0f} |"
        )
        if arguments.failed:
            print(f"  {' '.join(result['failed'])}")


if __name__ == "__main__":
    main()
