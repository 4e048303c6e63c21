"""The judge process. It serves its parent process over standard input and output, with one JSON object per line.

    parent: {"id": 0, "request": {"service": "check"}}     the service to open
    child:  {"id": 0, "status": 200, "body": {}}           or an error, and the process ends
    parent: {"id": 1, "request": {"text": ..., ...}}
    child:  {"id": 1, "status": 200, "body": {...}}        in any order
    parent: {"cancel": 1}                                  the answer is no longer needed

The process ends when its input ends, because the parent has closed it or has exited.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import Any, BinaryIO, Final

import structlog

from app.errors import GatewayError, InvalidRequestError
from app.evaluation.judging.verdict_cache import CacheError
from app.judge_runtime.offline import JudgeMissingError
from app.judge_server.sdk_services import Answer, Service, open_service
from app.observability import configure_logging
from app.settings import load_settings

_EXIT_S: Final = 10.0
"""The time that the process has to shut down, in seconds, once its input has ended."""

_log = structlog.stdlib.get_logger(__name__)


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the parent, which then ends this process
    lines, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # text that libraries print must not mix with the answers
    asyncio.run(serve(lines, answers, on_end=_exit_soon))


async def serve(lines: BinaryIO, answers: BinaryIO, *, on_end: Callable[[], None] = lambda: None) -> None:
    """Run the protocol: read requests from ``lines`` and write the answers to ``answers``. ``on_end`` is called at the
    end of ``lines``."""
    messages = _messages(lines, on_end)
    first = await anext(messages, None)
    if first is None:
        return
    async with AsyncExitStack() as stack:
        try:
            settings = load_settings()
            configure_logging(settings.log_level, settings.log_format)
            service = await stack.enter_async_context(open_service(settings, first["request"]))
        except (ValueError, JudgeMissingError, CacheError) as error:
            _write(answers, first["id"], (HTTPStatus.BAD_REQUEST, InvalidRequestError(str(error)).body()))
            return
        _write(answers, first["id"], (HTTPStatus.OK, {}))
        await _answer_all(service, messages, answers)


async def _answer_all(service: Service, messages: AsyncIterator[Mapping[str, Any]], answers: BinaryIO) -> None:
    running: dict[int, asyncio.Task[None]] = {}

    async def one(number: int, request: Mapping[str, Any]) -> None:
        _write(answers, number, await _answer(service, request))

    async with asyncio.TaskGroup() as group:
        async for message in messages:
            if "cancel" in message:
                if (task := running.get(message["cancel"])) is not None:
                    task.cancel()
                continue
            number = message["id"]
            running[number] = group.create_task(one(number, message["request"]))
            running[number].add_done_callback(partial(_drop, running, number))
        for task in running.values():
            task.cancel()


def _drop(running: dict[int, asyncio.Task[None]], number: int, _: asyncio.Task[None]) -> None:
    del running[number]


async def _answer(service: Service, request: Mapping[str, Any]) -> Answer:
    try:
        return await service.answer(request)
    except CacheError as error:
        failed = GatewayError(str(error))
    except Exception:
        _log.exception("check_failed")
        failed = GatewayError("The check failed. For the cause, see the log of the judge process.")
    return HTTPStatus.INTERNAL_SERVER_ERROR, failed.body()


async def _messages(lines: BinaryIO, on_end: Callable[[], None]) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the decoded lines. They are read in a thread, because not every platform can poll pipes."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes]()

    def read() -> None:
        try:
            for line in lines:
                loop.call_soon_threadsafe(queue.put_nowait, line)
            loop.call_soon_threadsafe(queue.put_nowait, b"")
        except RuntimeError:  # the loop is already closed
            return
        on_end()

    threading.Thread(target=read, name="judge-process-input", daemon=True).start()
    while line := await queue.get():
        yield json.loads(line)


def _write(answers: BinaryIO, number: int, answer: Answer) -> None:
    status, body = answer
    message = {"id": number, "status": status, "body": body}
    with suppress(BrokenPipeError):  # the parent is gone, so the input ends too
        answers.write(json.dumps(message, default=asdict).encode() + b"\n")
        answers.flush()


def _exit_soon() -> None:
    time.sleep(_EXIT_S)
    sys.stderr.flush()
    os._exit(1)
