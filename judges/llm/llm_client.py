"""Calls an LLM with a timeout, a concurrency limit, accounting, and a circuit breaker for failing endpoints."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TypeVar

from judges.circuit_breaker import MAX_FAILURES, OPEN_CIRCUIT_S, CircuitBreaker
from judges.llm.openai_chat_model import ChatModel
from judges.llm.prices import PriceTable
from judges.llm.prompts import Prompt
from judges.llm.providers import Endpoint, LlmKeySource, UnknownLlmError, resolve
from judges.llm.response_parsing import MAX_ANSWER_CHARS, is_quotation
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError

log = logging.getLogger(__name__)

T = TypeVar("T")
Observe = Callable[[LlmCall], None]

_Service = tuple[str, str]
"""The names of an endpoint and a model. Both are needed, because one model may fail while others on the same endpoint
work."""


class NoKeyError(JudgeUnavailableError):
    """No API key is configured for the model's endpoint."""


class LlmClient:
    """Makes the LLM calls for one judge.

    Args:
        chat: sends the prompts.
        keys, endpoints, prices: as for ``LlmJudge``.
        timeout_s: time limit per call, including the wait for a free slot.
        concurrency: maximum number of concurrent calls.
        observe: called with every call. The argument ``record`` of ``ask`` receives only the call made by ``ask``.
    """

    def __init__(
        self,
        chat: ChatModel,
        *,
        keys: LlmKeySource,
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
        self._slots = asyncio.Semaphore(concurrency)
        self._observe = observe
        self._breakers: defaultdict[_Service, CircuitBreaker] = defaultdict(CircuitBreaker)

    def check(self, model: str) -> None:
        """Check that ``model`` can be called. Raises UnknownLlmError, NoKeyError, or JudgeUnavailableError if the
        circuit is open."""
        self._route(model)

    async def ask(
        self, mode: str, model: str, prompt: Prompt, read: Callable[[str], T | None], record: Observe
    ) -> T | None:
        """Send ``prompt`` and return the answer as parsed by ``read``. Return None if the answer cannot be parsed, is
        longer than ``MAX_ANSWER_CHARS``, or only quotes the prompt. Raises JudgeError or TimeoutError."""
        endpoint, name, key = self._route(model)
        breaker = self._breakers[endpoint.name, name]
        started, outcome, used = monotonic(), "timeout", (0, 0)
        try:
            async with asyncio.timeout(self._timeout_s), self._slots:
                completion = await self._chat.complete(endpoint, key, name, prompt)
            used = completion.prompt_tokens, completion.completion_tokens
            text = completion.text
            readable = len(text) <= MAX_ANSWER_CHARS and not is_quotation(text, prompt.user)
            found = read(text) if readable else None
            outcome = "unreadable" if found is None else "ok"
            breaker.succeeded()
        except asyncio.CancelledError:  # The caller reached its own deadline or is gone.
            if breaker.cancelled(monotonic() - started):
                _warn_of_failures(endpoint, name)
            raise
        except (JudgeError, TimeoutError) as error:
            outcome = why_skipped(error)
            if breaker.failed():
                _warn_of_failures(endpoint, name)
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

    def _route(self, model: str) -> tuple[Endpoint, str, str | None]:
        endpoint, name = resolve(model, self._endpoints)
        key = self._keys.key(endpoint.name)
        if key is None and endpoint.needs_key:
            raise NoKeyError(f"no API key is configured for {endpoint.name}")
        if self._breakers[endpoint.name, name].is_open:
            raise JudgeUnavailableError(f"{name} at {endpoint.name} failed {MAX_FAILURES} times in a row and is paused")
        return endpoint, name, key


def _warn_of_failures(endpoint: Endpoint, name: str) -> None:
    log.warning(
        "%s at %s keeps failing; the LLM judge pauses calls to it for %g s", name, endpoint.name, OPEN_CIRCUIT_S
    )


def why_skipped(error: Exception) -> str:
    """Return the reason that reports give for ``error``."""
    match error:
        case NoKeyError():
            return "no_key"
        case UnknownLlmError():
            return "unknown_model"
        case TimeoutError():
            return "timeout"
        case JudgeOverloadedError():
            return "overloaded"
    return "error"
