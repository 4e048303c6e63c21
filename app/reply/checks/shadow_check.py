"""Judges a reply that passes untouched, for shadow policies. Only the request's event waits for it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import structs

from app.concurrency import TaskScope
from app.events.request_record import ChoiceRecord
from app.protocols.common.stream_events import TextDelta
from app.reply.citations import cite_reply, cite_sentence
from app.reply.judged_sentence import JudgedSentence, choice_log, policy_claims, sentence_records
from judges.checker import ReplyCheck
from judges.concurrency import MAX_INLINE_SPLIT_CHARS, run
from judges.types import Label, Sentence, SentenceVerdict
from policies.citations.document_names import DocumentNames
from policies.replay import ChoiceLog


@dataclass(slots=True)
class _HeardChoice:
    """What a choice has said so far."""

    check: ReplyCheck
    texts: list[str] = field(default_factory=list)
    verdicts: list[asyncio.Task[SentenceVerdict]] = field(default_factory=list)


class ShadowCheck:
    """One per reply. ``open_check`` begins the check of a choice; ``names`` are those of the documents kept."""

    def __init__(self, open_check: Callable[[], ReplyCheck], names: DocumentNames) -> None:
        self._open_check, self._names = open_check, names
        self._choices: dict[int, _HeardChoice] = {}
        self._tasks = TaskScope()
        self._closed = False

    async def hear(self, part: TextDelta) -> None:
        """Judge a text of the reply while it goes to the client."""
        heard = self._choices.get(part.choice)
        if heard is None:
            heard = self._choices[part.choice] = _HeardChoice(self._open_check())
        heard.texts.append(part.text)
        self._start(heard, await run(len(part.text) <= MAX_INLINE_SPLIT_CHARS, heard.check.push, part.text))

    async def finish(self, *, truncated: bool) -> None:
        """The reply has ended, ``truncated`` or not: wait until all of it is judged."""
        if self._closed:
            return
        for heard in self._choices.values():
            self._start(heard, heard.check.flush(truncated=truncated))
        verdicts = [task for heard in self._choices.values() for task in heard.verdicts]
        if verdicts:
            await asyncio.wait(verdicts)

    async def aclose(self) -> None:
        """Stop judging; what is not judged by now stays unjudged."""
        self._closed = True
        await self._tasks.aclose()

    def judged(self, record: ChoiceRecord) -> ChoiceRecord:
        """The record of a choice, with what was judged of it."""
        heard = self._choices.get(record.index)
        if heard is None or record.log is None:
            return record
        sentences = self._sentences(heard)
        return structs.replace(
            record,
            sentences=sentence_records(sentences),
            log=partial(self._log, record.log, sentences),
        )

    def _start(self, heard: _HeardChoice, sentences: Sequence[Sentence]) -> None:
        heard.verdicts += (self._tasks.start(heard.check.check(sentence)) for sentence in sentences)

    def _sentences(self, heard: _HeardChoice) -> list[JudgedSentence]:
        """The sentences up to the first that nobody judged."""
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
        labels = [claim.label for claim in policy_claims(each.verdict for each in sentences)]
        inputs = replace(
            log.inputs,
            judged=bool(sentences) or log.inputs.judged,
            tool_calls_only=log.inputs.tool_calls_only and not sentences,
            trust_score=labels.count(Label.SUPPORTED) / len(labels) if labels else None,
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
