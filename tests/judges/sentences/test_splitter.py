import json
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.sentences.splitter import IncrementalSplitter
from judges.types import Sentence, Span

CASES = json.loads((Path(__file__).parents[1] / "data" / "segmentation.json").read_text(encoding="utf-8"))

# Pieces that are hard for a splitter: punctuation, abbreviations, pairs of marks, blocks and long gaps.
MARKS = [". ", ".", "..", "...", "? ", "?!", "! ", "。", "！", "؟ ", "।", ": ", "：", "; ", ", ", "Here is "]
WORDS = [
    "Dr. ",
    "e.g. ",
    "U.S. ",
    "No. ",
    "p.m. ",
    "J. ",
    "z. B. ",
    "3. ",
    "12",
    "3.14",
    "v2.0.1",
    "a@b.c",
    "http://x.y/z?q=1.",
]
STARTS = [
    "It ",
    "The ",
    "Oktober ",
    "word ",
    "words",
    "Word",
    "iPhone",
    "é",
    "é.",
    "の",
    "展厅",
    "😀",
    "and\n",
    "\\",
    "&",
    "<b>",
]
PAIRS = [
    '"',
    "“",
    "”",
    "„",
    "«",
    "»",
    "'",
    "’",
    "(",
    ")",
    "[",
    "]",
    "「",
    "」",
    "[1]",
    "[1](http://a)",
    "【4†s】",
    "[[2]]",
    "`",
    "``",
]
BLOCKS = [
    "```",
    "```sh\n",
    "\n```\n",
    "~~~\n",
    "# ",
    "\n## ",
    "- ",
    "\n- ",
    "\n1. ",
    "* ",
    "**",
    "_",
    "|",
    "| a. B | c |\n",
    "> ",
    "---\n",
]
GAPS = [" ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2029", " " * 50]
PIECES = st.sampled_from([*MARKS, *WORDS, *STARTS, *PAIRS, *BLOCKS, *GAPS])
TEXTS = st.lists(PIECES, max_size=40).map("".join)
CUTS = st.lists(st.integers(min_value=0, max_value=400), max_size=12)


def split(text: str, cuts: Iterable[int] = (), *, max_chars: int = 4000, truncated: bool = False) -> list[Sentence]:
    splitter = IncrementalSplitter(max_chars=max_chars)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = [sentence for start, end in pairwise(places) for sentence in splitter.push(text[start:end])]
    return [*found, *splitter.flush(truncated=truncated)]


def texts(text: str) -> list[str]:
    return [sentence.text.strip() for sentence in split(text)]


def collapsed(sentences: Sequence[str]) -> list[str]:
    """As sentences are compared: whitespace collapsed, list and heading marks dropped."""
    return [" ".join(text.split()).removeprefix("## ") for text in sentences]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_known_boundaries_hold_for_any_chunking(case: dict[str, Any]) -> None:
    answer, expected = case["answer"], collapsed(case["sentences"])
    for cuts in ((), range(len(answer)), range(0, len(answer), 7)):
        assert collapsed([sentence.text for sentence in split(answer, cuts)]) == expected


@given(text=TEXTS, cuts=CUTS, max_chars=st.sampled_from([1, 2, 7, 20, 60, 4000]))
def test_chunking_changes_nothing(text: str, cuts: list[int], max_chars: int) -> None:
    whole = split(text, max_chars=max_chars)
    assert split(text, cuts, max_chars=max_chars) == whole
    assert split(text, range(len(text)), max_chars=max_chars) == whole


@given(text=TEXTS, max_chars=st.sampled_from([1, 7, 60, 4000]))
def test_sentences_tile_the_text(text: str, max_chars: int) -> None:
    sentences = split(text, max_chars=max_chars)
    assert "".join(sentence.text for sentence in sentences) == text
    assert [sentence.index for sentence in sentences] == list(range(len(sentences)))
    assert all(text[s.span.start : s.span.end] == s.text and 0 < len(s.text) <= max_chars for s in sentences)


@given(text=TEXTS, more=TEXTS)
def test_emitted_sentences_are_never_revised(text: str, more: str) -> None:
    splitter = IncrementalSplitter()
    early = list(splitter.push(text))
    assert split(text + more)[: len(early)] == early


@given(text=st.text(max_size=200), cuts=CUTS)
def test_any_text_is_split_the_same_way(text: str, cuts: list[int]) -> None:
    assert split(text, cuts) == split(text)


@pytest.mark.parametrize(
    ("arrived", "deciding", "emitted"),
    [
        ("The fee is 5 euros. ", "N", "The fee is 5 euros. "),
        ("Is it? ", "Y", "Is it? "),
        ("これは本です。", "次", "これは本です。"),
        ("राम आया। ", "स", "राम आया। "),
        ("Line one\n\n", "L", "Line one\n\n"),
        ("# Heading\n", "T", "# Heading\n"),
        ("Five years.[1] ", "L", "Five years.[1] "),
        ("Sold in the U.S. It ", "", "Sold in the U.S. "),
    ],
)
def test_sentence_is_emitted_with_the_deciding_character(arrived: str, deciding: str, emitted: str) -> None:
    splitter = IncrementalSplitter()
    early = list(splitter.push(arrived))
    assert [s.text for s in (*early, *splitter.push(deciding))] == [emitted]
    assert bool(early) == (deciding == "")


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Smith met Prof. J. K. Lee and Mrs. Roy.",
        "See Fig. 3, No. 12 and Art. 5 of vol. 2.",
        "Take max. [8](faq.pdf) Aspirin tablets.",
        "Nehmen Sie mind. [8](faq.pdf) Tabletten und mind. 2 Liter Wasser.",
        "The U.S. Navy bought it from Acme Inc. Ltd.",
        "It opens at 8 a.m. Monday and at 9 a.m. EST.",
        "Pi is 3.14, the sum 1,000.50, the build v2.0.1.",
        "Mail a.b@c.de or open x.tar.gz at 10.0.0.1:80.",
        "Go to https://a.example/b.c?d=e.f!g#h now.",
        "Well... it went on … and on.",
        'She said "FullStopKind. Go home." and left.',
        "The rule (see below. It is short.) applies.",
        "Run `a. B` or ``c. `D` e`.",
        "A [link. Text](http://a.example/b) here.",
        "Er kommt am 3. Mai, im 19. Jahrhundert, z. B. um 8 Uhr, vgl. Abs. 2 Nr. 4.",
        "Voir l'art. 5, p. ex. chez M. Dupont.",
        "El Sr. García vive en EE. UU. desde 2010.",
        "# 1. A heading. Of two parts",
        "| 1. Cell. One | Two. Three |",
        "1. The first item",
        "He wrote to J. R. Hartley in person.",
        "Sie sagte „Halt. Bleib.“ und ging.",
        "Il dit «\u00a0Non. Jamais.\u00a0» à tous.",
        "掲示には「走らない。歩く。」とあります。",
        "Yahoo! is a firm.",
        "The line goes on,\nthough it is broken and\nwrapped.",
        "I like it :( but it\nworks.",
        "He said **no." + "*" * 20,
        "Not a marker.[1" + "0" * 80 + "] here.",
        "Nor is this.[1](http://a.example/" + "b" * 320 + ") so.",
        "```" + "x" * 100 + "\ncode. MoreTextNeeded\n```",
    ],
)
def test_no_split_inside(text: str) -> None:
    assert texts(text) == [text]


@pytest.mark.parametrize(
    "parts",
    [
        ["The answer is no.", "The fee is 5.", "Dogs stay out, etc.", "Then it ends."],
        ["Acme Inc.", "The firm grew."],
        ["Allies of N.A.T.O. Europe met.", "It joined N.A.T.O.", "The vote was close."],
        ["(" * 20 + "Deep." + ")" * 16, "It ends."],
        ["She paid $5.", "iPhones cost more.", "eBay sells them."],
        ['"Is it valid?"', "Yes.", "'FullStopKind.'", "Next."],
        ["What?!", "No!!", "Wait...", "Then it went on."],
        ["Das war 2013.", "Heute ist es 12.", "Die Frau kam."],
        ["1. First item.", "MoreTextNeeded of it."],
        ["**Bold.**", "*Two.*", "Three.", "😀 Four."],
        ["He left (late.)", "[Aside.]", "End."],
        ["Five years. [1]", "Labour four.[2][3]", "Next.【4†source】", "Last [^5].", "See [6](http://a.example)."],
        ["Five years.[1](http://a.example)", "Six. [2](http://b.example)", "Seven."],
        ["Sure!", "Here are the facts:", "Dogs bark."],
        ["次！？", "はい。", "数は３．１４です。", "値段は5円!", "高い"],
        ["هل هذا صحيح؟", "نعم.", "हाँ।", "ठीक॥", "end"],
        ['He said "no. "It is late," she said.', "The end."],
        [".", "The end."],
        ["```a. B``` is no block.", "Next."],
        ['The 5" pipe is long.', "It is 6'2\".", "Tall."],
    ],
)
def test_splits_between(parts: list[str]) -> None:
    joined = "".join(part if part[-1] in "。？！" and part != parts[-1] else part + " " for part in parts)
    assert texts(joined) == parts


def test_lines_and_blocks_are_units() -> None:
    blocks = [
        "Intro:\n",
        "- one. Still\n",
        "- two\n",
        "  1) nested\n\n",
        "## Title\n",
        "| A | B |\n",
        "|---|---|\n",
        "| 1 | 2 |\n\n",
        "> quoted\n",
        "```sh\n# v2. Not\n\n```not\n```\n\n",
        "~~~~\n```\n~~~\n~~~~\n",
        "---\n",
        "Open (bracket\n\n",
        "Last",
    ]
    text = "".join(blocks)
    units = ["Intro:", "- one.", "Still", "- two", "1) nested", "## Title", "| A | B |", "|---|---|", "| 1 | 2 |"]
    code = ["```sh\n# v2. Not\n\n```not\n```", "~~~~\n```\n~~~\n~~~~"]
    assert texts(text) == [*units, "> quoted", *code, "---", "Open (bracket", "Last"]
    assert [s.in_code for s in split(text)] == [s.text.startswith(("```", "~~~")) for s in split(text)]


def test_unclosed_mark_delays_only_a_little() -> None:
    sentences = texts('A ( or " opens. ' + "It goes on and on. " * 40)
    assert len(sentences) > 15
    assert max(len(sentence) for sentence in sentences) < 450


def test_long_unit_is_cut_at_white_space_and_code_at_line_ends() -> None:
    words = split("word " * 30, max_chars=22)
    assert {s.text for s in words} == {"word word word word "} | {words[-1].text}
    assert [len(s.text) for s in split("x" * 25, max_chars=10)] == [10, 10, 5]
    assert [len(s.text) for s in split("a\n" + " " * 20, max_chars=10)] == [10, 10, 2]
    code = split("```\n" + "a = 1\n" * 10 + "```\nEnd.", max_chars=20)
    assert all(s.text.endswith("\n") and s.in_code for s in code[:-1])
    assert (code[-1].text, code[-1].in_code) == ("End.", False)


def test_open_fence_is_code_to_the_end() -> None:
    *_, last = split("Use this:\n\n```python\nx = 1.5\n# v2.0 comment. Not a heading\nprint(x", truncated=True)
    assert last.in_code
    assert last.plain == "x = 1.5 # v2.0 comment. Not a heading print(x"


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("It is returned six weeks after", False),
        ("It ends.", True),
        ('He said "no." [1]\n', True),
        ("終わり。", True),
        ("- item", False),
    ],
)
def test_only_a_truncated_reply_ends_in_a_fragment(text: str, complete: bool) -> None:
    assert split(text, truncated=True)[-1].complete is complete
    assert split(text)[-1].complete


def test_spans_count_code_points() -> None:
    assert [s.span for s in split("😀 é. Next.")] == [Span(0, 5), Span(5, 10)]


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_white_space_alone_is_no_sentence(text: str) -> None:
    assert [(s.text, s.plain) for s in split(text)] == ([(text, "")] if text else [])


def test_splitter_serves_one_text() -> None:
    splitter = IncrementalSplitter()
    splitter.push("One.")
    assert [s.text for s in splitter.flush()] == ["One."]
    assert list(splitter.flush()) == []
    with pytest.raises(RuntimeError, match="after flush"):
        splitter.push("Two.")


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="max_chars"):
        IncrementalSplitter(max_chars=0)
    with pytest.raises(ValueError, match=r"languages: .*'xx'"):
        IncrementalSplitter(languages=["xx"])


@pytest.mark.parametrize(
    "piece", ["Word. Next ", "a." + " " * 3000, "`", "(", '."', ".[1", "\n", "U.S. ", "```\n", "[", "[a]: #\n"]
)
def test_work_per_character_is_constant(piece: str) -> None:
    """The limit is far above the actual work and far below quadratic work."""
    size = 40_000
    assert _cpu_time((piece * (size // len(piece) + 1))[:size]) < 8


@pytest.mark.parametrize("opening", ["[", "- [", "[a]:", '[a]: # "', "[a]: # (", "[a]: <"])
def test_work_on_an_open_definition_is_constant(opening: str) -> None:
    assert _cpu_time(opening + "word " * 8_000) < 8


def _cpu_time(text: str) -> float:
    splitter = IncrementalSplitter()
    start = time.process_time()
    for ch in text:
        splitter.push(ch)
    splitter.flush()
    return time.process_time() - start


DEFINITIONS = [
    "[It is not]: #\n", "[It is not]: /u\n", "[It is not]: <>\n", "[It is not]: <a b>\n", "[It is not]:\n#\n",
    "[x]: # (It is not)\n", '[x]: # "It is not"\n', "[x]: # 'It is not'\n", "[x]: #\n(It is not)\n",
    "[x]: #\n'It is\nnot'\n", "[It is\nnot]: #\n", "[\nIt is not]: #\n", "[It \\] is not]: #\n", "   [It is not]: #\n",
    "- [It is not]: #\n  ", "1. [It is not]: #\n   ", "- > [It is not]: #\n  > ", "> [It is\n> not]: #\n> ",
    "[It is not]: a\u00a0b\n", "[It is not]: #\r", "[It is not]: #\r\n", "[x]: # 'isn\\'t'\n",
    "[a]: #\n[It is not]: #\n", "[It is not. No.]: #\n", "[It is not" + " at all" * 100 + ". No]: #\n",
]  # fmt: skip


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("before", ["", "The fee is due.\n\n", "The fee is due.\n"])
def test_sentence_ends_after_a_link_definition(definition: str, before: str) -> None:
    """Browsers don't show the definition."""
    last = split(f"{before}{definition}the fee is refundable.")[-1]
    assert last.plain == "the fee is refundable."
    assert "not" not in last.text


@pytest.mark.parametrize(
    "text",
    [
        "[Note]: the fee\nis due.", "[x]: # (not) so\nit is.", "[a [b]]: #\nit is.", "[x\n\ny]: #\nit is.",
        "[1] The fee,\n[2] it is.",
    ],
)  # fmt: skip
def test_similar_text_is_no_definition(text: str) -> None:
    *_, last = split(text)
    assert last.text in (text, text.partition("\n\n")[2])


def test_surrogate_halves_are_joined_for_the_judge() -> None:
    splitter = IncrementalSplitter()
    sentences = [*splitter.push("Good \ud83d"), *splitter.push("\ude82 day. Bad \ud83d day."), *splitter.flush()]
    assert [sentence.plain for sentence in sentences] == ["Good 🚂 day.", "Bad day."]
    assert "".join(sentence.text for sentence in sentences) == "Good \ud83d\ude82 day. Bad \ud83d day."
