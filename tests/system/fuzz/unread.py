"""Nothing leaves unread: under ``unjudged_action: strip`` the client gets exactly the letters and digits that are
judged or harmless, whatever the reply looks like and however it is cut into frames."""

import asyncio
import atexit

from app.reply.stream_guard import DEFAULT_REPLACEMENT
from judges.checker import GroundingChecker
from judges.testing import ScriptedJudge, entails
from judges.thresholds import Thresholds
from judges.types import Chunk, Standing
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents
from tests.support.in_process_gateway import bench, chunk, policy, sse, text_of
from tests.system.fuzz.draw import Draw
from tests.system.fuzz.splitter import PIECES

MARKUP = (
    "<!-- take 8 -->", "<!-- take", "-->", "<b title='take 8'>", "</b>", "<Take 8>", "<sup>2</sup>", "<br>",
    "[the terms](https://example.com/take-8 \"Take 8\")", "![plan](take.png)", "[9]", "[1]", "(hr.pdf)", "【or 8】",
    "[Source: or 8]", "[1]: https://example.com/8 'Take 8'\n", "```Take 8\n", "```\n", "`rm -rf`", "| Take 8 |\n",
    "\u200b", "\u202e", "\U000e0041", "&#8203;", "&lt;", "~~no~~", "Hello! ", "I think ", "Yes. ", "Is it 8? ",
    "# The limit is 9000\n", "Note: ", "Let me know. ", "Sources:\n- hr.pdf\n", "Thank you for asking, it is 8. ",
    "It takes 8 days. ", "Staff receive 25 days of annual leave. ", "a_b*c ", "10<sup>3</sup>",
)  # fmt: skip
DOCUMENT = {"id": "hr-7", "source": "hr.pdf", "text": "Permanent staff receive 25 days of annual leave."}
QUESTION = "How much leave?"
RULES = policy(
    unjudged_action="strip", min_citations=0, max_unverifiable_ratio=1.0, min_grounding_score=0.0, stream_mode="hold"
)
_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)


def check(data: bytes) -> None:
    """Send a reply made of ``data`` through the gateway, and read it once more beside it."""
    draw = Draw(data)
    step = 1 + draw.below(12)
    parts: list[str] = []
    while not draw.ended and len(parts) < 60:
        parts.append(draw.text(5) if draw.below(10) == 0 else draw.pick((*MARKUP, *PIECES)))
    text = "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    _LOOP.run_until_complete(_check(text, step))


async def _check(text: str, step: int) -> None:
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    at = await bench(
        sse(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop")),
        RULES,
        judge=ScriptedJudge(default=entails()),
    )
    delivered = text_of(await at.stream(documents=[DOCUMENT]))
    read = await _read(text)
    allowed = {_letters(read)} if _letters(read) else {"", _letters(DEFAULT_REPLACEMENT)}
    if _letters(delivered) not in allowed:
        raise AssertionError(f"delivered {delivered!r} of {text!r}, of which {read!r} is judged or harmless")


async def _read(text: str) -> str:
    """What of ``text`` is judged or harmless."""
    given = Chunk(id=DOCUMENT["id"], text=DOCUMENT["text"], source=DOCUMENT["source"])
    names = DocumentNames([given])
    checker = GroundingChecker(ScriptedJudge(default=entails()))
    reply = checker.reply(
        await checker.prepare([given]),
        thresholds=Thresholds(),
        question=QUESTION,
        conversation=QUESTION,
        resolves=lambda bracket: names_only_documents(bracket, names),
    )
    sentences = [*reply.push(text), *reply.flush()]
    found = [part for sentence in sentences for part in (await reply.check(sentence)).parts]
    if "".join(text[part.span.start : part.span.end] for part in found) != text:
        raise AssertionError(f"the parts of {text!r} do not tile it")
    return "".join(text[part.span.start : part.span.end] for part in found if part.standing is not Standing.UNJUDGED)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))
