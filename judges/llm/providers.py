"""Which service a model belongs to, and with which key it is asked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from judges.protocols import JudgeUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A service that speaks OpenAI's chat completions.

    ``api_version``: it is Azure's older kind, which wants one and has the model in the URL. ``needs_key``: without a
    key it is not asked at all.
    """

    name: str
    base_url: str
    api_version: str | None = None
    needs_key: bool = True
    headers: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)


class KeySource(Protocol):
    """Where keys come from. Asked at every call, so that a key may come, change or go while the process runs."""

    def key(self, name: str) -> str | None:
        """The key of the endpoint called ``name``, from memory; None where there is none."""
        ...


PROVIDERS: Mapping[str, Endpoint] = MappingProxyType(
    {
        "openai": Endpoint(name="openai", base_url="https://api.openai.com/v1"),
        "anthropic": Endpoint(name="anthropic", base_url="https://api.anthropic.com/v1"),
        "groq": Endpoint(name="groq", base_url="https://api.groq.com/openai/v1"),
    }
)
"""The services known by a model's name alone."""

_BY_NAME = (
    (re.compile(r"gpt-|chatgpt-|o\d"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"llama-|mixtral-"), "groq"),
)


class UnknownModelError(JudgeUnavailableError):
    """No endpoint is known to serve the model."""


def resolve(model: str, endpoints: Mapping[str, Endpoint]) -> tuple[Endpoint, str]:
    """The endpoint of ``model`` and the model's name there.

    ``endpoint/model`` names the endpoint; otherwise the beginning of the name tells: ``gpt-`` and ``o1`` and the like,
    ``claude-``, ``llama-`` and ``mixtral-``. Raises UnknownModelError.
    """
    name, slash, rest = model.partition("/")
    if slash and rest and name in endpoints:
        return endpoints[name], rest
    for beginning, provider in _BY_NAME:
        if beginning.match(model) and provider in endpoints:
            return endpoints[provider], model
    raise UnknownModelError(f"no provider is known for the model {model!r}")
