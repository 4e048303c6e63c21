"""The wrapped resources of an ``openai`` client."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, overload

from openai import AsyncStream, Stream
from openai.types.responses import ResponseStreamEvent

from groundlane._recording import CURRENT
from groundlane.openai._replies import (
    AsyncGroundedStream,
    GroundedChatCompletion,
    GroundedChatCompletionChunk,
    GroundedResponse,
    GroundedStream,
    violations,
)

Documents = Sequence[Mapping[str, Any] | str]


class Resource:
    """A wrapped resource. Attributes that it does not override come from the client."""

    def __init__(self, own: Any, agent_name: str | None) -> None:
        self._own = own
        self._agent_name = agent_name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def _arguments(
        self,
        request: Mapping[str, Any],
        *,
        stream: bool | None,
        documents: Documents | None,
        grounding: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """Return the arguments for the client's method. They name the current run or, outside a run, the client's
        agent, unless the caller names another."""
        body = dict(request.get("extra_body") or {})
        run = CURRENT.get()
        known = {"agent": self._agent_name} if run is None else {"agent": run.agent_name, "run_id": run.run_id}
        given = {**(body.get("grounding") or {}), **(grounding or {})}
        merged = {**{name: value for name, value in known.items() if value is not None}, **given}
        if merged:
            body["grounding"] = merged
        if documents is not None:
            body["documents"] = list(documents)
        return {**request, **({} if stream is None else {"stream": stream}), "extra_body": body or None}


class Completions(Resource):
    """``client.chat.completions``."""

    @overload
    def create(
        self,
        *,
        stream: Literal[True],
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedStream[GroundedChatCompletionChunk]: ...

    @overload
    def create(
        self,
        *,
        stream: Literal[False] | None = None,
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedChatCompletion: ...

    def create(
        self,
        *,
        stream: bool | None = None,
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedChatCompletion | GroundedStream[GroundedChatCompletionChunk]:
        """Call the client's ``create`` with the gateway's additional arguments, ``documents`` and ``grounding``.

        Raises PolicyViolationError if a policy blocks, and the exceptions of ``openai``.
        """
        arguments = self._arguments(request, stream=stream, documents=documents, grounding=grounding)
        with violations():
            raw = self._own.with_raw_response.create(**arguments)
        if stream:
            return GroundedStream(raw.parse(to=Stream[GroundedChatCompletionChunk]))
        return cast(GroundedChatCompletion, raw.parse(to=GroundedChatCompletion))


class AsyncCompletions(Resource):
    """The asynchronous ``client.chat.completions``."""

    @overload
    async def create(
        self,
        *,
        stream: Literal[True],
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> AsyncGroundedStream[GroundedChatCompletionChunk]: ...

    @overload
    async def create(
        self,
        *,
        stream: Literal[False] | None = None,
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedChatCompletion: ...

    async def create(
        self,
        *,
        stream: bool | None = None,
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedChatCompletion | AsyncGroundedStream[GroundedChatCompletionChunk]:
        """See ``Completions.create``."""
        arguments = self._arguments(request, stream=stream, documents=documents, grounding=grounding)
        with violations():
            raw = await self._own.with_raw_response.create(**arguments)
        if stream:
            return AsyncGroundedStream(raw.parse(to=AsyncStream[GroundedChatCompletionChunk]))
        return cast(GroundedChatCompletion, raw.parse(to=GroundedChatCompletion))


class Responses(Resource):
    """``client.responses``. A stream yields ordinary ``openai`` events. Use ``grounding_of`` to get their verdicts."""

    @overload
    def create(
        self,
        *,
        stream: Literal[True],
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedStream[ResponseStreamEvent]: ...

    @overload
    def create(
        self,
        *,
        stream: Literal[False] | None = None,
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedResponse: ...

    def create(
        self,
        *,
        stream: bool | None = None,
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedResponse | GroundedStream[ResponseStreamEvent]:
        """See ``Completions.create``."""
        arguments = self._arguments(request, stream=stream, documents=documents, grounding=grounding)
        with violations():
            raw = self._own.with_raw_response.create(**arguments)
        return GroundedStream(raw.parse()) if stream else cast(GroundedResponse, raw.parse(to=GroundedResponse))


class AsyncResponses(Resource):
    """``client.responses``, asynchronous."""

    @overload
    async def create(
        self,
        *,
        stream: Literal[True],
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> AsyncGroundedStream[ResponseStreamEvent]: ...

    @overload
    async def create(
        self,
        *,
        stream: Literal[False] | None = None,
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedResponse: ...

    async def create(
        self,
        *,
        stream: bool | None = None,
        documents: Documents | None = None,
        grounding: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> GroundedResponse | AsyncGroundedStream[ResponseStreamEvent]:
        """See ``Completions.create``."""
        arguments = self._arguments(request, stream=stream, documents=documents, grounding=grounding)
        with violations():
            raw = await self._own.with_raw_response.create(**arguments)
        return AsyncGroundedStream(raw.parse()) if stream else cast(GroundedResponse, raw.parse(to=GroundedResponse))
