"""Verdicts on the replies of an ``openai`` client that calls the gateway.

    client = wrap(OpenAI(base_url="http://localhost:8080/v1"), agent_name="support")
    reply = client.chat.completions.create(model="gpt-4o-mini", messages=[...], documents=["..."])
    reply.grounding.verdict

The only part of this package that needs ``openai``.
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
    """A client whose ``chat.completions.create`` and ``responses.create`` take ``documents`` and ``grounding``, and
    answer with objects of ``openai`` that have ``grounding`` too. Everything else is the client's own.

    Its requests are ``agent_name``'s, or those of the run that the calling code is part of.
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
    """Created by ``wrap`` from an ``OpenAI`` client, which is ``openai``."""

    def __init__(self, client: OpenAI, *, agent_name: str | None = None) -> None:
        super().__init__(client, agent_name)
        self.openai = client
        self.chat = _Chat(client.chat, agent_name)
        self.responses = Responses(client.responses, agent_name)

    def with_options(self, **options: Any) -> "GroundedOpenAI":
        """``with_options`` of the client; the result is wrapped too."""
        return GroundedOpenAI(self.openai.with_options(**options), agent_name=self._agent_name)


class AsyncGroundedOpenAI(Resource):
    """Created by ``wrap`` from an ``AsyncOpenAI`` client, which is ``openai``."""

    def __init__(self, client: AsyncOpenAI, *, agent_name: str | None = None) -> None:
        super().__init__(client, agent_name)
        self.openai = client
        self.chat = _AsyncChat(client.chat, agent_name)
        self.responses = AsyncResponses(client.responses, agent_name)

    def with_options(self, **options: Any) -> "AsyncGroundedOpenAI":
        """``with_options`` of the client; the result is wrapped too."""
        return AsyncGroundedOpenAI(self.openai.with_options(**options), agent_name=self._agent_name)
