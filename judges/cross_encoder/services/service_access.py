"""The application's keys, time limits and cost callbacks, for use by remote judges."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx

from judges.llm_types import LlmCall

KeySource = Callable[[str], str | None]
"""Returns the key with the given name, or None. Must not block."""
Cost = Callable[[str, int, int], float | None]
"""Returns the cost of a call in US dollars, given the model and the numbers of prompt and completion tokens; None if
unknown."""

HTTP_KEY: Final = "judge"
"""The name of the key for judge servers and generative models, which are often self-hosted."""

_TIMEOUT_S: Final = 30.0


def _no_key(_name: str) -> str | None:
    return None


def _no_cost(_model: str, _prompt_tokens: int, _completion_tokens: int) -> float | None:
    return None


def _ignore(_call: LlmCall) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccess:
    """``keys`` is called for every request, so that a key can be added or changed at any time; ``timeout_s`` is the
    time limit per request, including retries and the pauses that the service asks for. ``cost`` returns the price of
    tokens, and ``observe`` is called with every request. ``transport`` replaces the network in tests.
    """

    keys: KeySource = _no_key
    timeout_s: float = _TIMEOUT_S
    cost: Cost = _no_cost
    observe: Callable[[LlmCall], None] = _ignore
    transport: httpx.AsyncBaseTransport | None = None
