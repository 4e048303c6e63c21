"""The protocols of judging, and its errors."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from judges.types import Claim, Evidence, LlmCall, Opinion, Probabilities, Sentence


class JudgeError(Exception):
    """A judge could not answer. The base of those below; none of them ever fails a user's request."""


class JudgeUnavailableError(JudgeError):
    """The back end could not be loaded or reached."""


class JudgeUnreachableError(JudgeUnavailableError):
    """A judge that is served elsewhere does not answer, or not yet: that may pass, and it can be asked again."""


class JudgeOverloadedError(JudgeError):
    """The queue is full; the claim goes unjudged rather than wait without bound."""


class SentenceSplitter(Protocol):
    """Splits text that arrives in deltas. However it is cut, the sentences are the same and their spans tile it."""

    def push(self, text: str) -> Sequence[Sentence]:
        """Take a delta; return the sentences whose end is now certain."""
        ...

    def pause(self) -> Sequence[Sentence]:
        """No sentence runs on behind this point; return the rest of what has arrived. The text may go on."""
        ...

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """The text has ended; return the rest. ``truncated``: it was cut off, so it may end in a fragment."""
        ...


class ClaimExtractor(Protocol):
    """Finds the claims of a sentence."""

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims of ``sentence``, none if it makes none. ``previous``: the sentences before it, in order;
        the first may be the question that they answer, with the index -1."""
        ...


class PairScorer(Protocol):
    """A cross-encoder: reads a claim against a text and says whether it follows. The extension point for back ends, and
    what the batching and caching wrappers wrap."""

    @property
    def name(self) -> str:
        """Name and version, as it stands in reports and in cache keys."""
        ...

    @property
    def max_tokens(self) -> int:
        """How many tokens evidence and claim may have together."""
        ...

    def count_tokens(self, text: str) -> int:
        """Length of ``text`` in the model's own tokens, special tokens left out."""
        ...

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        """Score (evidence, claim) pairs, in order. Never blocks the event loop.

        Raises JudgeUnavailableError or JudgeOverloadedError.
        """
        ...

    async def start(self) -> None:
        """Load the model. Idempotent. Raises JudgeUnavailableError."""
        ...

    async def aclose(self) -> None: ...


class ClaimJudge(Protocol):
    """An LLM that reads a claim against passages; asked where the cross-encoder comes to no verdict."""

    @property
    def name(self) -> str:
        """As it stands in reports."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it can be asked now: it has a key."""
        ...

    async def judge(
        self, claim: str, context: str, passages: Sequence[Evidence], record: Callable[[LlmCall], None]
    ) -> Opinion:
        """Say what ``passages``, the most relevant first, hold of ``claim``; ``context`` is what it points back to.

        ``record`` is told of each call made, a failed one too. Raises JudgeError.
        """
        ...

    async def decompose(self, sentence: str, context: str, record: Callable[[LlmCall], None]) -> Sequence[str]:
        """The atomic claims of ``sentence``, each to be understood by itself. Raises JudgeError."""
        ...


@runtime_checkable
class EvidenceReader(Protocol):
    """What a scorer also is if it keeps what it has read of evidence."""

    async def read(self, texts: Sequence[str]) -> None:
        """Read texts ahead of the claims about them, while there is time. Raises JudgeError."""
        ...


async def read_ahead(scorer: object, texts: Sequence[str]) -> None:
    """Let ``scorer`` read ``texts`` if it is one that keeps what it has read. Raises JudgeError."""
    if isinstance(scorer, EvidenceReader):
        await scorer.read(texts)
