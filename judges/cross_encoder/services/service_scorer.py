"""Scores pairs with a service that answers one pair per request."""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic
from typing import Final

from judges.call_recording import record_call
from judges.cross_encoder.remote.token_estimate import estimate_tokens
from judges.cross_encoder.services.pair_service import (
    NoResponseError,
    PairService,
    ServiceAnswer,
    UnreadableAnswerError,
    one_line,
)
from judges.cross_encoder.services.service_access import ServiceAccess
from judges.cross_encoder.services.service_client import ServiceClient
from judges.llm_types import LlmCall
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, JudgeUnreachableError
from judges.types import Probabilities, Windowing

log = logging.getLogger(__name__)

_CHARS_PER_TOKEN: Final = 5
"""Assumed maximum length of a token, including the space after it."""

_WINDOW_TOKENS: Final = 128
"""The checker's default for the amount of evidence per claim, in tokens."""


class ServiceScorer:
    """A ``PairScorer`` for ``service``.

    Args:
        service: builds the requests and parses the responses.
        access: the service's key and limits. Every request is reported to it and to ``judges.call_recording``.
        concurrency: maximum number of concurrent requests.
        threshold: the P(entailed) at which the service's authors call a claim supported.
        windowing: how evidence is cut for the service. Defaults to the checker's windowing.
    """

    batch_pairs: Final = 1
    """Number of pairs in a batch. Each pair is a separate request and shouldn't wait for others."""
    paid: Final = True

    def __init__(
        self,
        service: PairService,
        access: ServiceAccess,
        *,
        concurrency: int = 8,
        threshold: float = 0.5,
        windowing: Windowing | None = None,
    ) -> None:
        self._service = service
        self._access = access
        self.threshold = threshold
        """The P(entailed) at which the service's authors call a claim supported."""
        self.windowing = windowing
        """How evidence is cut for the service; None means the checker's default."""
        self.concurrency = concurrency
        """Maximum number of concurrent requests."""
        self._slots = asyncio.Semaphore(concurrency)
        self._client: ServiceClient | None = None
        self._closed = False

    @property
    def name(self) -> str:
        return self._service.name

    @property
    def fault(self) -> str | None:
        """Why calls to the service are suspended: its key was removed, or it keeps failing. None if they aren't
        suspended."""
        broken = None if self._client is None else self._client.fault
        return self._service.fault or broken

    @property
    def max_tokens(self) -> int:
        window = _WINDOW_TOKENS if self.windowing is None else self.windowing.tokens
        return self._service.max_claim_chars // _CHARS_PER_TOKEN + window

    @property
    def languages(self) -> frozenset[str] | None:
        """Two-letter codes of the languages in the service's documentation; None if it lists none."""
        return self._service.languages

    @property
    def fuses(self) -> bool:
        """Whether a claim is judged against several windows in a single request."""
        return self._service.attributes

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def start(self) -> None:
        """Check that there is a key, and open the connection pool; nothing is sent.

        Raises JudgeUnreachableError if there is no key, because a key may be added while the gateway runs.
        """
        if self._closed:
            raise JudgeUnavailableError(f"{self.name} is closed")
        if self._client is None:
            if (fault := self._service.fault) is not None:
                raise JudgeUnreachableError(fault)
            self._client = ServiceClient(
                self._service,
                timeout_s=self._access.timeout_s,
                connections=self.concurrency,
                transport=self._access.transport,
            )

    async def aclose(self) -> None:
        """Close the connections. The scorer cannot be started again."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        if self._client is None:
            raise JudgeUnavailableError(f"{self.name} is not started")
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._score(self._client, *pair)) for pair in pairs]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _score(self, client: ServiceClient, evidence: str, claim: str) -> Probabilities:
        service, claim = self._service, one_line(claim)
        if len(claim) > service.max_claim_chars or len(evidence) > service.max_evidence_chars:
            raise JudgeError(
                f"{self.name} accepts claims of up to {service.max_claim_chars} characters and evidence of up to "
                f"{service.max_evidence_chars}; got {len(claim)} and {len(evidence)}"
            )
        async with self._slots:
            client.check()
            return await self._ask(client, evidence, claim)

    async def _ask(self, client: ServiceClient, evidence: str, claim: str) -> Probabilities:
        started, outcome, answer = monotonic(), "error", ServiceAnswer(score=Probabilities(0.0, 1.0, 0.0), units=0.0)
        try:
            request = await self._service.request(evidence, claim, client.post)
            answer = self._service.parse(await client.post(request), evidence)
            outcome = "ok"
        except asyncio.CancelledError:
            outcome = "timeout"
            raise
        except JudgeError as error:
            outcome = _outcome(error)
            raise
        finally:
            self._record(answer, outcome, (monotonic() - started) * 1e3)
        return answer.score

    def _record(self, answer: ServiceAnswer, outcome: str, latency_ms: float) -> None:
        price = self._service.price
        if price is not None:
            cost: float | None = price * answer.units
        else:
            cost = self._access.cost(self._service.model, answer.prompt_tokens, answer.completion_tokens)
        call = LlmCall(
            mode="judge",
            model=self.name,
            outcome=outcome,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            cost_usd=cost,
            latency_ms=latency_ms,
        )
        record_call(call)
        self._access.observe(call)


def _outcome(error: JudgeError) -> str:
    match error:
        case UnreadableAnswerError():
            return "unreadable"
        case JudgeOverloadedError():
            return "overloaded"
        case NoResponseError():
            return "timeout"
    return "error"
