"""Records one request while it is handled. Each stage adds values, which form a single record at the end."""

import os
import re
import sys
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from math import ceil
from time import perf_counter, time_ns

from msgspec.structs import replace

from app.events.request_record import (
    GoverningPolicies,
    ReplyOutcome,
    RequestInfo,
    RequestRecord,
    RetrievalOutcome,
    TokenCounts,
    UpstreamOutcome,
    overall_action,
)
from app.settings import StoreText
from policies.base import JudgeOptions

_CHARS_PER_TOKEN = 4
"""A rule of thumb for current tokenizers. It is used to estimate the usage of a reply that ended before the upstream
reported it."""
_REASON = re.compile(r"[A-Za-z_-]{1,40}")
_MODEL = re.compile(r"[\w.:/@+=#~|-]{0,256}", re.ASCII)
_SEVERITY = {"blocked": 3, "upstream_error": 2, "failed": 2, "incomplete": 1, "cancelled": 1}

_RANDOM_DIGITS: deque[str] = deque()
"""Random digits generated in advance. One system call per id would cost as much as the rest of the record."""
if sys.platform != "win32":  # Windows has no fork.
    os.register_at_fork(after_in_child=_RANDOM_DIGITS.clear)


def new_request_id() -> str:
    """Create an id. The id begins with the time in milliseconds, so that new ids are adjacent in an index."""
    try:
        digits = _RANDOM_DIGITS.pop()
    except IndexError:
        digits, *more = re.findall(".{20}", os.urandom(2_560).hex())
        _RANDOM_DIGITS.extend(more)
    return f"req_{time_ns() // 1_000_000:012x}{digits}"


class Timings:
    """Measures when the events of one request happen. ``marks`` says when each event first happened, in milliseconds
    since the request arrived.

    The events are:

    - ``upstream_asked``: the request is sent to the upstream.
    - ``upstream_answered``: the response status arrives.
    - ``first_text``: the first text of the reply arrives.
    - ``first_out``: the first text is sent to the client.
    - ``upstream_ended``: the end of the reply has been read.
    """

    def __init__(self) -> None:
        self.marks: dict[str, float] = {}
        self._started = perf_counter()
        self.upstream_ms: float | None = None
        """The time that the upstream took. It is None until the upstream has finished."""

    def elapsed_ms(self) -> float:
        return (perf_counter() - self._started) * 1e3

    def mark(self, name: str, *, again: bool = False) -> None:
        """Record that the event ``name`` happens now. Only the first call counts, unless ``again`` is true."""
        if again or name not in self.marks:
            self.marks[name] = self.elapsed_ms()

    def end_upstream(self) -> None:
        """Record that the upstream has finished the request. If called several times, the last call counts."""
        if "upstream_asked" in self.marks:
            self.upstream_ms = self.elapsed_ms() - self.marks["upstream_asked"]


class TokenUsage:
    """Counts a request's tokens over all of its upstream calls. Tokens that no upstream reports are estimated.

    ``prompt_chars`` returns the number of characters sent to the upstream. It is None if the upstream wasn't called or
    rejected the call, which costs no tokens. ``received`` is the number of characters that the current call generated.
    """

    def __init__(self) -> None:
        self.prompt: int | None = None
        self.completion: int | None = None
        self.prompt_chars: Callable[[], int] | None = None
        self.received = 0
        self._estimated = False
        self._earlier = TokenCounts(prompt=0, completion=0)

    def report(self, prompt: int | None, completion: int | None) -> None:
        """Record the token counts that the upstream reports for the current call."""
        self.prompt = None if prompt is None else prompt + (self._earlier.prompt or 0)
        self.completion = None if completion is None else completion + (self._earlier.completion or 0)
        self._estimated = self._earlier.estimated

    def estimate(self) -> None:
        """Estimate the tokens of the current call that the upstream didn't report."""
        if self.prompt_chars is None or (self.prompt is not None and self.completion is not None):
            return
        if self.prompt is None:
            self.prompt = ceil(self.prompt_chars() / _CHARS_PER_TOKEN) + (self._earlier.prompt or 0)
        if self.completion is None:
            self.completion = ceil(self.received / _CHARS_PER_TOKEN) + (self._earlier.completion or 0)
        self._estimated = True

    def begin_next_call(self) -> tuple[int, int]:
        """Begin another call. Return the tokens of the previous call."""
        self.estimate()
        earlier = self._earlier
        prompt, completion = self.prompt or 0, self.completion or 0
        self._earlier = TokenCounts(
            prompt=prompt,
            completion=completion,
            estimated=self._estimated,
            regenerations=earlier.regenerations + 1,
        )
        self.prompt = self.completion = None
        self.received = 0
        return prompt - (earlier.prompt or 0), completion - (earlier.completion or 0)

    def counts(self) -> TokenCounts:
        self.estimate()
        return TokenCounts(
            prompt=self.prompt,
            completion=self.completion,
            estimated=self._estimated,
            regenerations=self._earlier.regenerations,
        )


_LONGEST_TITLE = 200


def _title(question: str) -> str:
    """Return the first line of ``question``, shortened."""
    line = " ".join(question.strip().partition("\n")[0].split())
    return line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


class RequestRecorder:
    """Records one request while it is handled. ``record`` builds the record.

    The stages set ``governing``, ``judging``, ``retrieval`` and ``reply``. ``sent_model`` is the model requested from
    the upstream. ``dropped`` counts the content that the policies leave out, by kind.
    """

    def __init__(
        self,
        *,
        api: str,
        store_text: StoreText,
        stream: bool = False,
        ts: datetime | None = None,
        model: str | None = None,
        agent: str | None = None,
        run_id: str | None = None,
        key_prefix: str | None = None,
        prompt: str = "",
        question: str = "",
    ) -> None:
        self.timings = Timings()
        self.info = RequestInfo(
            request_id=new_request_id(),
            ts=datetime.now(UTC) if ts is None else ts,
            api=api,
            stream=stream,
            model=model,
            agent=agent,
            run_id=run_id,
            key_prefix=key_prefix,
            prompt=prompt,
            question=_title(question) if store_text is StoreText.FULL else "",
        )
        self.request_id = self.info.request_id
        self.store_text = store_text
        self.governing: GoverningPolicies | None = None
        self.judging: JudgeOptions | None = None
        self.retrieval = RetrievalOutcome()
        self.reply = ReplyOutcome()
        self.usage = TokenUsage()
        self.sent_model: str | None = None
        self.dropped: Counter[str] = Counter()
        self.status = "completed"
        self._http_status = 200
        self._error: str | None = None
        self._reply_model: str | None = None
        self._finish_reason: str | None = None

    @property
    def action(self) -> str:
        """The overall action taken on the request so far: ``allow``, ``warn`` or ``block``."""
        return overall_action(self.status, [*self.retrieval.decisions, *self.reply.decisions])

    def name_agent(self, agent: str | None) -> None:
        """Set the agent to the one that the request's run names."""
        self.info = replace(self.info, agent=agent)

    def start_reply(self, model: str | None, prompt_tokens: int | None) -> None:
        """Record the start of the upstream's reply, the model that it names, and the number of prompt tokens. Only the
        first name counts. An upstream can send any text, so text that doesn't look like a model name isn't stored."""
        if self._reply_model is None and model is not None:
            self._reply_model = model if _MODEL.fullmatch(model) else "unknown"
        if prompt_tokens is not None:
            self.usage.prompt = prompt_tokens

    def fail(self, status: str, error: str, *, http_status: int | None = None) -> None:
        """Record that the request failed. A more severe status that is already set is kept."""
        if _SEVERITY.get(status, 0) > _SEVERITY.get(self.status, 0):
            self.status, self._error = status, error
        if http_status is not None:
            self._http_status = http_status

    def fail_upstream(self, message: str) -> None:
        """Record an error that the upstream reported in its reply. The message may quote prompts and keys, so it is
        stored under the same rules as other text."""
        full = self.store_text is StoreText.FULL
        self.fail("upstream_error", message if full else "the upstream reported an error")

    def block(self, *, http_status: int | None = None) -> None:
        """Record that a policy blocked the request."""
        self.status = "blocked"
        if http_status is not None:
            self._http_status = http_status

    def finish(self, reason: str | None) -> None:
        """Record that a choice ended with the finish reason ``reason``. An upstream can send any value, so only values
        that look like a finish reason are stored."""
        self._finish_reason = reason if reason is None or _REASON.fullmatch(reason) else "unknown"

    def record(self) -> RequestRecord:
        """Build the record of the request in its current state."""
        return RequestRecord(
            info=self.info,
            store_text=self.store_text,
            governing=self.governing,
            judging=self.judging,
            retrieval=self.retrieval,
            upstream=UpstreamOutcome(
                model=self._reply_model or self.sent_model,
                finish_reason=self._finish_reason,
                elapsed_ms=self.timings.upstream_ms,
                tokens=self.usage.counts(),
            ),
            reply=self.reply,
            status=self.status,
            http_status=self._http_status,
            error=self._error,
            total_ms=self.timings.elapsed_ms(),
            marks=dict(self.timings.marks),
            dropped=dict(self.dropped),
        )
