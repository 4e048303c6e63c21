"""Verdicts on the replies of an ``openai`` client that calls the gateway.

    client = wrap(OpenAI(base_url="http://localhost:8080/v1"), agent_name="support")
    reply = client.chat.completions.create(model="gpt-4o-mini", messages=[...], documents=["..."])
    reply.grounding.verdict

This is the only part of the package that needs ``openai``.
"""

from typing import Any, overload

from openai import AsyncOpenAI, OpenAI

from groundlane.openai._replies import (
    AsyncGroundedStream,
    GroundedChatCompletion,
    GroundedChatCompletionChunk,
    GroundedResponse,
    GroundedStream,
    grounding_of,
)
from groundlane.openai._resources import AsyncCompletions, AsyncResponses, Completions, Resource, Responses

__all__ = [
    "AsyncGroundedOpenAI",
    "AsyncGroundedStream",
    "GroundedChatCompletion",
    "GroundedChatCompletionChunk",
    "GroundedOpenAI",
    "GroundedResponse",
    "GroundedStream",
    "grounding_of",
    "wrap",
]


@overload
def wrap(client: OpenAI, *, agent_name: str | None = None) -> "GroundedOpenAI": ...


@overload
def wrap(client: AsyncOpenAI, *, agent_name: str | None = None) -> "AsyncGroundedOpenAI": ...


def wrap(client: OpenAI | AsyncOpenAI, *, agent_name: str | None = None) -> "GroundedOpenAI | AsyncGroundedOpenAI":
    """Wrap an ``openai`` client. ``chat.completions.create`` and ``responses.create`` then accept ``documents`` and
    ``grounding``, and return the usual ``openai`` objects with an additional ``grounding``. Everything else is
    unchanged.

    Requests are attributed to the current run, if any, and otherwise to the agent ``agent_name``.
    """
    if isinstance(client, AsyncOpenAI):
        return AsyncGroundedOpenAI(client, agent_name=agent_name)
    return GroundedOpenAI(client, agent_name=agent_name)


class _Chat(Resource):
    def __init__(self, own: Any, agent_name: str | None) -> None:
        super().__init__(own, agent_name)
        self.completions = Completions(own.completions, agent_name)


class _AsyncChat(Resource):
    def __init__(self, own: Any, agent_name: str | None) -> None:
        super().__init__(own, agent_name)
        self.completions = AsyncCompletions(own.completions, agent_name)


class GroundedOpenAI(Resource):
    """An ``OpenAI`` client wrapped by ``wrap``. The original client is available as ``openai``."""

    def __init__(self, client: OpenAI, *, agent_name: str | None = None) -> None:
        super().__init__(client, agent_name)
        self.openai = client
        self.chat = _Chat(client.chat, agent_name)
        self.responses = Responses(client.responses, agent_name)

    def with_options(self, **options: Any) -> "GroundedOpenAI":
        """Call the client's ``with_options`` and wrap the result."""
        return GroundedOpenAI(self.openai.with_options(**options), agent_name=self._agent_name)


class AsyncGroundedOpenAI(Resource):
    """An ``AsyncOpenAI`` client wrapped by ``wrap``. The original client is available as ``openai``."""

    def __init__(self, client: AsyncOpenAI, *, agent_name: str | None = None) -> None:
        super().__init__(client, agent_name)
        self.openai = client
        self.chat = _AsyncChat(client.chat, agent_name)
        self.responses = AsyncResponses(client.responses, agent_name)

    def with_options(self, **options: Any) -> "AsyncGroundedOpenAI":
        """Call the client's ``with_options`` and wrap the result."""
        return AsyncGroundedOpenAI(self.openai.with_options(**options), agent_name=self._agent_name)
