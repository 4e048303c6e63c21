"""One call to an LLM: bounded, counted, and left out for a while where the service keeps failing."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TypeVar

from judges.llm.openai_chat_model import ChatModel
from judges.llm.prices import PriceTable
from judges.llm.prompts import Prompt
from judges.llm.providers import Endpoint, KeySource, UnknownModelError, resolve
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError
from judges.types import LlmCall

log = logging.getLogger(__name__)

T = TypeVar("T")
Observe = Callable[[LlmCall], None]

_Service = tuple[str, str]
"""An endpoint's name and a model's there: one model that is not to be had says nothing of the others."""

FAILURES = 5
"""So many failures of a service in a row,"""
REST_S = 15.0
"""and it is not asked for so many seconds: else each sentence would wait for its deadline."""

SLOW_S = 2.0
"""A call that is given up after so many seconds is a failure of the service, before that the caller's own matter."""


class NoKeyError(JudgeUnavailableError):
    """There is no key for the model's service."""


class Caller:
    """Makes the calls of one judge. ``concurrency``: so many at once; a call waits for its turn, within ``timeout_s``.

    ``observe`` is told of every call of the process; each call's own ``record`` of that call.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        keys: KeySource,
        endpoints: Mapping[str, Endpoint],
        prices: PriceTable,
        timeout_s: float,
        concurrency: int,
        observe: Observe,
    ) -> None:
        self._chat = chat
        self._keys = keys
        self._endpoints = endpoints
        self._prices = prices
        self._timeout_s = timeout_s
        self._turns = asyncio.Semaphore(concurrency)
        self._observe = observe
        self._failures: dict[_Service, int] = {}
        self._rests_until: dict[_Service, float] = {}

    def check(self, model: str) -> None:
        """Raises UnknownModelError, NoKeyError, or JudgeUnavailableError where the service is being left alone."""
        self._way(model)

    async def ask(
        self, mode: str, model: str, prompt: Prompt, read: Callable[[str], T | None], record: Observe
    ) -> T | None:
        """What ``read`` makes of the answer; None where it makes nothing of it. Raises JudgeError or TimeoutError."""
        endpoint, name, key = self._way(model)
        started, outcome, used = monotonic(), "timeout", (0, 0)
        try:
            async with asyncio.timeout(self._timeout_s), self._turns:
                completion = await self._chat.complete(endpoint, key, name, prompt)
            used = completion.prompt_tokens, completion.completion_tokens
            found = read(completion.text)
            outcome = "unreadable" if found is None else "ok"
            self._failures.pop((endpoint.name, name), None)
        except asyncio.CancelledError:  # whoever asked has a deadline too, or is gone
            if monotonic() - started > SLOW_S:
                self._fail(endpoint, name)
            raise
        except (JudgeError, TimeoutError) as error:
            outcome = why_skipped(error)
            self._fail(endpoint, name)
            raise
        finally:
            call = LlmCall(
                mode=mode,
                model=model,
                outcome=outcome,
                prompt_tokens=used[0],
                completion_tokens=used[1],
                cost_usd=self._prices.cost(model, *used),
                latency_ms=(monotonic() - started) * 1e3,
            )
            record(call)
            self._observe(call)
        return found

    async def start(self) -> None:
        await self._chat.start()

    async def aclose(self) -> None:
        await self._chat.aclose()

    def _way(self, model: str) -> tuple[Endpoint, str, str | None]:
        endpoint, name = resolve(model, self._endpoints)
        key = self._keys.key(endpoint.name)
        if key is None and endpoint.needs_key:
            raise NoKeyError(f"no key is configured for {endpoint.name}")
        until = self._rests_until.get((endpoint.name, name))
        if until is not None and monotonic() < until:
            told = f"{name} of {endpoint.name} failed {FAILURES} times in a row and is left alone for now"
            raise JudgeUnavailableError(told)
        return endpoint, name, key

    def _fail(self, endpoint: Endpoint, name: str) -> None:
        service = endpoint.name, name
        failures = self._failures[service] = self._failures.get(service, 0) + 1
        if failures >= FAILURES:
            self._rests_until[service] = monotonic() + REST_S
            if failures == FAILURES:
                log.warning(
                    "the LLM judge leaves %s of %s alone for %g s: it keeps failing", name, endpoint.name, REST_S
                )


def why_skipped(error: Exception) -> str:
    """The one word for an error that a report has."""
    match error:
        case NoKeyError():
            return "no_key"
        case UnknownModelError():
            return "unknown_model"
        case TimeoutError():
            return "timeout"
        case JudgeOverloadedError():
            return "overloaded"
    return "error"
