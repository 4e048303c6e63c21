"""Request ids, and the event of a finished request."""

import subprocess
import sys

import pytest

from app.events import recorder as module
from app.events.recorder import RequestRecorder, new_request_id
from app.settings import StoreText


def test_ids_are_ordered_by_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [1_790_000_000_000_000_000 + milliseconds * 1_000_000 for milliseconds in range(1_000)]
    clock = iter(times)
    monkeypatch.setattr(module, "time_ns", lambda: next(clock))
    ids = [new_request_id() for _ in times]
    assert ids == sorted(ids)
    assert {len(one) for one in ids} == {len("req_") + 32}


def test_ids_are_unique() -> None:
    assert len({new_request_id() for _ in range(10_000)}) == 10_000


FORKED = """
import os
from app.events import recorder
recorder.time_ns = lambda: 0
recorder.new_request_id()
reader, writer = os.pipe()
child = os.fork()
made = [recorder.new_request_id() for _ in range(300)]
if child == 0:
    os.write(writer, "".join(made).encode())
    os._exit(0)
os.close(writer)
with open(reader) as pipe:
    theirs = pipe.read()
os.waitpid(child, 0)
assert len(theirs) == 300 * 36
assert not any(one in theirs for one in made)
"""


def test_forked_process_creates_different_ids() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)


def test_request_duration_ends_with_its_record() -> None:
    recorder = RequestRecorder(api="chat", store_text=StoreText.NONE)
    record = recorder.record()
    before = recorder.timings.elapsed_ms()
    assert record.event().request.total_ms < before
    assert record.event().request.total_ms == record.total_ms


def test_event_of_a_record_is_built_once() -> None:
    record = RequestRecorder(api="chat", store_text=StoreText.NONE).record()
    assert record.event() is record.event()


def test_model_of_a_reply_is_stored_only_if_it_is_a_name() -> None:
    for model, stored in (
        ("org/model-1:free", "org/model-1:free"),
        ("drink bleach", "unknown"),
        ("m" * 300, "unknown"),
    ):
        recorder = RequestRecorder(api="chat", store_text=StoreText.NONE)
        recorder.start_reply(model, None)
        assert recorder.record().upstream.model == stored


def test_first_model_that_a_reply_names_counts() -> None:
    recorder = RequestRecorder(api="chat", store_text=StoreText.NONE)
    recorder.sent_model = "asked"
    assert recorder.record().upstream.model == "asked"
    recorder.start_reply(None, None)
    recorder.start_reply("first", 3)
    recorder.start_reply("second", None)
    assert recorder.record().upstream.model == "first"
    assert recorder.record().upstream.tokens.prompt == 3
