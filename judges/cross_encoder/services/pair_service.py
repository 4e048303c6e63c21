"""The base class of all services. A service builds the request for a pair and parses the response; ``service_scorer``
sends the request.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NoReturn
from urllib.parse import urlsplit

from judges.cross_encoder.judge_spec import split_list
from judges.protocols import JudgeError, JudgeUnavailableError, JudgeUnreachableError
from judges.types import Probabilities

Key = Callable[[], str | None]
"""Returns the service's key, or None. Called for every request, so that a key can be added or changed at any time."""
COMMON_OPTIONS: Final = frozenset({"languages", "price", "concurrency"})
"""Options that every service accepts."""
_MAX_USAGE: Final = 10**9
"""Maximum number of tokens or units for one request; a service that reports more is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A POST request. ``body`` is sent unchanged, because a signature may cover it."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAnswer:
    """A score, and the usage that the service reports: tokens, or the ``units`` that it bills for."""

    score: Probabilities
    units: float = 1.0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class UnreadableAnswerError(JudgeError):
    """The service's response does not match its documentation."""


class NoResponseError(JudgeUnreachableError):
    """The service did not answer in time."""


Fetch = Callable[[ServiceRequest], Awaitable[Any]]
"""Sends a request and returns its JSON. Raises JudgeError."""


class PairService(ABC):
    """One service with its settings. The class attributes come from the service's API reference.

    Args:
        name: the judge's name in reports and messages.
        options: the options in the judge's spec. A missing or invalid option raises a ValueError that says what is
            wrong.
        key: returns the service's key.
        key_help: says where the key comes from.
    """

    OPTIONS: ClassVar[frozenset[str]] = COMMON_OPTIONS
    """The options that the service accepts."""
    max_claim_chars: ClassVar[int]
    """The maximum length of a claim that the service accepts, in characters."""
    max_evidence_chars: ClassVar[int]
    """The maximum total length of evidence that the service accepts, in characters."""
    documented_languages: ClassVar[frozenset[str] | None] = None
    """Two-letter codes of the languages in the service's API reference; None if it lists none."""
    attributes: ClassVar[bool] = False
    """Whether the service reports which of several texts supports a claim. If so, all texts are sent in one request."""

    def __init__(self, name: str, options: Mapping[str, str], key: Key, key_help: str) -> None:
        self.name = name
        """The service's name in reports and cache keys. Services append any settings that affect their scores."""
        self.model = name
        """The model whose price applies to its tokens."""
        self.key_help = key_help
        self.price = _price(name, options.get("price"))
        """US dollars per unit, or None if unknown."""
        self.languages = self.documented_languages
        """Two-letter codes of the languages that the service supports; None if unknown."""
        if (given := options.get("languages")) is not None:
            self.languages = frozenset(split_list(given))
        self._options = options
        self._key_source = key

    @property
    def fault(self) -> str | None:
        """One line that says why the service cannot be called and what to do about it; None if it can be called."""
        return f"{self.name}: no API key; {self.key_help}" if not self._key_source() else None

    @abstractmethod
    async def request(self, evidence: str, claim: str, fetch: Fetch) -> ServiceRequest:
        """Build the request for a pair. Raises JudgeError if there is no key. ``fetch`` is for services that must first
        exchange the key for a token."""

    @abstractmethod
    def parse(self, answer: Any, evidence: str) -> ServiceAnswer:
        """Parse the JSON of a successful response. Raises UnreadableAnswerError."""

    def _key(self) -> str:
        key = self._key_source()
        if not key:
            raise JudgeUnavailableError(f"{self.name}: no API key; {self.key_help}")
        return key

    def _option(self, name: str, meaning: str) -> str:
        """Return the required option ``name``. Raises ValueError if it is missing."""
        value = self._options.get(name, "").strip()
        if not value:
            raise ValueError(f"judge {self.name}: needs the option {name!r}, {meaning}")
        return value

    def _base_url(self, name: str, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            self._invalid(name, "a URL such as https://service.example.com", value)
        return value.rstrip("/")

    def _invalid(self, name: str, expected: str, value: str) -> NoReturn:
        raise ValueError(f"judge {self.name}: {name}: expected {expected}, got {value!r}")


def probability(value: Any, what: str) -> float:
    """Return ``value`` if it is a number from 0 to 1; otherwise raise an UnreadableAnswerError that mentions
    ``what``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise UnreadableAnswerError(f"{what} is not a number from 0 to 1")
    return float(value)


def usage_count(usage: Any, name: str, *, default: int = 0) -> int:
    """Return the count ``name`` in the usage that a service reports, or ``default`` if it is missing or invalid."""
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and 0 <= value <= _MAX_USAGE else default


def entailment(entailed: float) -> Probabilities:
    """Build the probabilities for a service that does not distinguish contradiction from lack of support."""
    return Probabilities(entailed, 1.0 - entailed, 0.0)


def one_line(text: str) -> str:
    """Return ``text`` on a single line, so that it cannot imitate the next field of a prompt."""
    return " ".join(text.split())


def _price(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise ValueError(f"judge {name}: price: expected US dollars per unit, got {text!r}")
    return value
