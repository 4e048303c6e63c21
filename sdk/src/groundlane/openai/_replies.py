"""The objects returned by an ``openai`` client, with the gateway's verdicts."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from openai import APIError, AsyncStream, Stream
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseErrorEvent
from pydantic import BaseModel

from groundlane._errors import PolicyViolationError, error_from_response
from groundlane._types import Claim, Decision, Grounding

T = TypeVar("T")
_BAD_REQUEST = 400
_POLICY_CODES = ("RETRIEVAL_", "GROUNDING_")


def grounding_of(value: BaseModel) -> Grounding | None:
    """Return the verdicts on an ``openai`` object (a reply, a chunk, or an event of a response), or None if it has
    none."""
    extra = value.model_extra or {}
    if "grounding" not in extra:
        response = getattr(value, "response", None)
        extra = (response.model_extra or {}) if isinstance(response, BaseModel) else {}
    return Grounding.maybe(extra.get("grounding"))


class GroundedChatCompletion(ChatCompletion):
    """A chat completion with its verdicts."""

    @property
    def grounding(self) -> Grounding | None:
        """The verdicts. None if nothing was checked, or if ``include`` in the request excludes them."""
        return grounding_of(self)


class GroundedChatCompletionChunk(ChatCompletionChunk):
    """A chunk of a streamed completion, with the verdicts on its sentences."""

    @property
    def grounding(self) -> Grounding | None:
        return grounding_of(self)


class GroundedResponse(Response):
    """A Responses API response, with its verdicts."""

    @property
    def grounding(self) -> Grounding | None:
        return grounding_of(self)


class _Watched:
    """The verdicts of a stream so far."""

    def __init__(self) -> None:
        self.claims: tuple[Claim, ...] = ()
        """The claims so far; at the end of the stream, all claims in the summary."""
        self.grounding: Grounding | None = None
        """The summary of the whole reply. None until the stream ends."""

    def _saw(self, item: Any) -> None:
        if isinstance(item, ResponseErrorEvent) and (item.code or "").startswith(_POLICY_CODES):
            decisions = Decision.each((item.model_extra or {}).get("violations"))
            raise PolicyViolationError(item.message, decisions=decisions, code=item.code, param=item.param)
        found = grounding_of(item) if isinstance(item, BaseModel) else None
        if found is None:
            return
        if found.is_summary:
            self.grounding, self.claims = found, found.claims or self.claims
        else:
            self.claims += found.claims


class GroundedStream(_Watched, Generic[T]):
    """Wraps a stream and collects verdicts while it is read. The original stream is available as ``openai``."""

    def __init__(self, stream: Stream[T]) -> None:
        super().__init__()
        self.openai = stream

    def __iter__(self) -> Iterator[T]:
        with violations():
            for item in self.openai:
                self._saw(item)
                yield item

    def close(self) -> None:
        """Close the stream, even if it has not been read to the end."""
        self.openai.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncGroundedStream(_Watched, Generic[T]):
    """Like ``GroundedStream``, for an ``AsyncStream``."""

    def __init__(self, stream: AsyncStream[T]) -> None:
        super().__init__()
        self.openai = stream

    async def __aiter__(self) -> AsyncIterator[T]:
        with violations():
            async for item in self.openai:
                self._saw(item)
                yield item

    async def close(self) -> None:
        """Close the stream, even if it has not been read to the end."""
        await self.openai.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@contextmanager
def violations() -> Iterator[None]:
    """Convert ``openai`` errors caused by a policy to PolicyViolationError, with the original as the cause."""
    try:
        yield
    except APIError as error:
        found = error_from_response(getattr(error, "status_code", _BAD_REQUEST), {"error": error.body})
        if not isinstance(found, PolicyViolationError):
            raise
        raise found from error
