"""The request to every client and the output for its user, in a common format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PLANS = "The basic plan costs 9 euros a month."
SUPPORT = "Support answers within two days."
LIE = "The basic plan includes a free boat."
ABSTENTION = "Please ask our staff."
PROMPT = "What does it cost?"
MODEL = "test-model-1"

DOCUMENTS: Sequence[Mapping[str, Any]] = (
    {
        "id": "plans",
        "text": PLANS,
        "source": "plans.md",
        "relevance_score": 0.92,
        "age_days": 14,
        "url": "https://docs.test/plans",
    },
    {"id": "support", "text": SUPPORT, "source": "support.md", "relevance_score": 0.81, "age_days": 3},
)
STALE = ({**DOCUMENTS[0], "age_days": 400}, DOCUMENTS[1])
CLOSED = {
    "min_citations": 0,
    "min_grounding_score": 0.0,
    "contradiction_action": "block",
    "abstention_response": ABSTENTION,
}
"""Grounding rules under which only a contradiction blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request, before a library has formatted it."""

    base_url: str
    stream: bool
    documents: Sequence[Mapping[str, Any]] = ()
    agent: str | None = None

    @property
    def extension(self) -> dict[str, Any]:
        """The gateway's own fields of the request."""
        fields: dict[str, Any] = {}
        if self.documents:
            fields["documents"] = [dict(document) for document in self.documents]
        if self.agent is not None:
            fields["grounding"] = {"agent": self.agent}
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error reply, as the library presents it."""

    status: int
    type: str | None
    code: str | None
    param: str | None

    @classmethod
    def of(cls, status: int, error: Mapping[str, Any]) -> "Refusal":
        """From OpenAI's error object."""
        return cls(status=status, type=error.get("type"), code=error.get("code"), param=error.get("param"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the library's user received.

    ``verdict`` is None if the library shows none; ``everything`` is all it returned, as text, to search for text
    that must not be there.
    """

    text: str = ""
    finish: str | None = None
    verdict: str | None = None
    refusal: Refusal | None = None
    everything: str = ""
