"""The protocols and errors of judging."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from judges.llm_types import LlmCall, LlmVerdict
from judges.types import Claim, Evidence, Probabilities, Sentence


class JudgeError(Exception):
    """A judge failed to answer. This is the base class of the errors below. A user's request doesn't fail because of
    them."""


class JudgeUnavailableError(JudgeError):
    """The back end cannot be loaded or reached."""


class JudgeUnreachableError(JudgeUnavailableError):
    """A remote judge does not answer. This may be temporary, so a retry may succeed."""


class JudgeOverloadedError(JudgeError):
    """The queue is full. The claim is not judged, because the wait would be unbounded."""


class SentenceSplitter(Protocol):
    """Splits text that arrives in deltas. The sentences do not depend on where the deltas begin and end, and their
    spans cover the text without overlapping."""

    def push(self, text: str) -> Sequence[Sentence]:
        """Add a delta. Return the sentences that are now complete."""
        ...

    def pause(self) -> Sequence[Sentence]:
        """End the current sentence here and return the text that has arrived. More text may follow."""
        ...

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """End the text and return its remaining sentences. ``truncated`` means that the text was cut off, so it may end
        in a fragment."""
        ...

    def restart(self, index: int) -> None:
        """Forget the sentence ``index`` and all sentences after it, because other text replaces them. Called after
        ``pause``; sentence indexes and positions continue."""
        ...


class ClaimExtractor(Protocol):
    """Finds the claims in a sentence."""

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims in ``sentence``, if any.

        ``previous`` holds the sentences before it, in order. The first of them may be the question that the reply
        answers, with the index -1.
        """
        ...


class PairScorer(Protocol):
    """A cross-encoder: reads a claim together with evidence and decides whether the claim follows. This is the
    extension point for back ends. Wrappers add batching and caching.

    A scorer may also have these attributes:

    - ``fault`` (str, or None): why it is unavailable or only partly available after ``start``.
    - ``fuses`` (bool): whether a claim with several windows (``EvidenceWindows``) costs barely more than a claim with
      one.
    - ``languages`` (set of two-letter codes, or None): the languages that it supports. Defaults to all.
    - ``concurrency`` (int): number of ``score`` calls that it runs in parallel. Defaults to 1.
    - ``batch_pairs`` (int): maximum number of pairs that a batcher passes to ``score`` at once. Defaults to 32.
    - ``batch_tokens`` (int): maximum number of tokens (including padding) that a batcher passes to ``score`` at once.
      Defaults to 1,024. It may be known only after ``start``.
    - ``threshold`` (float, or None): the P(entailed) at which its authors call a claim supported. With it, the
      probabilities are used unchanged, except for corrections by exact features. Without it, they are calibrated like
      the embedded model's.
    - ``stage_thresholds`` (tuple, instead of ``threshold``): the thresholds of a cascade's judges.
      ``Probabilities.stage`` says which judge gave a score.
    - ``paid`` (bool): whether its calls are recorded in ``judges.call_recording``. If so, a batcher doesn't mix pairs
      from different requests.
    - ``tokenizer_json`` (bytes, or None): the tokenizer that it counts tokens with, once started.
    - ``windowing`` (``Windowing``, or None): how evidence is cut for it. Defaults to the checker's windowing.
    - ``stalled_s`` (float): age in seconds of its oldest pending request.
    """

    @property
    def name(self) -> str:
        """The name and version in reports and cache keys."""
        ...

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens in evidence and claim together, excluding special tokens."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return the length of ``text`` in the model's tokens, excluding special tokens."""
        ...

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        """Score (evidence, claim) pairs. Return one result for each pair, in order. Never blocks the event loop.

        Raises JudgeUnavailableError or JudgeOverloadedError.
        """
        ...

    async def start(self) -> None:
        """Load the model. Idempotent. Raises JudgeUnavailableError."""
        ...

    async def aclose(self) -> None: ...


class LlmClaimJudge(Protocol):
    """An LLM that reads a claim together with passages. Used if the cross-encoder cannot decide."""

    @property
    def name(self) -> str:
        """The name in reports."""
        ...

    @property
    def ready(self) -> bool:
        """Whether the LLM can be called now. False if, for example, there is no key."""
        ...

    async def judge(
        self, claim: str, context: str, passages: Sequence[Evidence], record: Callable[[LlmCall], None]
    ) -> LlmVerdict:
        """Return the verdict on ``claim`` according to ``passages``, which are ordered most relevant first. ``context``
        is the text before the claim.

        ``record`` is called with each call to the LLM, including failed ones. Raises JudgeError.
        """
        ...

    async def decompose(self, sentence: str, context: str, record: Callable[[LlmCall], None]) -> Sequence[str]:
        """Return the atomic claims of ``sentence``, each understandable by itself. Raises JudgeError."""
        ...


@runtime_checkable
class EvidenceCache(Protocol):
    """Implemented by a ``PairScorer`` that caches its computations for evidence."""

    async def prefill(self, texts: Sequence[str]) -> None:
        """Process evidence before a claim needs it. Raises JudgeError."""
        ...
