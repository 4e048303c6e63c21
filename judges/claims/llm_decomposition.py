"""Long sentences taken apart by an LLM, where that loses nothing."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from judges.claims.fidelity import is_faithful
from judges.protocols import ClaimExtractor, ClaimJudge, JudgeError
from judges.types import Claim, LlmCall, Sentence

log = logging.getLogger(__name__)

_MOST_WORDS = 20
_MOST_NAMES = 2
_CLAUSES = re.compile(r", and |; | while | however |(?:^|\s)However,", re.IGNORECASE)
_NAME = re.compile(r"(?<=[\w,;:)\]] )(?:\w*\d[\w.,:%/-]*|[A-ZÀ-ÖØ-Þ][\w'’-]*)(?: [A-ZÀ-ÖØ-Þ][\w'’-]*)*")
_NUMBER_FIRST = re.compile(r"\A\W*\d")
_MOST_PARTS = 12


class DecomposingExtractor:
    """Finds claims by ``extractor`` and has ``llm`` take the complex ones apart; implements ``ClaimExtractor``.

    What ``extractor`` found stands where the LLM fails, takes longer than ``timeout_s``, or returns parts that lose a
    word of substance, a number or a negation of the sentence, or bring in others: what is left out would go unjudged.
    ``record`` is told of each call.
    """

    def __init__(
        self, extractor: ClaimExtractor, llm: ClaimJudge, *, timeout_s: float, record: Callable[[LlmCall], None]
    ) -> None:
        self._extractor = extractor
        self._llm = llm
        self._timeout_s = timeout_s
        self._record = record

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims of ``sentence``; the parts of a claim have its span."""
        claims = await self._extractor.extract(sentence, previous)
        if not any(is_complex(claim.text) for claim in claims):
            return claims
        taken_apart = [await self._parts(claim) for claim in claims]
        return [part for parts in taken_apart for part in parts]

    async def _parts(self, claim: Claim) -> Sequence[Claim]:
        if not is_complex(claim.text):
            return [claim]
        try:
            async with asyncio.timeout(self._timeout_s):
                parts = await self._llm.decompose(claim.text, claim.context, self._record)
        except (JudgeError, TimeoutError) as error:
            log.info("a sentence was not taken apart: %s", error or "timeout")
            return [claim]
        parts = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
        if not 1 < len(parts) <= _MOST_PARTS or not is_faithful(parts, claim.text, claim.context):
            return [claim]
        return [replace(claim, text=part, context="") for part in parts]


def is_complex(text: str) -> bool:
    """More than 20 words, several clauses, or three numbers and names or more."""
    if len(text.split()) > _MOST_WORDS or _CLAUSES.search(text):
        return True
    return len(_NAME.findall(text)) + bool(_NUMBER_FIRST.match(text)) > _MOST_NAMES
