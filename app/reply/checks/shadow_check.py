"""Judges a reply that is forwarded unchanged, for shadow policies. Only the request's log event waits for the
result."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import structs

from app.events.request_record import ChoiceRecord
from app.protocols.common.stream_events import TextDelta
from app.reply.citation_annotations import cite_reply, cite_sentence
from app.reply.inline_reasoning import InlineReasoning, blanked
from app.reply.judged_sentence import JudgedSentence, choice_log, policy_claims, sentence_records
from judges.checker import ReplyCheck
from judges.concurrency import MAX_INLINE_SPLIT_CHARS, TaskScope, run
from judges.report import coverage_of
from judges.types import Label, Sentence, SentenceVerdict
from policies.citations.document_names import DocumentNames
from policies.replay import ChoiceLog


@dataclass(slots=True)
class _HeardChoice:
    """The text of a choice so far. ``inline`` finds reasoning in the text, so that it isn't judged. If all text is
    judged, ``inline`` is None."""

    check: ReplyCheck
    inline: InlineReasoning | None
    texts: list[str] = field(default_factory=list)
    verdicts: list[asyncio.Task[SentenceVerdict]] = field(default_factory=list)

    def answer(self, part: TextDelta) -> str:
        """Return the text that is now known to be reasoning or answer, with the reasoning replaced with line breaks."""
        if self.inline is None or self.inline.over:
            return part.text
        return "".join(map(blanked, self.inline.take(part)))

    def rest(self) -> str:
        """Return the text that was still unclassified when the reply ended."""
        return "" if self.inline is None else "".join(map(blanked, self.inline.flush()))


class ShadowCheck:
    """Judges one reply. ``open_check`` starts the check for the choice at an index. ``names`` contains the names of the
    kept documents. ``judges_reasoning`` means that reasoning in the text is judged like the answer.
    """

    def __init__(
        self, open_check: Callable[[int], ReplyCheck], names: DocumentNames, *, judges_reasoning: bool = False
    ) -> None:
        self._open_check, self._names = open_check, names
        self._judges_reasoning = judges_reasoning
        self._choices: dict[int, _HeardChoice] = {}
        self._tasks = TaskScope()
        self._closed = False

    async def hear(self, part: TextDelta) -> None:
        """Judge a part of the reply while it is sent to the client."""
        heard = self._choices.get(part.choice)
        if heard is None:
            inline = None if self._judges_reasoning else InlineReasoning()
            heard = self._choices[part.choice] = _HeardChoice(self._open_check(part.choice), inline)
        await self._push(heard, heard.answer(part))

    async def finish(self, *, truncated: bool) -> None:
        """End the reply and wait until all of it is judged. ``truncated`` means that the reply was cut off."""
        if self._closed:
            return
        for heard in self._choices.values():
            await self._push(heard, heard.rest())
            self._start(heard, heard.check.flush(truncated=truncated))
        verdicts = [task for heard in self._choices.values() for task in heard.verdicts]
        if verdicts:
            await asyncio.wait(verdicts)

    async def aclose(self) -> None:
        """Stop judging. Text that hasn't been judged yet stays unjudged."""
        self._closed = True
        await self._tasks.aclose()

    def judged(self, record: ChoiceRecord) -> ChoiceRecord:
        """Return the record of a choice with its judged sentences."""
        heard = self._choices.get(record.index)
        if heard is None or record.log is None:
            return record
        sentences = self._sentences(heard)
        return structs.replace(
            record,
            sentences=sentence_records(sentences),
            log=partial(self._log, record.log, sentences),
        )

    async def _push(self, heard: _HeardChoice, text: str) -> None:
        heard.texts.append(text)
        self._start(heard, await run(len(text) <= MAX_INLINE_SPLIT_CHARS, heard.check.push, text))

    def _start(self, heard: _HeardChoice, sentences: Sequence[Sentence]) -> None:
        heard.verdicts += (self._tasks.start(heard.check.check(sentence)) for sentence in sentences)

    def _sentences(self, heard: _HeardChoice) -> list[JudgedSentence]:
        """Return the sentences before the first unjudged one."""
        sentences: list[JudgedSentence] = []
        for task in heard.verdicts:
            if not task.done() or task.cancelled() or task.exception() is not None:
                break
            verdict = task.result()
            sentence = verdict.sentence
            citations = cite_sentence(sentence, self._names)
            sentences.append(JudgedSentence(verdict=verdict, offset=sentence.span.start, citations=citations))
        cite_reply(sentences, "".join(heard.texts), self._names)
        return sentences

    def _log(self, unjudged: Callable[[], ChoiceLog], sentences: Sequence[JudgedSentence]) -> ChoiceLog:
        log = unjudged()
        verdicts = [each.verdict for each in sentences]
        claims = policy_claims(verdicts)
        labels = [claim.label for claim in claims]
        inputs = partial(
            replace,
            log.inputs,
            claims=claims,
            judged=bool(sentences) or log.inputs.judged,
            tool_calls_only=log.inputs.tool_calls_only and not sentences,
            trust_score=labels.count(Label.SUPPORTED) / len(labels) if labels else None,
            coverage=coverage_of(verdicts),
        )
        before = log.inputs.citations
        return choice_log(
            inputs,
            sentences,
            cited=[citation for citation in before if not citation.reported],
            reported=[citation for citation in before if citation.reported],
            names=self._names,
            positions=log.positions,
            ready=True,
            complete=log.complete,
        )
