"""Resolves a model name to the endpoint that serves it, and defines the source of API keys."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from judges.protocols import JudgeUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A service with OpenAI's chat completions API.

    ``api_version`` is set for Azure's older API, which requires it and has the model in the URL. If ``needs_key`` is
    set, the service is called only if there is a key.
    """

    name: str
    base_url: str
    api_version: str | None = None
    needs_key: bool = True
    headers: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)


class LlmKeySource(Protocol):
    """Provides API keys. It is queried for every call, so keys can be added, changed or removed at run time."""

    def key(self, name: str) -> str | None:
        """Return the key for the endpoint ``name``, or None. Must not block."""
        ...


PROVIDERS: Mapping[str, Endpoint] = MappingProxyType(
    {
        "openai": Endpoint(name="openai", base_url="https://api.openai.com/v1"),
        "anthropic": Endpoint(name="anthropic", base_url="https://api.anthropic.com/v1"),
        "groq": Endpoint(name="groq", base_url="https://api.groq.com/openai/v1"),
    }
)
"""Services that can be identified from a model's name alone."""

_BY_NAME = (
    (re.compile(r"gpt-|chatgpt-|o\d"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"llama-|mixtral-"), "groq"),
)


class UnknownLlmError(JudgeUnavailableError):
    """No known endpoint serves the model."""


def resolve(model: str, endpoints: Mapping[str, Endpoint]) -> tuple[Endpoint, str]:
    """Return the endpoint for ``model``, and the model's name there.

    ``endpoint/model`` names the endpoint; otherwise, the prefix determines it: ``gpt-``, ``chatgpt-``, ``o1`` etc.,
    ``claude-``, ``llama-`` or ``mixtral-``. Raises UnknownLlmError.
    """
    name, slash, rest = model.partition("/")
    if slash and rest and name in endpoints:
        return endpoints[name], rest
    for beginning, provider in _BY_NAME:
        if beginning.match(model) and provider in endpoints:
            return endpoints[provider], model
    raise UnknownLlmError(f"cannot determine the provider of the model {model!r}")
