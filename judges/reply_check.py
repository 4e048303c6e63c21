"""The check of one reply: text goes in by ``push``, each sentence that comes out is given to ``check``, and ``report``
sums up what was checked."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from judges.protocols import ClaimExtractor, JudgeError, JudgeOverloadedError, SentenceSplitter
from judges.report import SKIPPED, build_report, worst
from judges.types import Claim, ClaimVerdict, GroundingReport, Label, LlmCall, Sentence, SentenceVerdict, Span
from judges.verdicts.claim_judge import Adjudicator
from judges.verdicts.language_gate import KnownLanguages
from judges.verdicts.llm_escalation import Escalation

log = logging.getLogger(__name__)

_AT_ONCE = 8
"""Sentences of one reply that are judged at once: enough to fill the judge's batches, and few enough that a long reply
neither shuts out the others nor runs into its own deadlines."""
_RECENT = 8
"""Sentences that tell the language of one that leaves it in doubt."""


class ReplyCheck:
    """The check of one reply. Made by ``GroundingChecker.reply``.

    ``check`` may run for many sentences at once: what it says of one depends on the sentences before it in the reply,
    never on which check ends first.

    ``languages`` keeps from ``adjudicator`` the claims that it cannot read. ``escalation`` takes what is left open to
    an LLM, or all claims where there is no adjudicator. ``asked``: the question that the reply answers.
    """

    def __init__(
        self,
        *,
        splitter: SentenceSplitter,
        extractor: ClaimExtractor,
        adjudicator: Adjudicator | None,
        has_sources: bool,
        timeout_s: float,
        max_claims: int | None,
        escalation: Escalation | None = None,
        languages: KnownLanguages | None = None,
        asked: str = "",
    ) -> None:
        self._splitter = splitter
        self._extractor = extractor
        self._adjudicator = adjudicator
        self._escalation = escalation
        self._languages = languages
        self._has_sources = has_sources
        self._timeout_s = timeout_s
        self._max_claims = max_claims
        question = Sentence(index=-1, text=f"{asked}\n\n", span=Span(0, 0), plain=asked)
        self._asked = [question] if asked else []
        self._sentences: list[Sentence] = []
        self._verdicts: dict[int, SentenceVerdict] = {}
        self._claims: list[Sequence[Claim]] = []
        self._forgotten: set[int] = set()
        self._counting = asyncio.Lock()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._running = 0
        self._running_since = 0.0
        self._judge_s = 0.0

    @property
    def judge_ms(self) -> float:
        """Milliseconds during which at least one sentence was being checked."""
        return self._judge_s * 1000.0

    @property
    def llm_calls(self) -> Sequence[LlmCall]:
        """The calls made to an LLM for this reply so far."""
        return () if self._escalation is None else self._escalation.calls

    def push(self, text: str) -> Sequence[Sentence]:
        """Take a delta of the reply; return the sentences whose end is now certain."""
        return self._keep(self._splitter.push(text))

    def pause(self) -> Sequence[Sentence]:
        """Something other than text comes between; return the sentences before it."""
        return self._keep(self._splitter.pause())

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """The reply has ended; return the rest. ``truncated``: it was cut off in mid-sentence, perhaps."""
        return self._keep(self._splitter.flush(truncated=truncated))

    async def check(self, sentence: Sentence) -> SentenceVerdict:
        """Judge a sentence that ``push`` or ``flush`` returned. Its deadline counts from when its turn has come.

        Never raises for trouble with the judge: the claims concerned are unverifiable, with the reason ``timeout``,
        ``overloaded``, ``judge_error`` or ``unavailable``. A claim beyond ``max_claims`` has the reason ``skipped``, a
        claim in a language that the model does not know ``language``.
        """
        async with self._turns:
            with self._timed():
                verdict = await self._check(sentence)
        self._verdicts[sentence.index] = verdict
        return verdict

    async def supports(self, text: str, claim: Claim) -> bool:
        """Whether the documents support ``text``, which is to stand in place of ``claim``. Never raises."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        async with self._turns:
            with self._timed():
                verdict = await self._judge(replace(claim, text=text, context="", asked=""), deadline)
        return verdict.label is Label.SUPPORTED

    def restart(self, index: int) -> int:
        """The text goes on anew behind the sentence before that of ``index``, which is forgotten with all that came
        after it. Return where in the text the new one begins; the sentences in it are numbered on. Nothing may be in
        the making: no ``push``, no ``check``."""
        self.pause()
        self._forgotten.update(range(index, len(self._sentences)))
        for forgotten in self._forgotten:
            self._verdicts.pop(forgotten, None)
        return self._sentences[-1].span.end

    def report(self) -> GroundingReport:
        """What is known of the sentences checked so far, in their order in the reply."""
        return build_report(
            [self._verdicts[index] for index in sorted(self._verdicts)],
            characters=sum(len(sentence.text) for sentence in self._sentences),
            has_sources=self._has_sources,
            available=self._adjudicator is not None or self._escalation is not None,
        )

    def _keep(self, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        self._sentences.extend(sentences)
        return sentences

    async def _check(self, sentence: Sentence) -> SentenceVerdict:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                claims, skipped = await self._claims_of(sentence)
        except Exception as error:
            whole = Claim(text=sentence.plain, span=sentence.span, sentence_index=sentence.index)
            verdicts = [_unjudged(whole, _reason(error))]
        else:
            judged = await self._judge_all(claims, deadline)
            verdicts = [*judged, *(_unjudged(claim, SKIPPED) for claim in skipped)]
        return SentenceVerdict(sentence=sentence, label=worst(verdicts), claims=tuple(verdicts))

    async def _claims_of(self, sentence: Sentence) -> tuple[Sequence[Claim], Sequence[Claim]]:
        """The claims of ``sentence`` to judge, and those beyond the most allowed."""
        if self._max_claims is None:
            return await self._extract(sentence), ()
        async with self._counting:
            while (number := len(self._claims)) <= sentence.index:
                self._claims.append(() if number in self._forgotten else await self._extract(self._sentences[number]))
        before = sum(
            len(claims) for number, claims in enumerate(self._claims[: sentence.index]) if number not in self._forgotten
        )
        claims = self._claims[sentence.index]
        left = max(0, self._max_claims - before)
        return claims[:left], claims[left:]

    async def _extract(self, sentence: Sentence) -> Sequence[Claim]:
        before = self._sentences[: sentence.index]
        if self._forgotten:
            before = [earlier for earlier in before if earlier.index not in self._forgotten]
        return await self._extractor.extract(sentence, [*self._asked, *before])

    async def _judge_all(self, claims: Sequence[Claim], deadline: float) -> Sequence[ClaimVerdict]:
        if len(claims) == 1:
            return [await self._judge(claims[0], deadline)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._judge(claim, deadline)) for claim in claims]
        return [task.result() for task in tasks]

    async def _judge(self, claim: Claim, deadline: float) -> ClaimVerdict:
        if not self._has_sources and self._adjudicator is not None:
            return _unjudged(claim, None)
        verdict = await self._adjudicate(claim, deadline)
        if self._escalation is None or not self._has_sources:
            return verdict
        return await self._escalation.review(verdict, deadline)

    async def _adjudicate(self, claim: Claim, deadline: float) -> ClaimVerdict:
        if self._adjudicator is None:
            return _unjudged(claim, "unavailable")
        languages = self._languages
        try:
            async with asyncio.timeout_at(deadline):
                if languages is not None and not languages.include(claim, self._before(claim)):
                    return await asyncio.to_thread(languages.judge, claim)
                return await self._adjudicator.judge(claim)
        except Exception as error:
            return _unjudged(claim, _reason(error))

    def _before(self, claim: Claim) -> str:
        recent = self._sentences[max(0, claim.sentence_index - _RECENT) : claim.sentence_index]
        return " ".join(sentence.plain for sentence in recent)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        clock = asyncio.get_running_loop().time
        if self._running == 0:
            self._running_since = clock()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self._judge_s += clock() - self._running_since


def _reason(error: Exception) -> str:
    """Why a claim went unjudged. What is neither a deadline nor a judge's own error is a fault, and logged as one."""
    match error:
        case TimeoutError():
            return "timeout"
        case JudgeOverloadedError():
            return "overloaded"
        case JudgeError():
            log.warning("a claim went unjudged: %s", error)
        case _:
            log.error("a claim went unjudged", exc_info=error)
    return "judge_error"


def _unjudged(claim: Claim, reason: str | None) -> ClaimVerdict:
    return ClaimVerdict(claim=claim, label=Label.UNVERIFIABLE, entailed=0.0, contradicted=0.0, reason=reason)
