"""Checks one reply: ``push`` takes text and returns sentences, ``check`` judges a sentence, and ``report`` builds the
report."""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter

from msgspec import structs

from judges.call_recording import recording
from judges.claims.claim_context import asked_sentence
from judges.concurrency import MAX_INLINE_CHARS, Turns, run
from judges.llm_types import LlmCall
from judges.protocols import ClaimExtractor, JudgeError, JudgeOverloadedError, SentenceSplitter
from judges.report import SKIPPED, build_report, letters, worst_label
from judges.sentences.splitter import IncrementalSplitter
from judges.text.corrections import LEAD, corrected_sentence
from judges.text.markdown import plain, plain_code
from judges.text.span_alignment import move_spans
from judges.types import (
    Claim,
    ClaimVerdict,
    GroundingReport,
    Label,
    Part,
    Sentence,
    SentencesBefore,
    SentenceVerdict,
    Span,
    Standing,
)
from judges.verdicts.claim_judge import ClaimJudge
from judges.verdicts.language_gate import LanguageGate
from judges.verdicts.llm_escalation import LlmEscalation

log = logging.getLogger(__name__)

_MAX_CONCURRENT = 8
"""Maximum number of sentences of one reply that are judged at the same time. It is high enough to fill the judge's
batches, but low enough that a long reply neither blocks other replies nor exceeds its own deadlines."""
NO_DOCUMENTS = "no_documents"
"""The reason given for a claim when there are no documents."""

Partition = Callable[[Sentence, Sequence[ClaimVerdict], Sequence[Sentence], Sentence | None], tuple[Part, ...]]
"""Returns the standing of a sentence's characters, given the sentence, the verdicts on its claims, and the sentences of
the reply."""

FindClaims = Callable[[Sentence], Awaitable[tuple[Sequence[Claim], Sequence[Claim]]]]
"""Returns the claims in a sentence: those to judge, and those to skip."""

_INDEX = attrgetter("index")
_EMPHASIS = str.maketrans("", "", "*_")
_RECENT_SENTENCES = 8
"""Number of neighbouring sentences that decide the language of a sentence that is in doubt."""


class ReplyCheck:
    """The check of one reply, created by ``GroundingChecker.reply``. ``check`` may run for many sentences at once. Its
    result depends on the preceding sentences of the reply, but not on the order in which checks finish.

    Args:
        splitter: splits the reply.
        extractor: finds the claims in a sentence.
        claim_judge: judges the claims; None if there is no cross-encoder.
        has_sources: whether there are documents.
        timeout_s: time limit for checking one sentence.
        max_claims: the maximum number of claims to judge; None means all.
        escalation: sends undecided claims to an LLM, or all claims if there is no ``claim_judge``.
        language_gate: keeps claims in unsupported languages from ``claim_judge``.
        question: the question that the reply answers.
        partition: determines the standing of each character; by default, it is not determined.
    """

    def __init__(
        self,
        *,
        splitter: SentenceSplitter,
        extractor: ClaimExtractor,
        claim_judge: ClaimJudge | None,
        has_sources: bool,
        timeout_s: float,
        max_claims: int | None,
        escalation: LlmEscalation | None = None,
        language_gate: LanguageGate | None = None,
        question: str = "",
        partition: Partition | None = None,
    ) -> None:
        self._splitter = splitter
        self._extractor = extractor
        self._claim_judge = claim_judge
        self._escalation = escalation
        self._language_gate = language_gate
        self._has_sources = has_sources
        self._timeout_s = timeout_s
        self._max_claims = max_claims
        self._partition = partition or (lambda *_: ())
        self._sentences: list[Sentence] = []
        self._standing = [asked_sentence(question)] if question else []
        """The question and the sentences that are not discarded."""
        self._verdicts: dict[int, SentenceVerdict] = {}
        self.edits = 0
        """The number of sentences that were left out or corrected. The sentences after them may read differently."""
        self._read_as: dict[int, tuple[int, Sequence[Claim]]] = {}
        """The claims of each sentence that was read, and the number of edits at that time, by the sentence's index."""
        self._claims_before = [0]
        """The number of claims before each sentence, excluding discarded claims."""
        self._discarded: set[int] = set()
        self._claims_lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._turns = Turns()
        self._running = 0
        self._running_since = 0.0
        self._judge_s = 0.0
        self._calls: list[LlmCall] = []

    @property
    def judge_ms(self) -> float:
        """Total time in milliseconds during which at least one sentence was being checked."""
        return self._judge_s * 1000.0

    @property
    def llm_calls(self) -> Sequence[LlmCall]:
        """The calls to an LLM, or to a judge that is a paid service, for this reply so far."""
        return self._calls if self._escalation is None else [*self._calls, *self._escalation.calls]

    def record_call(self, call: LlmCall) -> None:
        """Record a call that was made for this reply outside its check."""
        self._calls.append(call)

    def push(self, text: str) -> Sequence[Sentence]:
        """Add a delta of the reply. Return the sentences that are now complete."""
        return self._keep(self._splitter.push(text))

    def pause(self) -> Sequence[Sentence]:
        """Return the remaining sentences. Called when something other than text follows."""
        return self._keep(self._splitter.pause())

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """End the reply and return its remaining sentences. ``truncated`` means that the reply may have been cut off in
        mid-sentence."""
        return self._keep(self._splitter.flush(truncated=truncated))

    async def check(self, sentence: Sentence) -> SentenceVerdict:
        """Judge a sentence that ``push`` or ``flush`` returned. The time limit starts when a slot is free. Failures of
        the judge are not raised: the affected claims are unverifiable, with the reason ``timeout``, ``overloaded``,
        ``judge_error`` or ``unavailable``. Claims beyond ``max_claims`` have the reason ``skipped``, and claims in a
        language that the model does not support have the reason ``language``. A correction is generated text and may
        be wrong too, so corrections that the documents don't support are left out.
        """
        async with self._slots:
            with self._timed(), recording(self.record_call):
                await self._turns.take()
                verdict = await self._read(sentence, self._claims_to_judge)
                if any(claim.correction is not None for claim in verdict.claims):
                    verdict = await self._with_sound_corrections(verdict)
        self._verdicts[sentence.index] = verdict
        return verdict

    async def reads_as_before(self, sentence: Sentence) -> bool:
        """Return whether a checked sentence makes the same claims as before. They may differ if earlier sentences were
        left out or corrected after it was read. A sentence without claims may be harmless only because of the sentence
        before it, so it doesn't count as the same. Checking it again requires no judge."""
        edits, claims = self._read_as.get(sentence.index, (0, None))
        if edits == self.edits:
            return True
        with suppress(Exception):  # the sentence is then checked again, which reports it
            async with asyncio.timeout(self._timeout_s):
                found = await self.claims_of(sentence)
                return bool(found) and found == claims
        return False

    def leave_out(self, sentence: Sentence) -> None:
        """Record that a sentence is not delivered. Later sentences are read without it."""
        marker = LEAD.match(sentence.text)
        space = sentence.text[len(sentence.text.rstrip()) :]
        self._put(structs.replace(sentence, text=f"{marker[0] if marker else ''}{space}", plain=""))

    def correct(self, verdict: SentenceVerdict) -> None:
        """Record that a sentence is delivered with its corrections. Later sentences are read in the context of the
        corrected sentence."""
        self._put(_with_corrections(verdict))

    def _put(self, sentence: Sentence) -> None:
        place = bisect_left(self._standing, sentence.index, key=_INDEX)
        if place < len(self._standing) and self._standing[place].index == sentence.index:
            self._standing[place] = sentence
            self.edits += 1

    def restart(self, index: int) -> int:
        """Discard the sentence ``index`` and all sentences after it, because the reply is regenerated from there.
        Return the position in the text at which the new text begins; sentence indexes continue. No ``push`` or
        ``check`` may be running.
        """
        self.pause()
        self._splitter.restart(index)
        discarded = range(index, len(self._sentences))
        self._discarded.update(discarded)
        del self._standing[bisect_left(self._standing, index, key=_INDEX) :]
        for number in discarded:
            self._verdicts.pop(number, None)
        for number in range(index + 1, len(self._claims_before)):
            self._claims_before[number] = self._claims_before[index]
        return self._sentences[-1].span.end

    def report(self) -> GroundingReport:
        """Return the report on the sentences checked so far."""
        return build_report(
            [self._verdicts[index] for index in sorted(self._verdicts)],
            characters=sum(letters(sentence.text) for sentence in self._sentences),
            has_sources=self._has_sources,
            available=self._is_available,
        )

    @property
    def _is_available(self) -> bool:
        return self._claim_judge is not None or self._escalation is not None

    def _keep(self, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        self._sentences.extend(sentences)
        self._standing.extend(sentences)
        return sentences

    async def _with_sound_corrections(self, verdict: SentenceVerdict) -> SentenceVerdict:
        """Judge the corrected sentence in its place in the reply. Leave the corrections out if the documents don't
        support all of it, or if part of it is unjudged."""
        claims = [claim for claim in verdict.claims if claim.correction is not None]
        found: tuple[ClaimVerdict, ...] = ()
        if all(_is_sentence(claim.correction or "") for claim in claims):
            corrected = await self._read(_with_corrections(verdict), self._claims_in_context)
            unjudged = any(part.standing is Standing.UNJUDGED for part in corrected.parts)
            found = () if unjudged or corrected.label is not Label.SUPPORTED else corrected.claims
        return structs.replace(
            verdict,
            claims=tuple(
                replace(claim, correction=claim.correction if found else None, corrected=found)
                if claim.correction is not None
                else claim
                for claim in verdict.claims
            ),
        )

    async def _read(self, sentence: Sentence, find: FindClaims) -> SentenceVerdict:
        """Judge the claims that ``find`` returns."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                claims, skipped = await find(sentence)
        except Exception as error:
            whole = Claim(text=sentence.plain, span=sentence.span, sentence_index=sentence.index)
            verdicts = [_unjudged(whole, _reason(error))]
        else:
            judged = await self._judge_all(claims, deadline)
            verdicts = [
                *(_with_spans_in_reply(verdict, sentence) for verdict in judged),
                *(_unjudged(replace(claim, parts=()), SKIPPED) for claim in skipped),
            ]
        inline = len(sentence.text) <= MAX_INLINE_CHARS
        place = bisect_left(self._standing, sentence.index, key=_INDEX)
        above = self._standing[place - 1] if place else None
        parts = await run(inline, self._partition, sentence, verdicts, self._sentences, above)
        return SentenceVerdict(sentence=sentence, label=worst_label(verdicts), claims=tuple(verdicts), parts=parts)

    async def _claims_to_judge(self, sentence: Sentence) -> tuple[Sequence[Claim], Sequence[Claim]]:
        """Return the claims in ``sentence`` to judge, and those beyond ``max_claims``."""
        if self._max_claims is None:
            return await self.claims_of(sentence), ()
        async with self._claims_lock:
            while (number := len(self._claims_before) - 1) <= sentence.index:
                claims = () if number in self._discarded else await self.claims_of(self._sentences[number])
                self._claims_before.append(self._claims_before[-1] + len(claims))
        claims = await self.claims_of(sentence)
        left = max(0, self._max_claims - self._claims_before[sentence.index])
        return claims[:left], claims[left:]

    async def _every_claim(self, sentence: Sentence) -> tuple[Sequence[Claim], Sequence[Claim]]:
        place = bisect_left(self._standing, sentence.index, key=_INDEX)
        return await self._extractor.extract(sentence, SentencesBefore(self._standing, place)), ()

    async def _claims_in_context(self, sentence: Sentence) -> tuple[Sequence[Claim], Sequence[Claim]]:
        """Return the claims in a corrected sentence, which must be supported together with their context."""
        claims, skipped = await self._every_claim(sentence)
        return [replace(claim, stands_alone=False) for claim in claims], skipped

    async def claims_of(self, sentence: Sentence) -> Sequence[Claim]:
        """Return the claims in a sentence that ``push`` or ``flush`` returned, without judging them. They are found
        only once, unless earlier sentences have been left out or corrected since."""
        edits, found = self.edits, self._read_as.get(sentence.index)
        if found is None or found[0] != edits:
            claims, _ = await self._every_claim(sentence)
            found = self._read_as[sentence.index] = edits, claims
        return found[1]

    async def _judge_all(self, claims: Sequence[Claim], deadline: float) -> Sequence[ClaimVerdict]:
        if len(claims) == 1 and not claims[0].parts:
            return [await self._judge(claims[0], deadline)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._judge_parts(claim, deadline)) for claim in claims]
        return [verdict for task in tasks for verdict in task.result()]

    async def _judge_parts(self, claim: Claim, deadline: float) -> Sequence[ClaimVerdict]:
        """Judge the parts of a claim, or the whole claim if it has none. If the documents contradict the whole claim,
        its parts don't count."""
        if not claim.parts:
            return [await self._judge(claim, deadline)]
        whole = replace(claim, parts=())
        if not self._has_sources:
            return [await self._judge(whole, deadline)]
        verdict = await self._judge_by_cross_encoder(whole, deadline)
        if verdict.reason is None and not _is_contradicted(verdict):
            return await self._judge_all(claim.parts, deadline)
        return [verdict if self._escalation is None else await self._escalation.review(verdict, deadline)]

    async def _judge(self, claim: Claim, deadline: float) -> ClaimVerdict:
        if not self._has_sources and self._claim_judge is not None:
            return _unjudged(claim, NO_DOCUMENTS)
        if not claim.question_known and self._is_available:
            return _unjudged(claim, None)
        verdict = await self._judge_by_cross_encoder(claim, deadline)
        if self._escalation is None or not self._has_sources:
            return verdict
        return await self._escalation.review(verdict, deadline)

    async def _judge_by_cross_encoder(self, claim: Claim, deadline: float) -> ClaimVerdict:
        if self._claim_judge is None:
            return _unjudged(claim, "unavailable")
        gate = self._language_gate
        try:
            async with asyncio.timeout_at(deadline):
                if gate is not None and not gate.admits(claim, self._before(claim)):
                    return await run(False, gate.judge_without_model, claim)
                return await self._claim_judge.judge(claim)
        except Exception as error:
            return _unjudged(claim, _reason(error))

    def _before(self, claim: Claim) -> str:
        recent = self._sentences[max(0, claim.sentence_index - _RECENT_SENTENCES) : claim.sentence_index]
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


def _is_contradicted(verdict: ClaimVerdict) -> bool:
    """Return whether a contradiction is the most probable, regardless of a policy's thresholds."""
    neither = 1.0 - verdict.entailed - verdict.contradicted
    return verdict.label is Label.CONTRADICTED or verdict.contradicted > max(verdict.entailed, neither)


def _with_corrections(verdict: SentenceVerdict) -> Sentence:
    """Return the sentence as it reads with its corrections."""
    sentence = verdict.sentence
    text = str(corrected_sentence(verdict, mark=str)) + sentence.text[len(sentence.text.rstrip()) :]
    span = Span(sentence.span.start, sentence.span.start + len(text))
    read = plain_code(text) if sentence.in_code else plain(text, sentence.marks)
    return structs.replace(sentence, text=text, span=span, plain=read)


def _is_sentence(text: str) -> bool:
    """Return whether ``text`` is a single sentence without markup other than emphasis."""
    splitter = IncrementalSplitter()
    read = [sentence.plain.translate(_EMPHASIS) for sentence in (*splitter.push(text), *splitter.flush())]
    written = " ".join(text.translate(_EMPHASIS).split())
    return written != "" and read == [written]


def _with_spans_in_reply(verdict: ClaimVerdict, sentence: Sentence) -> ClaimVerdict:
    """Map the spans of ``verdict`` from the claim's plain text to the reply. A claim that another judge found to be
    supported has no spans."""
    if not verdict.spans:
        return verdict
    claim = verdict.claim
    start = max(claim.span.start, sentence.span.start)
    raw = sentence.text[start - sentence.span.start : claim.span.end - sentence.span.start]
    found = () if verdict.label is Label.SUPPORTED else move_spans(verdict.spans, claim.text, raw)
    spans = tuple(replace(span, start=span.start + start, end=span.end + start) for span in found)
    return replace(verdict, spans=spans)


def _reason(error: Exception) -> str:
    """Return why a claim was not judged. Any error other than a timeout or a JudgeError is a bug and is logged as
    one."""
    match error:
        case TimeoutError():
            return "timeout"
        case JudgeOverloadedError():
            return "overloaded"
        case JudgeError():
            log.warning("cannot judge a claim: %s", error)
        case _:
            log.error("cannot judge a claim", exc_info=error)
    return "judge_error"


def _unjudged(claim: Claim, reason: str | None) -> ClaimVerdict:
    return ClaimVerdict(claim=claim, label=Label.UNVERIFIABLE, entailed=0.0, contradicted=0.0, reason=reason)
