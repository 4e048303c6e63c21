"""The protocol of the judge process, over pipes in this process."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, BinaryIO

import pytest

from app.evaluation.judging.verdict_cache import CacheError
from app.judge_process import server, services
from app.judge_process.services import Answer, Evaluations, open_service
from app.judge_runtime.offline import JudgeMissingError
from app.settings import Settings
from app.text_checks.standalone import StandaloneChecks
from tests.support.evaluation_cases import DOCUMENT, FALSE, TRUE, evaluator

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
        await server.serve(self.child_in, self.child_out)
        self.child_out.close()

    def close(self) -> None:
        for stream in (self._out, self._in, self.child_in, self.child_out):
            stream.close()


class Echo:
    """Answers with what it is asked; ``wait`` never ends, and ``fail`` fails."""

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

    monkeypatch.setattr(server, "open_service", opened)
    return service


async def test_each_request_gets_its_answer_and_the_end_of_the_input_ends_the_service(
    parent: Parent, echo: Echo
) -> None:
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


async def test_what_is_cancelled_ends_and_has_no_answer(parent: Parent, echo: Echo) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(parent.serve())
        parent.send({"id": 0, "request": {}}, {"id": 1, "request": {"wait": 1}})
        await echo.waiting.wait()
        parent.send({"cancel": 1}, {"cancel": 7}, {"id": 2, "request": {"wait": 1}}, {"cancel": 2})
        await echo.cancelled.wait()
        parent.send({"id": 3, "request": {"n": 3}})
        assert [(await parent.receive())["id"] for _ in range(2)] == [0, 3]
        parent.hang_up()


async def test_a_failure_is_an_error_without_what_caused_it(parent: Parent, echo: Echo) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(parent.serve())
        parent.send(
            {"id": 0, "request": {}}, {"id": 1, "request": {"fail": False}}, {"id": 2, "request": {"fail": True}}
        )
        await parent.receive()
        found = {one["id"]: one for one in [await parent.receive(), await parent.receive()]}
        parent.hang_up()
    assert [found[1]["status"], found[2]["status"]] == [500, 500]
    assert found[1]["body"]["error"]["message"] == "The check failed; the log of the judge process has the cause."
    assert found[2]["body"]["error"]["message"] == "the cache is read-only"


@pytest.mark.parametrize(
    "error", [ValueError("GROUNDLANE_JUDGE: unknown"), JudgeMissingError("no model"), CacheError("read-only")]
)
async def test_a_service_that_cannot_be_opened_says_why_and_ends(
    parent: Parent, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> AbstractAsyncContextManager[services.Service]:
        raise error

    monkeypatch.setattr(server, "open_service", fails)
    parent.send({"id": 0, "request": {"service": "check"}})
    await parent.serve()
    answer = await parent.receive()
    assert (answer["status"], answer["body"]["error"]["message"]) == (400, str(error))


async def test_a_parent_that_asks_for_nothing_and_one_that_is_gone_are_no_error(parent: Parent, echo: Echo) -> None:
    parent.hang_up()
    await parent.serve()
    gone = Parent()
    gone._in.close()
    gone.send({"id": 0, "request": {}})
    gone.hang_up()
    output: BinaryIO = gone.child_out
    await server.serve(gone.child_in, output)
    with pytest.raises(BrokenPipeError):
        gone.close()


async def test_cases_are_evaluated_as_the_files_of_a_run_have_them() -> None:
    async with Evaluations(evaluator()) as service:
        status, found = await service.answer({"output": f"{TRUE} {FALSE}", "context": DOCUMENT})
        assert (status, found["metrics"][0]["score"]) == (200, 0.5)
        status, found = await service.answer({"output": 3})
        assert (status, found["error"]["message"]) == (400, "output: expected a string, got 3.")


async def test_the_options_of_a_service_are_those_of_the_evaluator() -> None:
    settings = Settings(_env_file=None)
    assert isinstance(open_service(settings, {"service": "check"}), StandaloneChecks)
    for options, message in (
        ({"judge": "oracle"}, "'oracle' is not a valid JudgeKind"),
        ({"thresholds": {"mood": 1}}, "thresholds: expected entailment and contradiction, not mood"),
    ):
        with pytest.raises(ValueError, match=message):
            open_service(settings, {"service": "evaluate", **options})
    assert isinstance(open_service(settings, {"service": "evaluate", "thresholds": {"entailment": 0.9}}), Evaluations)
