"""Every character of a reply has a standing; the parts joined give the reply."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings

from judges.checker import GroundingChecker
from judges.label_thresholds import Thresholds
from judges.reply_check import ReplyCheck
from judges.report import letters
from judges.testing import ScriptedJudge, entails
from judges.types import Chunk, Part, SentenceVerdict, Standing
from tests.judges.text.test_fragments import MARKUP

pytestmark = pytest.mark.anyio

DOCUMENT = (
    "Wait 24 hours between doses. The warranty is 24 months.\n\n    pip install lamp\n\nhttps://example.com/terms"
)


async def opened(*, question: str = "How long?", is_json: bool = False) -> ReplyCheck:
    checker = GroundingChecker(ScriptedJudge(default=entails()))
    evidence = await checker.prepare([Chunk(id="d1", text=DOCUMENT, source="faq.pdf")])
    return checker.reply(
        evidence,
        thresholds=Thresholds(),
        question=question,
        message=question,
        is_json=is_json,
        resolves=lambda marker: marker in ("[1]", "(faq.pdf)"),
    )


async def checked(text: str, *, cut: bool = False, **options: Any) -> list[SentenceVerdict]:
    reply = await opened(**options)
    sentences = [*reply.push(text), *reply.flush(truncated=cut)]
    return [await reply.check(sentence) for sentence in sentences]


def parts(text: str, **options: bool) -> list[Part]:
    return [part for verdict in asyncio.run(checked(text, **options)) for part in verdict.parts]


def unjudged(text: str, **options: bool) -> list[tuple[str | None, str]]:
    return [
        (part.kind, text[part.span.start : part.span.end])
        for part in parts(text, **options)
        if part.standing is Standing.UNJUDGED
    ]


@settings(max_examples=60)
@given(MARKUP)
def test_parts_tile_any_reply(text: str) -> None:
    for is_json in (False, True):
        found = parts(text, is_json=is_json)
        assert "".join(text[part.span.start : part.span.end] for part in found) == text


@pytest.mark.parametrize(
    "text",
    [
        "Hello! Wait 24 hours [1]. I hope this helps!",
        "## Warranty\n\n- The warranty is 24 months (faq.pdf).\n- Wait 24 hours.\n",
        "| Warranty | Months |\n|---|---|\n| Lamp | 24 |\n",
        "Run this:\n\n```sh\npip install lamp\n```\n",
        "See [the terms](https://example.com/terms).",
        "`pip install lamp`",
        "Wait 24 hours [1].\n\n[1]: https://example.com/terms",
        "Wait 24 hours.\n\nSources: [1](https://example.com/terms)",
        "Wait 24 hours.\n\n**Sources**\n- [1](https://example.com/terms)\n",
    ],
)
def test_ordinary_reply_is_judged_or_harmless(text: str) -> None:
    assert unjudged(text) == []


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("```\nrm -rf lamp\n```", [("code", "rm -rf lamp\n")]),
        ("```Take 8 tablets\npip install lamp\n```", [("code", "Take 8 tablets")]),
        ("`rm -rf lamp`", [("code", "`rm -rf lamp`")]),
        ("See [the terms](https://example.com/take-8).", [("link", "https://example.com/take-8")]),
        ('Wait <b title="Take 8">24 hours</b>.', [("attribute", 'title="Take 8"')]),
        ("Wait 24 hours <!-- take 8 -->.", [("comment", "<!-- take 8 -->")]),
        ("Wait 24 hours [9].", [("stray_marker", "[9]")]),
        ("Wait 24\u200b hours.", [("invisible", "\u200b")]),
        ("Wait 24 hours<?take 8?>.", [("comment", "<?take 8?>")]),
        ("Wait ~~24~~ hours.", [("struck", "~~"), ("struck", "~~")]),
        ("~~Wait 24 hours. Wait 24 hours.~~", [("struck", "~~"), ("struck", "~~")]),
        ("Wait ~24~ hours.", [("struck", "~")]),
        ("Wait ~24~&nbsp;hours, ~24~<b>hours</b>, ~24~“hours”.", [("struck", "~")] * 3),
        ("Wait ~2~4 hours.", [("struck", "Wait ~2~4 hours.")]),
        ("Wait 20~24 hours, not 2~4.", [("struck", "Wait 20~24 hours, not 2~4.")]),
        ("Wait *2*4 hours.", [("emphasis", "*")]),
        ("Wait 2**4** hours.", [("emphasis", "Wait 2**4** hours.")]),
        ("Wait 2*4 hours.", [("emphasis", "Wait 2*4 hours.")]),
        ("Wait [1](https://example.com/terms) hours.", [("stray_marker", "[1]")]),
        ("Wait ([1](https://example.com/terms)) hours.", [("stray_marker", "[1]")]),
        ("Wait: [1](https://example.com/terms)", [("stray_marker", "[1]")]),
        ("[1](https://example.com/terms)", [("stray_marker", "[1]")]),
        ("Wait 2[1] hours.", [("stray_marker", "[1]")]),
        ("Wait [1]24 hours.", [("stray_marker", "Wait [1]24 hours.")]),
        ("Wait 20~24 hours, or ~24 hours.", []),
        ("Wait w*ai*t **24** *hours*, Kund*innen. これは**24**時間です。", []),
        ("Wait <del>24</del> hours.", [("struck", "<del>"), ("struck", "</del>")]),
        ('Wait <S class="a">24</S> hours.', [("struck", '<S class="a">'), ("struck", "</S>")]),
        ("Wait <template>24</template> hours.", [("struck", "<template>"), ("struck", "</template>")]),
        ("Wait <b hidden=24>24</b> hours.", [("attribute", "hidden=24")]),
        ('Wait <p class="24">24 hours.', [("attribute", 'class="24"')]),
        ("Wait <ol start=24><li value=24>24 hours.", [("attribute", "start=24"), ("attribute", "value=24")]),
        (
            "Wait <a href='https://example.com/terms' hidden>24</a> hours.",
            [("attribute", "href='https://example.com/terms' hidden")],
        ),
        ("Wait <a href='https://example.com/terms'>24</a><br/> hours<sup>2</sup>, <B>24</B> <hr />", []),
        ("Wait \udb40\udc6224 hours.", [("invisible", "\udb40\udc62")]),
        ("Wait ~24 hours, in ~/lamp or ~ 24 hours.", []),
        ("[Wait]: https://example.com/terms\n24 hours.", [("link", "[Wait]")]),
        ("[x]: # (Stay)\n24 hours.", [("link", "[x]"), ("link", "# (Stay)")]),
        ("Wait [1] hours.\n\n[1]: https://example.com/terms", [("link", "[1]: https://example.com/terms")]),
        ("[1]: https://example.com/terms\n\nWait [1] hours.", [("link", "[1]")]),
        ("Hours: [1](https://example.com/terms)", [("stray_marker", "[1]")]),
        ("Wait ![now](https://example.com/terms) hours.", [("attribute", "![now](https://example.com/terms)")]),
        ("Wait ![](https://example.com/terms) 24 hours.", []),
        ("- [ ] Wait 24 hours.", [("symbol", "[ ] ")]),
        (
            "- [ ] [x]: https://example.com/terms\n  Wait 24 hours.",
            [("link", "- [ ] [x]: https://example.com/terms\n  ")],
        ),
        ("Wait 2\u03344 hours.", [("struck", "\u0334")]),
        ("Wait &#50;4 or &#50 hours.", [("struck", "Wait &#50;4 or &#50 hours.")]),
        ("<p>Wait \\&#50; hours.</p>", [("struck", "<p>Wait \\&#50; hours.</p>")]),
        ("Wait:\n[1]: 24 'hours'\n", [("link", "[1]: 24 'hours'\n")]),
        ("Hello!\n[1]: 24\n", [("link", "[1]: 24\n")]),
        ("| Hours |\n|---|\n[1]: 24\n", [("link", "[1]: 24\n")]),
        ("Wait\n\n[1]: 24 'hours'", [("link", "24 'hours'")]),
        ("Hello!\n[1]: https://example.com/terms 'hours'", [("link", "[1]: https://example.com/terms 'hours'")]),
        (
            "Sources:\n[1]: https://example.com/terms\n[2]: https://example.com/terms",
            [("link", "[2]: https://example.com/terms")],
        ),
        ("Wait.\n\n[1]: https://example.com/terms 'faq.pdf'", []),
    ],
)
def test_hidden_text_is_unjudged_and_has_a_kind(text: str, kinds: list[tuple[str, str]]) -> None:
    assert unjudged(text) == kinds


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Wait <\u200bs>24</s> hours.", "struck"),
        ("Wait <\u2060!-- 24 --> hours.", "comment"),
        ("Wait <\U000e0041/3 24> hours.", "comment"),
        ("Wait ~\u200b~24 hours~\ud83d~.", "struck"),
        ("Wait <<!-- -->s>24</s> hours.", "struck"),
        ("Wait <<del>s>24</s> hours.", "struck"),
        ("Wait <\u200bb hidden>24</b> hours.", "attribute"),
        ("See [the terms]\u200b(https://example.com/take-8).", "link"),
        ("Wait 24 hours [\u200b9].", "stray_marker"),
    ],
)
def test_markup_that_forms_when_text_is_left_out_is_unjudged(text: str, kind: str) -> None:
    assert unjudged(text) == [(kind, text)]


@pytest.mark.parametrize(
    "text",
    [
        "# The rate limit is 9000", "```\n# The rate limit is always 9000\n```", "| Take 8 tablets |",
        "- The terms of Zaphod",
        "The limit is 9000:", "Please feel free to take up to 8 tablets", "Thank you for asking, the limit is 9000",
        "I don't know, the limit is 9000", "I think the limit is 9000", "Did you know that the limit is 9000?",
        "The limit is 9000, right?", "Note: the limit is 9000", "Wait 24 hours.<Take 8 if it hurts.>", "The limit is",
        "Wait 24 hours 【or 8 if it hurts】",
    ],
)  # fmt: skip
def test_statements_are_claims(text: str) -> None:
    verdicts = asyncio.run(checked(text, cut=True))
    assert any(verdict.claims for verdict in verdicts)


def test_yes_is_judged_with_its_question() -> None:
    (verdict,) = asyncio.run(checked("Yes.", question="Is it 9000?"))
    assert [one.claim.text for one in verdict.claims] == ["Is it 9000? Yes."]


def test_leaves_and_keys_of_json_are_judged() -> None:
    text = '{"months": 36, "battery": {"covered": true}, "note": "Wait 24 hours between doses."}'
    verdicts = asyncio.run(checked(text, is_json=True))
    told = [one.claim.text for verdict in verdicts for one in verdict.claims]
    assert told == ["months: 36", "battery covered: true", "Wait 24 hours between doses."]
    assert unjudged(text, is_json=True) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"months": "24\u200b"}', "invisible"),
        ('{"months": "24\\u200b"}', "invisible"),
        ('{"months": "\\udb40\\udc62"}', "invisible"),
        ('{"mon\U000e0062ths": 24}', "invisible"),
        ('{"mon\u2060ths": "Wait 24 hours between doses."}', "invisible"),
        ('{"note&#8203;": "Wait 24 hours between doses."}', "invisible"),
        ('{"a": {"\u200b": []}}', "invisible"),
        ('{"months": "~~24~~"}', "struck"),
        ('{"<s>months": [1]}', "struck"),
        ('{"months": "<!-- 24 -->"}', "comment"),
        ('{"months": "<b hidden>24"}', "attribute"),
        (f'{{"{"wait " * 90}": 24}}', "json"),
        (f'{{"{"wait " * 90}": "Wait 24 hours between doses."}}', "json"),
        (f'{{"{"wait " * 50}": {{"{"doses " * 50}": []}}}}', "json"),
        (f'{{"{"_" * 900}": 24}}', "json"),
    ],
)
def test_json_that_hides_text_or_has_long_keys_is_unjudged(text: str, kind: str) -> None:
    assert {found for found, _ in unjudged(text, is_json=True)} == {kind}


@pytest.mark.parametrize(
    "value",
    [
        {"operator": "<", "limit": "<= 5", "price": "~5", "path": "~/lamp", "mail": "a_b@example.com", "id": "x<5"},
        {"answer": "Wait 24 hours between doses.", "sources": [], "ids": [1, 2], "ok": None},
        {"warranty": {"summary": "The warranty is 24 months.", "months": 24}, "doses": []},
        [{"title": "The warranty is 24 months.", "url": "https://example.com/terms"}],
    ],
)
def test_ordinary_json_is_judged_or_harmless(value: object) -> None:
    assert unjudged(json.dumps(value), is_json=True) == []
    assert unjudged(f"```json\n{json.dumps(value, indent=2)}\n```", is_json=True) == []


async def test_claims_are_unjudged_without_documents_or_a_judge() -> None:
    for checker, chunks, kind in (
        (GroundingChecker(ScriptedJudge(default=entails())), [], "no_documents"),
        (GroundingChecker(None), [Chunk(id="d", text=DOCUMENT)], "unavailable"),
    ):
        reply = checker.reply(await checker.prepare(chunks), thresholds=Thresholds())
        sentences = [*reply.push("Hello! Wait 24 hours."), *reply.flush()]
        found = [part for sentence in sentences for part in (await reply.check(sentence)).parts]
        assert [part.kind for part in found if part.standing is Standing.UNJUDGED] == [kind]
        report = reply.report()
        assert not report.is_trusted
        assert [part.kind for part in report.unjudged] == [kind]


async def test_coverage_is_a_share_of_letters_and_digits() -> None:
    text = "Wait 24 hours.\n\n```\nrm -rf lamp\n```\n"
    checker = GroundingChecker(ScriptedJudge(default=entails()))
    reply = checker.reply(await checker.prepare([Chunk(id="d", text=DOCUMENT)]), thresholds=Thresholds())
    for sentence in [*reply.push(text), *reply.flush()]:
        await reply.check(sentence)
    assert reply.report().coverage == pytest.approx(letters("Wait24hours") / letters("Wait24hours" + "rmrflamp"))


@pytest.mark.parametrize(
    "text",
    [
        "Wait [][8](4) hours.",
        "Wait [ ][8](4) hours.",
        "Wait [about][8](4) hours.",
        "Wait [the][8](faq.pdf) hours.",
        "Wait [*at least*][24](4) hours.",
        "Wait [24][8](4) hours.",
        "Wait [a][b](4) hours.",
        "Wait [24][1](faq.pdf).",
        "Wait [a][8]() hours.",
    ],
)
def test_link_after_brackets_is_unjudged(text: str) -> None:
    assert unjudged(text)


@pytest.mark.parametrize("entity", ["&#150;", "&#151;", "&#x96;", "&#X85;", "&#133;", "&#0128;", "&#159;", "&#127;"])
def test_entity_of_a_control_character_is_unjudged(entity: str) -> None:
    assert unjudged(f"Wait {entity}24 hours.") == [("invisible", entity)]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Wait &#8211;24 hours.", "Wait –24 hours."),
        ("Wait &#x2212;24 hours.", "Wait −24 hours."),
        ("Wait &lt; 24 hours.", "Wait < 24 hours."),
        ("Wait &notit; 24 hours.", "Wait &notit; 24 hours."),
        ("Wait &not24; hours.", "Wait &not24; hours."),
        ("Wait &#0;24 hours.", "Wait \ufffd24 hours."),
        ("Wait &#xD800;24 hours.", "Wait \ufffd24 hours."),
        ("Wait &#9999999;24 hours.", "Wait \ufffd24 hours."),
    ],
)
def test_entity_is_read_as_it_is_shown(text: str, read: str) -> None:
    assert [claim.claim.text for verdict in asyncio.run(checked(text)) for claim in verdict.claims] == [read]


@pytest.mark.parametrize(
    "text",
    [
        "`Wait`\n`24 hours between doses.`",
        "`Wait`\n`pip install lamp`",
        "The code\n`pip install lamp`",
        "`pip`\n`install`\n`lamp`",
        "Never use\n``pip install lamp``",
        "- `Wait`\n  `24 months.`",
    ],
)
def test_lines_of_inline_code_in_a_paragraph_are_read_together(text: str) -> None:
    claims = [claim.claim.text for verdict in asyncio.run(checked(text)) for claim in verdict.claims]
    assert claims == [" ".join(text.removeprefix("- ").replace("`", "").split())]


@pytest.mark.parametrize(
    "text",
    [
        "●●●●", "🎉", "■■■□", "👉👉👉👉", "1. ●\n2. ○", "😉", "✨ ✨",
        "**○ Adults**\n\n**● Tablets**", "- ◆\n- ◇", "👍", "✅", "❌",
        "🙂 🙂 🙂", "▶", "Hello ➜!", "# ▪ Tablets", "| ● | ○ |\n|---|---|", "☺\ufe0f", "👋🏽", "Hello!\n\n😊 🎉",
        "Hello! \ufe0f", "Hello! 😊\ufe0f\ufe0f", "Hello! 😊\u200d", "Hello! 👍🏽", "Hello! 😊 ●",
    ],
)  # fmt: skip
def test_symbol_without_words_and_shape_is_unjudged(text: str) -> None:
    found = [part for part in parts(text) if any(not char.isspace() for char in text[part.span.start : part.span.end])]
    assert any(part.standing is not Standing.HARMLESS for part in found)


@pytest.mark.parametrize(
    "text",
    [
        "Hello! 😊", "Thank you! 🎉", "I hope this helps! 🚀", "Hello 👋!", "Hello! 😊 🎉", "Hello! 😊🎉  ✨\n",
        "Hello! ☺\ufe0f", "Hello! 👋🏽", "Hello! 👋🏽 ☺\ufe0f", "Hello! 🤝🏽\u200d🎉",
    ],
)  # fmt: skip
def test_symbol_that_decorates_words_is_harmless(text: str) -> None:
    assert {part.standing for part in parts(text)} == {Standing.HARMLESS}


@pytest.mark.parametrize(
    ("first", "gone", "second", "decorates"),
    [
        ("Wait 24 hours. ", 0, "🎉", False),
        ("Wait 24 hours. ", 0, "😊 🎉", False),
        ("Hello! Wait 24 hours. ", 1, "🎉", True),
        ("Hello!\n\nWait 24 hours. ", 1, "🎉", False),
    ],
)
async def test_symbol_decorates_no_discarded_sentence(first: str, gone: int, second: str, decorates: bool) -> None:
    reply = await opened()
    reply.push(first)
    reply.restart(gone)
    (sentence,) = [*reply.push(second), *reply.flush()]
    standings = {part.standing for part in (await reply.check(sentence)).parts}
    assert (Standing.UNJUDGED not in standings) == decorates


@pytest.mark.parametrize(
    "text", ["Wait 24 hours. 🎉", "- Wait 24 hours. 🎉", "a) Wait 24 hours. 😊", "Hello! Wait. 🎉"]
)
async def test_symbol_decorates_no_sentence_that_is_left_out(text: str) -> None:
    reply = await opened()
    *_, wait, symbol = [*reply.push(text), *reply.flush()]
    assert {part.standing for part in (await reply.check(symbol)).parts} == {Standing.HARMLESS}
    reply.leave_out(wait)
    assert not await reply.reads_as_before(symbol)
    assert {part.standing for part in (await reply.check(symbol)).parts} == {Standing.UNJUDGED}
    assert await reply.reads_as_before(symbol)


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("Hello!\n\n    | Wait <!-- never --> |\n", ["| Wait <!-- never --> |"]),
        ("Hello!\n\n    | Doses | Warranty |\n    |---|---|\n    | 24 | **months** |\n",
         ["| Doses | Warranty |", "| 24 | **months** |"]),
        ("    | Doses | [1] |\n", ["| Doses | [1] |"]),
        ("Hello!\n\n    | Doses | Warranty |\n| 24 | months |\n", ["| Doses | Warranty |", "24, months"]),
        ("- Hello!\n\n      | Wait <!-- never --> |\n", ["| Wait <!-- never --> |"]),
    ],
)  # fmt: skip
def test_rows_of_indented_code_are_read_as_they_are_shown(text: str, claims: list[str]) -> None:
    found = asyncio.run(checked(text))
    assert [claim.claim.text for verdict in found for claim in verdict.claims] == claims
    assert not unjudged(text)
