"""The protocol of the judge process, over pipes in this process."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, BinaryIO

import pytest

from app.evaluation.judging.verdict_cache import CacheError
from app.judge_runtime.offline import JudgeMissingError
from app.judge_server import sdk_process, sdk_services
from app.judge_server.sdk_services import Answer, Evaluations, open_service
from app.settings import Settings
from app.text_checks.standalone import StandaloneChecks
from tests.support.judging.evaluation_cases import DOCUMENT, FALSE, TRUE, evaluator

pytestmark = pytest.mark.anyio


class Parent:
    """The parent's end of the pipes."""

    def __init__(self) -> None:
        child_in, parent_out = os.pipe()
        parent_in, child_out = os.pipe()
        self.child_in, self.child_out = os.fdopen(child_in, "rb"), os.fdopen(child_out, "wb")
        self._out, self._in = os.fdopen(parent_out, "wb"), os.fdopen(parent_in, "rb")

    def send(self, *messages: Mapping[str, Any]) -> None:
        for message in messages:
            self._out.write(json.dumps(message).encode() + b"\n")
        self._out.flush()

    def hang_up(self) -> None:
        self._out.close()

    async def receive(self) -> dict[str, Any]:
        """The next answer; empty at the end."""
        line = await asyncio.to_thread(self._in.readline)
        return dict(json.loads(line)) if line else {}

    async def serve(self) -> None:
        await sdk_process.serve(self.child_in, self.child_out)
        self.child_out.close()

    def close(self) -> None:
        for stream in (self._out, self._in, self.child_in, self.child_out):
            stream.close()


class Echo:
    """Echoes requests; ``wait`` never ends, and ``fail`` fails."""

    def __init__(self) -> None:
        self.waiting, self.cancelled = asyncio.Event(), asyncio.Event()
        self.closed = False

    async def answer(self, request: Mapping[str, Any]) -> Answer:
        if "fail" in request:
            raise (request["fail"] and CacheError("the cache is read-only")) or RuntimeError("a secret")
        try:
            if "wait" in request:
                self.waiting.set()
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return 200, dict(request)


@pytest.fixture
async def parent() -> AsyncIterator[Parent]:
    opened = Parent()
    yield opened
    opened.close()


@pytest.fixture
async def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    service = Echo()

    @asynccontextmanager
    async def opened(_settings: Settings, _options: Mapping[str, Any]) -> AsyncIterator[Echo]:
        yield service
        service.closed = True

    monkeypatch.setattr(sdk_process, "open_service", opened)
    return service


async def test_requests_get_their_answers_and_end_of_input_ends_the_service(parent: Parent, echo: Echo) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(parent.serve())
        parent.send({"id": 0, "request": {"service": "check"}})
        assert await parent.receive() == {"id": 0, "status": 200, "body": {}}
        parent.send({"id": 1, "request": {"wait": True}}, *({"id": n, "request": {"n": n}} for n in range(2, 9)))
        found = [await parent.receive() for _ in range(7)]
        assert sorted(one["id"] for one in found) == list(range(2, 9)), "one that waits keeps up no other"
        assert all(one["body"] == {"n": one["id"]} for one in found)
        parent.hang_up()
    assert await parent.receive() == {}
    assert echo.cancelled.is_set()
    assert echo.closed


async def test_cancelled_request_ends_without_an_answer(parent: Parent, echo: Echo) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(parent.serve())
        parent.send({"id": 0, "request": {}}, {"id": 1, "request": {"wait": 1}})
        await echo.waiting.wait()
        parent.send({"cancel": 1}, {"cancel": 7}, {"id": 2, "request": {"wait": 1}}, {"cancel": 2})
        await echo.cancelled.wait()
        parent.send({"id": 3, "request": {"n": 3}})
        assert [(await parent.receive())["id"] for _ in range(2)] == [0, 3]
        parent.hang_up()


async def test_failure_is_reported_without_its_cause(parent: Parent, echo: Echo) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(parent.serve())
        parent.send(
            {"id": 0, "request": {}}, {"id": 1, "request": {"fail": False}}, {"id": 2, "request": {"fail": True}}
        )
        await parent.receive()
        found = {one["id"]: one for one in [await parent.receive(), await parent.receive()]}
        parent.hang_up()
    assert [found[1]["status"], found[2]["status"]] == [500, 500]
    assert found[1]["body"]["error"]["message"] == "The check failed. For the cause, see the log of the judge process."
    assert found[2]["body"]["error"]["message"] == "the cache is read-only"


@pytest.mark.parametrize(
    "error", [ValueError("GROUNDLANE_JUDGE: unknown"), JudgeMissingError("no model"), CacheError("read-only")]
)
async def test_service_that_cannot_open_reports_why_and_ends(
    parent: Parent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> AbstractAsyncContextManager[sdk_services.Service]:
        raise error

    monkeypatch.setattr(sdk_process, "open_service", fails)
    parent.send({"id": 0, "request": {"service": "check"}})
    await parent.serve()
    answer = await parent.receive()
    assert (answer["status"], answer["body"]["error"]["message"]) == (400, str(error))


async def test_silent_or_vanished_parent_is_no_error(parent: Parent, echo: Echo) -> None:
    parent.hang_up()
    await parent.serve()
    gone = Parent()
    gone._in.close()
    gone.send({"id": 0, "request": {}})
    gone.hang_up()
    output: BinaryIO = gone.child_out
    await sdk_process.serve(gone.child_in, output)
    with pytest.raises(BrokenPipeError):
        gone.close()


async def test_cases_have_the_format_of_run_files() -> None:
    async with Evaluations(evaluator()) as service:
        status, found = await service.answer({"output": f"{TRUE} {FALSE}", "context": DOCUMENT})
        assert (status, found["metrics"][0]["score"]) == (200, 0.5)
        status, found = await service.answer({"output": 3})
        assert (status, found["error"]["message"]) == (400, "output: expected a string, got 3.")


async def test_service_options_are_those_of_the_evaluator() -> None:
    settings = Settings(_env_file=None)
    assert isinstance(open_service(settings, {"service": "check"}), StandaloneChecks)
    for options, message in (
        ({"judge": "oracle"}, "'oracle' is not a valid JudgeKind"),
        ({"thresholds": {"mood": 1}}, "thresholds: expected entailment and contradiction, not mood"),
    ):
        with pytest.raises(ValueError, match=message):
            open_service(settings, {"service": "evaluate", **options})
    assert isinstance(open_service(settings, {"service": "evaluate", "thresholds": {"entailment": 0.9}}), Evaluations)
