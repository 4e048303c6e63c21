"""Splits complex sentences into atomic claims with an LLM, unless that would lose content."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from judges.claims.llm_rewrite_check import spans_of_parts
from judges.llm_types import LlmCall
from judges.protocols import ClaimExtractor, JudgeError, LlmClaimJudge
from judges.types import Claim, Sentence

log = logging.getLogger(__name__)

_MAX_WORDS = 20
_MAX_NAMES = 2
_CLAUSES = re.compile(r", and |; | while | however |(?:^|\s)However,", re.IGNORECASE)
_NAME = re.compile(r"(?<=[\w,;:)\]] )(?:\w*\d[\w.,:%/-]*|[A-ZÀ-ÖØ-Þ][\w'’-]*)(?: [A-ZÀ-ÖØ-Þ][\w'’-]*)*")
_NUMBER_FIRST = re.compile(r"\A\W*\d")
_MAX_PARTS = 12


class DecomposingClaimExtractor:
    """Extracts claims and has an LLM split complex ones. Implements ``judges.protocols.ClaimExtractor``.

    A claim is not split if the LLM fails, takes too long, or returns anything but parts of the claim's text: lost
    content would not be judged, and added content is not in the reply. The judge reads each part together with the text
    before it.

    Args:
        extractor: finds the claims.
        llm: splits them.
        timeout_s: time limit for splitting one claim.
        record: called with each call to the LLM.
    """

    def __init__(
        self, extractor: ClaimExtractor, llm: LlmClaimJudge, *, timeout_s: float, record: Callable[[LlmCall], None]
    ) -> None:
        self._extractor = extractor
        self._llm = llm
        self._timeout_s = timeout_s
        self._record = record
        self._splits: dict[tuple[str, str], Sequence[str]] = {}
        """The LLM's answers, by claim and context. An answer is empty if the LLM failed, so it isn't asked again."""

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims in ``sentence``. The ``parts`` of a claim have the span of the whole claim."""
        claims = await self._extractor.extract(sentence, previous)
        if not any(is_complex(claim.text) for claim in claims):
            return claims
        return [replace(claim, parts=await self._parts(claim)) for claim in claims]

    async def _parts(self, claim: Claim) -> tuple[Claim, ...]:
        if not is_complex(claim.text):
            return ()
        key = claim.text, claim.context
        if key not in self._splits:
            try:
                async with asyncio.timeout(self._timeout_s):
                    self._splits[key] = await self._llm.decompose(claim.text, claim.context, self._record)
            except (JudgeError, TimeoutError) as error:
                log.info("cannot decompose a sentence: %s", error or "timeout")
                self._splits[key] = ()
        parts = self._splits[key]
        spans = spans_of_parts(parts, claim.text) if 1 < len(parts) <= _MAX_PARTS else None
        # A part may depend on the text before it, for example for its subject.
        return tuple(
            replace(claim, text=claim.text[start:end], context=f"{claim.context} {claim.text[:start]}".strip())
            for start, end in spans or ()
        )


def is_complex(text: str) -> bool:
    """Return whether ``text`` has more than 20 words, several clauses, or at least three numbers and names."""
    if len(text.split()) > _MAX_WORDS or _CLAUSES.search(text):
        return True
    return len(_NAME.findall(text)) + bool(_NUMBER_FIRST.match(text)) > _MAX_NAMES
