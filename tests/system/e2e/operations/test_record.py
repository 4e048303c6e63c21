"""The log entries of a request are available to readers, although they are written a moment later."""

import gc
import io
import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from app.events.recorder import RequestRecorder
from app.events.request_record import RequestRecord
from app.reply.choice import Choice
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.mock_upstream import End, Reply

REQUEST = {"model": "test-model", "messages": [{"role": "user", "content": "?"}]}


def counted(gateway: Gateway) -> float:
    with gateway.call(method="GET", path="/metrics") as call:
        lines = call.read_all().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("groundlane_requests_total{"))


def test_scrape_directly_after_a_reply_counts_it(gateway: Gateway) -> None:
    before = counted(gateway)
    for number in range(1, 4):
        gateway.upstream.script(answer("A word.", stream=False))
        with gateway.call(REQUEST) as call:
            call.read_all()
        assert counted(gateway) == before + number


def test_log_has_one_line_per_request_in_order_of_their_end(gateway: Gateway, log: io.StringIO) -> None:
    asked = []
    for _ in range(3):
        gateway.upstream.script(answer("A word.", stream=False))
        with gateway.call(REQUEST) as call:
            call.read_all()
            asked.append(call.request_id)

    def told() -> list[dict[str, object]] | None:
        lines = [json.loads(line) for line in log.getvalue().splitlines()]
        found = [line for line in lines if line["event"] == "request" and line["request_id"] in asked]
        return found if len(found) == len(asked) else None

    found = eventually(told, "a line for each")
    assert [line["request_id"] for line in found] == asked
    for line in found:
        row = gateway.trace(str(line["request_id"])).request
        end = datetime.fromisoformat(row["ts"]) + timedelta(milliseconds=row["total_ms"])
        assert abs(datetime.fromisoformat(str(line["timestamp"])) - end) < timedelta(milliseconds=0.01)


_OF_A_REQUEST = (RequestRecorder, RequestRecord, Choice)


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        answer("A word.", stream=False),
        answer("A word.", stream=True),
        replace(answer("A word.", stream=True), end=End.RESET),
        Reply(status=500, chunks=[b"{}"]),
        Reply(accept=False),
    ],
    ids=["whole", "streamed", "broken", "refused", "unanswered"],
)
def test_no_request_waits_for_the_garbage_collector(gateway: Gateway, reply: Reply, stream: bool, path: str) -> None:
    """Its documents may be large, and garbage collection is rare."""
    body = {**REQUEST, "input": "?", "max_tokens": 9, "stream": stream, "documents": [{"id": "d", "text": "A word."}]}
    gateway.upstream.script(reply)
    gc.collect()
    gc.disable()
    try:
        with gateway.call(body, path=f"/v1/{path}") as call:
            call.read_all()
            gateway.trace(call.request_id)
        eventually(lambda: not any(type(each) in _OF_A_REQUEST for each in gc.get_objects()) or None, "its end")
    finally:
        gc.enable()
