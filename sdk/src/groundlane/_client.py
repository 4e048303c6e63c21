"""The synchronous and asynchronous clients."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from groundlane._results import CheckResult, RunRecord, check_call, run_call
from groundlane._runs import AsyncRun, Run
from groundlane._session import AsyncSession, Session
from groundlane._transport import DEFAULT_RETRIES, DEFAULT_TIMEOUT_S, Endpoint


class Groundlane:
    """A client for the gateway at ``base_url``, which may end in ``/v1``. The default is ``GROUNDLANE_BASE_URL`` or, if
    that is not set, port 8080 on this machine.

    ``api_key`` (default: ``GROUNDLANE_API_KEY``) is sent as a bearer token. ``timeout`` is the time limit for each read
    and write, in seconds. Failed calls are retried up to ``max_retries`` times if it is safe to repeat them. If you
    pass ``http_client``, you are responsible for closing it.

    Close the client after use, or use it as a context manager. Raises ValueError for an invalid argument. All methods
    raise GroundlaneError on failure.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        max_retries: int = DEFAULT_RETRIES,
        http_client: httpx.Client | None = None,
    ) -> None:
        self._endpoint = Endpoint.of(base_url, api_key, max_retries)
        self._session = Session(self._endpoint, timeout=timeout, http_client=http_client)

    def check(
        self,
        text: str,
        sources: Sequence[str] | None = None,
        *,
        documents: Sequence[Mapping[str, Any] | str] | None = None,
        question: str | None = None,
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CheckResult:
        """Check ``text`` against ``sources``, which are plain texts, or against ``documents`` with metadata.

        ``question`` is the user's message that the text answers. If it is missing or blank, a text such as "Yes." is
        unverifiable, because it isn't known what it answers.

        ``options`` are grounding rules, such as ``{"entailment_threshold": 0.8}``. To use the rules of a stored
        grounding policy instead, pass its name or id as ``policy``.
        """
        call = check_call(text, sources, documents=documents, question=question, policy=policy, options=options)
        return CheckResult.read(self._session.send(call))

    def run(self, agent_name: str, *, model: str | None = None, enforce_policy: bool = True) -> Run:
        """Create a run of the agent ``agent_name``, for use in a ``with`` statement.

        With ``model``, policies that are scoped to that model also apply. With ``enforce_policy=False``, decisions are
        recorded and returned, but a blocking decision raises no exception.
        """
        return Run(agent_name, session=self._session, model=model, enforce_policy=enforce_policy)

    def get_run(self, run_id: str) -> RunRecord:
        """Fetch the gateway's record of a run."""
        return RunRecord.read(self._session.send(run_call(run_id)))

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._endpoint)!r})"


class AsyncGroundlane:
    """``Groundlane`` for asynchronous code. Use it in an ``async with`` statement, or close it with ``aclose``."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        max_retries: int = DEFAULT_RETRIES,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        self._endpoint = Endpoint.of(base_url, api_key, max_retries)
        self._session = AsyncSession(self._endpoint, timeout=timeout, http_client=http_client)

    async def check(
        self,
        text: str,
        sources: Sequence[str] | None = None,
        *,
        documents: Sequence[Mapping[str, Any] | str] | None = None,
        question: str | None = None,
        policy: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CheckResult:
        """See ``Groundlane.check``."""
        call = check_call(text, sources, documents=documents, question=question, policy=policy, options=options)
        return CheckResult.read(await self._session.send(call))

    def run(self, agent_name: str, *, model: str | None = None, enforce_policy: bool = True) -> AsyncRun:
        """Create a run of the agent ``agent_name``, for use in an ``async with`` statement. See ``Groundlane.run``."""
        return AsyncRun(agent_name, session=self._session, model=model, enforce_policy=enforce_policy)

    async def get_run(self, run_id: str) -> RunRecord:
        """Fetch the gateway's record of a run."""
        return RunRecord.read(await self._session.send(run_call(run_id)))

    async def aclose(self) -> None:
        await self._session.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._endpoint)!r})"
