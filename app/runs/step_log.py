"""Writes the steps of runs to the event log. Each step has a separate event."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from app.events.recorder import RequestRecorder
from app.events.records import EventLog, RecordedRequest, RequestEvent
from app.events.redaction import stored_decisions
from app.events.request_record import ChoiceRecord, ReplyOutcome, RetrievalOutcome
from app.runs.decisions import StepOutcome
from app.runs.repository import RunRow
from app.runs.steps import StepKind
from app.settings import StoreText
from judges.llm_types import LlmCall
from judges.types import Chunk
from policies.policy_selection import decision_to_dict
from policies.types import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """Logs steps to ``events``. ``observers`` receive every event."""

    events: EventLog
    observers: Sequence[Callable[[RecordedRequest], None]]
    store_text: StoreText

    def recorder(self, run: RunRow, kind: StepKind, now: datetime) -> RequestRecorder:
        """Create the recorder for a step. It contains the id of the step's event."""
        return RequestRecorder(
            api=f"runs.{kind}",
            store_text=self.store_text,
            ts=now,
            model=run.model,
            agent=run.agent,
            run_id=run.run_id,
            key_prefix=run.key_prefix,
        )

    async def append(
        self,
        recorder: RequestRecorder,
        outcome: StepOutcome,
        shadow: StepOutcome,
        *,
        documents: Sequence[Chunk] = (),
        calls: Sequence[LlmCall] = (),
    ) -> None:
        """Log a step. ``shadow`` contains the decisions of shadow policies, and ``calls`` contains the LLM calls for
        the step."""
        recorder.retrieval = RetrievalOutcome(chunks=documents, decisions=outcome.made)
        recorder.reply = _with_calls(calls)
        if outcome.blocked_by is not None:
            recorder.block()
        record = recorder.record()
        await self._write(replace(record.event(), shadow=stored_decisions(shadow.made, record.store_text)))

    async def append_unused(self, run: RunRow, calls: Sequence[LlmCall]) -> None:
        """Log the LLM calls for a result that was not recorded in the run. The calls were made, so their cost is
        counted."""
        recorder = self.recorder(run, StepKind.COMPLETE, datetime.now(UTC))
        recorder.fail("failed", "the result was scored but not recorded")
        recorder.reply = _with_calls(calls)
        await self._write(recorder.record().event())

    async def _write(self, event: RequestEvent) -> None:
        try:
            await self.events.append(event)
        finally:
            for observer in self.observers:
                observer(event)


def stored_json(decisions: Sequence[Decision], how: StoreText) -> list[dict[str, Any]]:
    """Return the decisions as a run stores them."""
    return [decision_to_dict(each) for each in stored_decisions(decisions, how)]


def _with_calls(calls: Sequence[LlmCall]) -> ReplyOutcome:
    return ReplyOutcome(choices=[ChoiceRecord(text="", llm_calls=calls)] if calls else ())
