"""Requests chat completions from any compatible service through the ``openai`` client library."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from judges.llm.prompts import Prompt
from judges.llm.providers import Endpoint
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_REASONING_MODELS = re.compile(r"o\d|gpt-5")
"""Models that accept no temperature and whose reasoning counts as completion tokens."""
_REASONING_TOKENS = 8_000
_COMPLETE = "stop"
"""The finish reason of an answer that the model has completed."""
_MAX_TOKENS = 10**9
"""Maximum number of tokens; a service that reports more is wrong."""
_NO_KEY = "none"
"""A placeholder for servers that need no key, because the library requires one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCompletion:
    """A model's answer, and the token usage reported by the service. ``text`` is empty if the model has refused, or if
    the answer was cut off."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ChatModel(Protocol):
    """Sends one prompt to a model. This is the extension point for other client libraries."""

    async def complete(self, endpoint: Endpoint, key: str | None, model: str, prompt: Prompt) -> LlmCompletion:
        """Send ``prompt`` to ``model`` and return the completion.

        Raises TimeoutError, JudgeOverloadedError if a rate limit is reached, JudgeUnavailableError if the endpoint
        cannot be reached, and JudgeError otherwise. No error message contains a key or text from a request.
        """
        ...

    async def start(self) -> None:
        """Make preparations that would otherwise slow down the first call. Idempotent."""
        ...

    async def aclose(self) -> None: ...


class OpenAiChatModel:
    """A ``ChatModel`` with one ``AsyncOpenAI`` client per endpoint and key. ``start`` or the first call imports the
    library.

    After a lost connection or a 5xx response, the request is retried once. If a service rejects the parameters of a
    request, simpler ones are tried, and later requests to the service start with those that it accepted.

    Args:
        timeout_s: time limit per attempt.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._clients: dict[tuple[Endpoint, str | None], AsyncOpenAI] = {}
        self._accepted: dict[tuple[str, str], int] = {}

    async def complete(self, endpoint: Endpoint, key: str | None, model: str, prompt: Prompt) -> LlmCompletion:
        openai = await asyncio.to_thread(_library)
        client = self._client(endpoint, key)
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        service, variants = (endpoint.name, model), _variants(model, prompt)
        place = self._accepted.get(service, 0)
        try:
            while True:
                try:
                    completion = await _ask(client, model, messages, variants[place])
                except (openai.BadRequestError, openai.UnprocessableEntityError):
                    place += 1
                    if place == len(variants):
                        raise
                else:
                    self._accepted[service] = place
                    return completion
        except openai.APITimeoutError:
            raise TimeoutError from None
        except openai.RateLimitError:
            raise JudgeOverloadedError(f"{endpoint.name}: rate limit reached") from None
        except openai.APIStatusError as error:
            raise JudgeError(f"{endpoint.name} returned HTTP {error.status_code}") from None
        except openai.APIConnectionError:
            raise JudgeUnavailableError(f"cannot reach {endpoint.name}") from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError, LookupError) as error:
            # The format of completions differs between services.
            raise JudgeError(f"{endpoint.name}: no completion ({type(error).__name__})") from None

    async def start(self) -> None:
        await asyncio.to_thread(_library)

    async def aclose(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    def _client(self, endpoint: Endpoint, key: str | None) -> "AsyncOpenAI":
        client = self._clients.get((endpoint, key))
        if client is None:
            client = self._clients[endpoint, key] = _connect(endpoint, key, self._timeout_s)
        return client


def _library() -> Any:
    import openai

    return openai


def _connect(endpoint: Endpoint, key: str | None, timeout_s: float) -> "AsyncOpenAI":
    from openai import AsyncAzureOpenAI, AsyncOpenAI

    headers = dict(endpoint.headers)
    if endpoint.api_version is not None:
        return AsyncAzureOpenAI(
            base_url=endpoint.base_url.removesuffix("/openai") + "/openai",
            api_version=endpoint.api_version,
            api_key=key or _NO_KEY,
            default_headers=headers,
            timeout=timeout_s,
            max_retries=1,
        )
    return AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=key or _NO_KEY,
        default_headers=headers,
        timeout=timeout_s,
        max_retries=1,
    )


def _variants(model: str, prompt: Prompt) -> tuple[Mapping[str, Any], ...]:
    """Return the parameters for a request, from the most specific to the simplest. All of them limit the answer's
    length. The second set leaves room for reasoning, because the model may be a reasoning model although its name
    doesn't show it. The last set is for older APIs and small context windows."""
    schema = {"name": prompt.name, "strict": True, "schema": prompt.schema}
    with_schema: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": schema}}
    with_thoughts = {"max_completion_tokens": prompt.max_tokens + _REASONING_TOKENS}
    if _REASONING_MODELS.match(model):
        first = with_schema | with_thoughts
    else:
        first = with_schema | {"max_completion_tokens": prompt.max_tokens, "temperature": 0}
    return first, with_thoughts, {"max_tokens": prompt.max_tokens}


async def _ask(client: Any, model: str, messages: Any, options: Mapping[str, Any]) -> LlmCompletion:
    answer = await client.chat.completions.create(model=model, messages=messages, **options)
    usage = answer.usage
    choice = answer.choices[0]
    content = choice.message.content
    readable = isinstance(content, str) and choice.finish_reason == _COMPLETE and not choice.message.refusal
    return LlmCompletion(
        text=content if readable else "",
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def _count(usage: Any, name: str) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and 0 <= value <= _MAX_TOKENS else 0
