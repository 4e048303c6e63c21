"""Under ``unjudged_action: strip``, the client receives exactly the letters and digits that are judged or harmless,
and no name that the judge wasn't asked about, for any reply and any cuts into frames."""

import asyncio
import atexit
import re

from app.reply.delivered_text import DEFAULT_REPLACEMENT
from judges.checker import GroundingChecker
from judges.label_thresholds import Thresholds
from judges.testing import ScriptedJudge, entails
from judges.types import Chunk, Standing
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents
from tests.support.gateways.in_process_gateway import bench, chunk, policy, sse, text_of
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
NAMED = (
    "#", "# # and more\n", "**#**", "- #\n", "#. ", "| # |\n", "| Leave | # |\n|---|---|\n", "`#`", "```#\n",
    "~~#~~", "~#~", "<template>#</template>", "<del>#</del>", "<# ", '<b title="#">', "<!-- # -->", "<?#?>",
    "https://#.com ", "www.#.com", "[#](hr.pdf)", "[hr.pdf](#)", "![#](hr.pdf '#')", "[#]: hr.pdf\n",
    "[^#]: hr.pdf\n", "[^1]: #\n", "[hr-7:#]", "(hr.pdf, p. #)", "【1:0†#】", "[#]", "[Source: #]", "$#$", "\\#",
    "&#;", "2<sup>#</sup>", "Sorry, #. ", "Thanks for #! ", "Let me know #. ", "What # do you need? ",
    "Have you tried #? ", "How about #? ", "No, #. ", "Yes: # ", "Hello #! ", "Dear #,\n", "Subject: #\n",
    "Best regards,\n#\n", "Sources: #\n", "Here is #:\n", "See also # ", "Ask # for advice. ",
    "The documents do not say #. ", "# is not mentioned in the documents. ",
    "According to #, staff receive leave. ", "Staff receive leave (see #). ", "I think # ", "Note: #. ", '"#": ',
    "Step #: ", "As # says, ", "Q: #? A: ",
)  # fmt: skip
"""Markup and phrases with a name in place of ``#`` that occurs nowhere else."""
_NAME = re.compile(r"zq\d+x", re.IGNORECASE)
DOCUMENT = {"id": "hr-7", "source": "hr.pdf", "text": "Permanent staff receive 25 days of annual leave."}
QUESTION = "How much leave?"
RULES = policy(
    unjudged_action="strip", min_citations=0, max_unverifiable_ratio=1.0, min_grounding_score=0.0, stream_mode="hold"
)
_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)


def check(data: bytes) -> None:
    """Send a reply made from ``data`` through the gateway, and judge it a second time separately."""
    draw = Draw(data)
    step = 1 + draw.below(12)
    parts: list[str] = []
    while not draw.ended and len(parts) < 60:
        match draw.below(10):
            case 0:
                parts.append(draw.text(5))
            case 1 | 2 | 3:
                parts.append(draw.pick(NAMED).replace("#", f"zq{len(parts)}x"))
            case _:
                parts.append(draw.pick((*MARKUP, *PIECES)))
    text = "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    _LOOP.run_until_complete(_check(text, step))


async def _check(text: str, step: int) -> None:
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    judge = ScriptedJudge(default=entails())
    at = await bench(sse(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop")), RULES, judge=judge)
    delivered = text_of(await at.stream(documents=[DOCUMENT]))
    asked = {name.lower() for _, claim in judge.pairs for name in _NAME.findall(claim)}
    if unread := {name.lower() for name in _NAME.findall(delivered)} - asked:
        raise AssertionError(f"delivered {delivered!r} of {text!r}, but the judge wasn't asked about {unread}")
    read = await _read(text)
    allowed = {_letters(read)} if _letters(read) else {"", _letters(DEFAULT_REPLACEMENT)}
    if _letters(delivered).removesuffix(_letters(DEFAULT_REPLACEMENT)) not in allowed:
        raise AssertionError(f"delivered {delivered!r} of {text!r}, of which {read!r} is judged or harmless")


async def _read(text: str) -> str:
    """The parts of ``text`` that are judged or harmless."""
    given = Chunk(id=DOCUMENT["id"], text=DOCUMENT["text"], source=DOCUMENT["source"])
    names = DocumentNames([given])
    checker = GroundingChecker(ScriptedJudge(default=entails()))
    reply = checker.reply(
        await checker.prepare([given]),
        thresholds=Thresholds(),
        question=QUESTION,
        message=QUESTION,
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
