"""The protocols of judging, and its errors."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from judges.types import Claim, Evidence, LlmCall, LlmVerdict, Probabilities, Sentence


class JudgeError(Exception):
    """A judge failed to answer. The base of the errors below; none of them fails a user's request."""


class JudgeUnavailableError(JudgeError):
    """The back end cannot be loaded or reached."""


class JudgeUnreachableError(JudgeUnavailableError):
    """A remote judge does not answer. This may be temporary, so it is worth another try."""


class JudgeOverloadedError(JudgeError):
    """The queue is full. The claim is not judged, since the wait would have no bound."""


class SentenceSplitter(Protocol):
    """Splits text that arrives in deltas. The sentences do not depend on where the deltas are cut, and their spans tile
    the text."""

    def push(self, text: str) -> Sequence[Sentence]:
        """Take a delta; return the sentences whose end is now certain."""
        ...

    def pause(self) -> Sequence[Sentence]:
        """End the current sentence here; return the rest of what has arrived. More text may follow."""
        ...

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """The text has ended; return the rest. ``truncated``: it was cut off, so it may end in a fragment."""
        ...


class ClaimExtractor(Protocol):
    """Finds the claims of a sentence."""

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """The claims of ``sentence``; empty if it makes none.

        ``previous`` are the sentences before it, in order. The first may be the question that the reply answers, with
        the index -1.
        """
        ...


class PairScorer(Protocol):
    """A cross-encoder: reads a claim together with evidence and says whether it follows. This is the extension point
    for back ends, and what the batching and caching wrappers wrap.

    A scorer may also have these attributes:

    - ``fuses`` (bool): it judges a claim against ``EvidenceWindows`` for little more than the cost of one window.
    - ``languages`` (set of two-letter codes, or None): the languages that it knows; default all.
    - ``concurrency`` (int): calls of ``score`` that it runs in parallel; default 1.
    - ``stalled_s`` (float): seconds since its oldest unanswered request.
    """

    @property
    def name(self) -> str:
        """Name and version, as in reports and cache keys."""
        ...

    @property
    def max_tokens(self) -> int:
        """The most tokens that evidence and claim may have together, without special tokens."""
        ...

    def count_tokens(self, text: str) -> int:
        """The length of ``text`` in the model's tokens, without special tokens."""
        ...

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        """Score (evidence, claim) pairs; one result for each, in order. Never blocks the event loop.

        Raises JudgeUnavailableError or JudgeOverloadedError.
        """
        ...

    async def start(self) -> None:
        """Load the model. Idempotent. Raises JudgeUnavailableError."""
        ...

    async def aclose(self) -> None: ...


class LlmClaimJudge(Protocol):
    """An LLM that reads a claim together with passages; it is asked where the cross-encoder cannot decide."""

    @property
    def name(self) -> str:
        """The name in reports."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it can be asked now, for instance because it has a key."""
        ...

    async def judge(
        self, claim: str, context: str, passages: Sequence[Evidence], record: Callable[[LlmCall], None]
    ) -> LlmVerdict:
        """The verdict on ``claim`` by ``passages``, which come most relevant first; ``context`` precedes the claim.

        ``record`` is called with each call to the LLM, including failed ones. Raises JudgeError.
        """
        ...

    async def decompose(self, sentence: str, context: str, record: Callable[[LlmCall], None]) -> Sequence[str]:
        """The atomic claims of ``sentence``, each understandable by itself. Raises JudgeError."""
        ...


@runtime_checkable
class EvidenceCache(Protocol):
    """Implemented by a ``PairScorer`` that keeps what it has computed for evidence."""

    async def prefill(self, texts: Sequence[str]) -> None:
        """Process evidence before a claim asks for it. Raises JudgeError."""
        ...


async def prefill(scorer: object, texts: Sequence[str]) -> None:
    """Let ``scorer`` process ``texts`` ahead of claims, if it is an ``EvidenceCache``. Raises JudgeError."""
    if isinstance(scorer, EvidenceCache):
        await scorer.prefill(texts)
