"""Batches the pairs of concurrent requests."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from judges.call_recording import current_recorders, merged, recording
from judges.cross_encoder.scorer_wrapper import ScorerWrapper
from judges.protocols import JudgeError, JudgeOverloadedError, JudgeUnavailableError, PairScorer
from judges.types import Probabilities

_BATCH_TOKENS: Final = 1024


class _Call:
    """A call to ``score``: its results so far, the future that the caller awaits, and the recorders of its costs."""

    __slots__ = ("done", "missing", "recorders", "results")

    def __init__(self, size: int) -> None:
        self.results: list[Probabilities | None] = [None] * size
        self.missing = size
        self.recorders = current_recorders()
        self.done: asyncio.Future[Sequence[Probabilities]] = asyncio.get_running_loop().create_future()

    def deliver(self, position: int, result: Probabilities) -> None:
        self.results[position] = result
        self.missing -= 1
        if self.missing == 0 and not self.done.done():
            self.done.set_result([one for one in self.results if one is not None])

    def fail(self, error: JudgeError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Item(Struct, frozen=True, eq=False):
    call: _Call
    position: int
    pair: tuple[str, str]
    length: int


class BatchingScorer(ScorerWrapper):
    """Scores the pairs of concurrent calls together without delaying any call: the first call is scored at once, and
    pairs that arrive meanwhile form the next batches. Each batch contains the pair that has waited longest and the
    pairs closest to it in length. This keeps padding small and ensures that no pair starves. If the scorer's calls cost
    money, a batch contains pairs of one request only, so that each request is charged for its own calls.

    Args:
        scorer: scores the batches.
        max_batch_pairs: maximum number of pairs in a batch; defaults to the scorer's ``batch_pairs``, or else 32.
        max_batch_tokens: maximum number of tokens in a batch, including padding (number of pairs times the longest
            pair); defaults to the scorer's ``batch_tokens`` once started, or else 1,024. On a CPU, small batches are as
            fast as large ones and need far less memory.
        queue_limit: maximum number of waiting pairs. Beyond it, ``score`` raises JudgeOverloadedError at once.
        workers: maximum number of batches in flight; defaults to the scorer's ``concurrency``, or else one.
    """

    def __init__(
        self,
        scorer: PairScorer,
        *,
        max_batch_pairs: int | None = None,
        max_batch_tokens: int | None = None,
        queue_limit: int = 4096,
        workers: int | None = None,
    ) -> None:
        super().__init__(scorer)
        self._max_pairs = max_batch_pairs or int(getattr(scorer, "batch_pairs", 32))
        self._max_batch_tokens = max_batch_tokens
        self._max_tokens = _BATCH_TOKENS
        self._queue_limit = queue_limit
        self._worker_count = workers or int(getattr(scorer, "concurrency", 1))
        self._waiting: dict[_Item, None] = {}
        self._calls: set[_Call] = set()
        self._wake = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self.batches = 0
        """Number of batches scored so far."""
        self.pairs = 0
        """Number of pairs in the batches scored so far."""
        self.failed = 0
        """Number of pairs in failed batches."""
        self._since: dict[int, float] = {}
        self.overloaded = 0
        """Number of pairs rejected so far because the queue was full."""

    @property
    def queue_depth(self) -> int:
        """Number of waiting pairs that are not yet in a batch."""
        return len(self._waiting)

    @property
    def stalled_s(self) -> float:
        """Seconds since the oldest batch in flight was sent to the scorer, or 0 if no batch is in flight."""
        return asyncio.get_running_loop().time() - min(self._since.values()) if self._since else 0.0

    async def start(self) -> None:
        """Load the model and start the workers. Idempotent. Raises JudgeUnavailableError."""
        await super().start()
        if not self._workers:
            self._max_tokens = self._max_batch_tokens or int(getattr(self._scorer, "batch_tokens", _BATCH_TOKENS))
            loop = asyncio.get_running_loop()
            self._workers = [loop.create_task(self._work()) for _ in range(self._worker_count)]

    async def aclose(self) -> None:
        """Stop. Pending calls raise JudgeUnavailableError."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for call in self._calls:
            call.fail(JudgeUnavailableError("the judge is closed"))
        self._waiting.clear()
        await super().aclose()

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        if not self._workers:
            raise JudgeUnavailableError("the judge is not running")
        if not pairs:
            return []
        if len(self._waiting) + len(pairs) > self._queue_limit:
            self.overloaded += len(pairs)
            raise JudgeOverloadedError(f"{len(self._waiting)} pairs are already waiting (limit {self._queue_limit})")
        count = self.count_tokens
        call = _Call(len(pairs))
        self._calls.add(call)
        for position, pair in enumerate(pairs):
            self._waiting[_Item(call, position, pair, count(pair[0]) + count(pair[1]))] = None
        self._wake.set()
        try:
            return await call.done
        finally:
            self._calls.discard(call)
            if call.missing:
                self._drop(call)

    def _drop(self, call: _Call) -> None:
        for item in [item for item in self._waiting if item.call is call]:
            del self._waiting[item]

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            if batch := self._take():
                await self._run(batch)
            else:
                self._wake.clear()

    def _take(self) -> list[_Item]:
        """Take the oldest pair and the pairs closest to it in length, within the batch limits."""
        if not self._waiting:
            return []
        anchor = next(iter(self._waiting))
        ordered = sorted(self._companions(anchor), key=lambda item: item.length)
        below = ordered.index(anchor)
        above = below + 1
        while above - below < self._max_pairs:
            shorter = ordered[below - 1] if below else None
            longer = ordered[above] if above < len(ordered) else None
            if longer is not None and (above - below + 1) * longer.length > self._max_tokens:
                longer = None
            if longer is not None and (
                shorter is None or longer.length - anchor.length <= anchor.length - shorter.length
            ):
                above += 1
            elif shorter is not None and (above - below + 1) * ordered[above - 1].length <= self._max_tokens:
                below -= 1
            else:
                break
        batch = ordered[below:above]
        for item in batch:
            del self._waiting[item]
        return batch

    def _companions(self, anchor: _Item) -> Iterable[_Item]:
        """Return the waiting pairs that may share a batch with ``anchor``, including ``anchor`` itself."""
        if not self.paid:
            return self._waiting
        return [item for item in self._waiting if item.call.recorders == anchor.call.recorders]

    async def _run(self, batch: list[_Item]) -> None:
        self.batches += 1
        number = self.batches
        self.pairs += len(batch)
        self._since[number] = asyncio.get_running_loop().time()
        try:
            with recording(*merged(item.call.recorders for item in batch)):
                results = await self._scorer.score([item.pair for item in batch])
        except JudgeError as error:
            self._fail(batch, error)
        except Exception as error:
            # A failed batch must not end the worker.
            self._fail(batch, JudgeError(f"{type(error).__name__}: {error}"))
        else:
            for item, result in zip(batch, results, strict=True):
                item.call.deliver(item.position, result)
        finally:
            del self._since[number]

    def _fail(self, batch: list[_Item], error: JudgeError) -> None:
        self.failed += len(batch)
        for call in {item.call for item in batch}:
            call.fail(error)
