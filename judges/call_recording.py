"""Attributes each paid call by a judge to the request that caused it.

A request collects calls with ``recording``; a judge reports each call with ``record_call``. A context variable connects
the two, because a judge sees only pairs of texts, not requests. A wrapper that scores pairs in a separate task, such as
a batcher, passes on the recorders of the requests that the pairs come from.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from judges.llm_types import LlmCall

Recorder = Callable[[LlmCall], None]

_recorders: ContextVar[tuple[Recorder, ...]] = ContextVar("judge_call_recorders", default=())


@contextmanager
def recording(*recorders: Recorder) -> Iterator[None]:
    """Pass the calls made inside this context, and in tasks started inside it, to ``recorders`` only."""
    token = _recorders.set(recorders)
    try:
        yield
    finally:
        _recorders.reset(token)


def current_recorders() -> tuple[Recorder, ...]:
    """Return the recorders of the current context."""
    return _recorders.get()


def record_call(call: LlmCall) -> None:
    """Report a call to the recorders of the current context, if any."""
    for recorder in _recorders.get():
        recorder(call)


def merged(recorders: Iterable[tuple[Recorder, ...]]) -> tuple[Recorder, ...]:
    """Return the recorders of several requests without duplicates, for a call that scores pairs of all these
    requests."""
    return tuple(dict.fromkeys(recorder for each in recorders for recorder in each))
