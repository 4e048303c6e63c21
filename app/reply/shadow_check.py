"""The check of a reply that passes untouched, for policies in shadow: nothing but the request's event waits for it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from app.concurrency import TaskScope
from app.events.recorder import RequestRecorder
from app.protocols.common.stream_events import TextDelta
from app.reply.choice_snapshot import choice_log
from app.reply.citations import cite_reply, cite_sentence
from app.reply.claim_rows import claim_rows
from app.reply.grounding_object import JudgedSentence
from judges.checker import ReplyCheck
from judges.concurrency import MAX_INLINE_SPLIT_CHARS, run
from judges.report import SKIPPED
from judges.types import Label, Sentence, SentenceVerdict
from policies.citations.document_names import DocumentNames
from policies.replay import ChoiceLog


@dataclass(slots=True)
class _Heard:
    """What a choice has said so far."""

    check: ReplyCheck
    texts: list[str] = field(default_factory=list)
    verdicts: list[asyncio.Task[SentenceVerdict]] = field(default_factory=list)


class ShadowCheck:
    """Made anew for each reply. ``open_check`` begins the check of a choice; ``names`` are those of the documents kept,
    and ``positions`` where in the request each of them stood."""

    def __init__(self, open_check: Callable[[], ReplyCheck], names: DocumentNames, positions: Sequence[int]) -> None:
        self._open_check, self._names, self._positions = open_check, names, positions
        self._choices: dict[int, _Heard] = {}
        self._tasks = TaskScope()
        self._closed = False

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
        """Stop judging: of what is not judged by now nobody will know."""
        self._closed = True
        await self._tasks.aclose()

    def settle(self, recorder: RequestRecorder, choices: Sequence[int]) -> None:
        """Put what was judged into the record of the request, whose ``choices`` (their numbers) are settled there
        already."""
        for place, number in enumerate(choices):
            if number in self._choices:
                entries = self._entries(self._choices[number])
                recorder.choices[place] = partial(self._judged, recorder.choices[place], entries)
                recorder.claims.append(
                    partial(
                        claim_rows, entries, choice=number, positions=self._positions, store_text=recorder.store_text
                    )
                )
                recorder.withheld.extend(claim.claim.text for entry in entries for claim in entry.verdict.claims)
                recorder.sentences += len(entries)

    async def hear(self, part: TextDelta) -> None:
        """A text of the reply goes to the client: it is judged meanwhile."""
        heard = self._choices.get(part.choice)
        if heard is None:
            heard = self._choices[part.choice] = _Heard(self._open_check())
        heard.texts.append(part.text)
        push = heard.check.push
        self._start(heard, await run(len(part.text) <= MAX_INLINE_SPLIT_CHARS, push, part.text))

    def _start(self, heard: _Heard, sentences: Sequence[Sentence]) -> None:
        heard.verdicts += (self._tasks.start(heard.check.check(sentence)) for sentence in sentences)

    def _entries(self, heard: _Heard) -> list[JudgedSentence]:
        """The sentences up to the first that nobody judged."""
        entries: list[JudgedSentence] = []
        for task in heard.verdicts:
            if not task.done() or task.cancelled() or task.exception() is not None:
                break
            verdict = task.result()
            sentence = verdict.sentence
            cited = cite_sentence(sentence, self._names)
            entries.append(JudgedSentence(verdict=verdict, offset=sentence.span.start, citations=cited))
        cite_reply(entries, "".join(heard.texts), self._names)
        return entries

    def _judged(self, passed: Callable[[], ChoiceLog], entries: Sequence[JudgedSentence]) -> ChoiceLog:
        log = passed()
        labels = [claim.label for entry in entries for claim in entry.verdict.claims if claim.reason != SKIPPED]
        inputs = replace(
            log.inputs,
            judged=bool(entries) or log.inputs.judged,
            tool_calls_only=log.inputs.tool_calls_only and not entries,
            trust_score=labels.count(Label.SUPPORTED) / len(labels) if labels else None,
        )
        before = log.inputs.citations
        return choice_log(
            inputs,
            entries,
            cited=[citation for citation in before if not citation.reported],
            reported=[citation for citation in before if citation.reported],
            names=self._names,
            positions=log.positions,
            ready=True,
            complete=log.complete,
        )
