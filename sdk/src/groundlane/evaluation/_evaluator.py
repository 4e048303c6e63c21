"""Cases to results, by a judge process that is started once."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from os import PathLike, fspath
from typing import Any, Literal, Self

from groundlane._errors import GatewayTimeoutError, error_from_response
from groundlane._local.process import Answer, JudgeProcess
from groundlane.evaluation._results import EvaluationResult

Case = Mapping[str, Any]
"""``{case_id, input, output, context | documents, reference, grounding}``, as in the files of ``groundlane eval``."""

_AT_ONCE = 64
"""Cases sent to the judge process ahead of their results: enough for all of its cores."""


class Evaluator:
    """Evaluates cases with the judge of the environment's settings. Use it as a context manager, of either kind.

    ``judge`` is ``cross-encoder``, ``llm``, or ``cascade`` for both. ``thresholds`` are ``entailment`` and
    ``contradiction``, 0 to 1. ``cache`` is a file that keeps verdicts for later. ``processes`` is how many processes
    judge, each with a model of its own in memory; 0 for one. ``timeout`` is in seconds, for each case.

    Raises ImportError without the package ``groundlane``, ValueError for a bad setting or option and for a judge that
    cannot be loaded, JudgeProcessError if the judge process does not start.
    """

    def __init__(
        self,
        *,
        judge: Literal["cross-encoder", "llm", "cascade"] = "cross-encoder",
        thresholds: Mapping[str, float] | None = None,
        cache: str | PathLike[str] | None = None,
        processes: int = 0,
        timeout: float = 600.0,
    ) -> None:
        self._timeout = timeout
        self._process = JudgeProcess(
            {
                "service": "evaluate",
                "judge": judge,
                "thresholds": None if thresholds is None else dict(thresholds),
                "cache": None if cache is None else fspath(cache),
                "processes": processes,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the judge process."""
        self._process.close()

    def evaluate(self, case: Case) -> EvaluationResult:
        """The result of ``case``; if the judge fails, the result says so. Raises ValueError for a malformed case,
        GroundlaneError if the judge process fails or is late."""
        answer = self._ask(case)
        try:
            return _read(*answer.result(self._timeout))
        except TimeoutError:
            answer.cancel()
            raise self._late() from None

    async def aevaluate(self, case: Case) -> EvaluationResult:
        """``evaluate`` for asynchronous code."""
        try:
            return _read(*await asyncio.wait_for(asyncio.wrap_future(self._ask(case)), self._timeout))
        except TimeoutError:
            raise self._late() from None

    def _ask(self, case: Case) -> "Future[Answer]":
        return self._process.ask(dict(case))

    def _late(self) -> GatewayTimeoutError:
        return GatewayTimeoutError(f"The judge process gave no result within {self._timeout:g} s.")


async def aevaluate(cases: Iterable[Case], **options: Any) -> Sequence[EvaluationResult]:
    """The results of ``cases``, in their order. ``options`` and errors are those of ``Evaluator``, which is started and
    ended for them."""
    slots = asyncio.Semaphore(_AT_ONCE)
    async with await asyncio.to_thread(Evaluator, **options) as evaluator:

        async def one(case: Case) -> EvaluationResult:
            async with slots:
                return await evaluator.aevaluate(case)

        return await asyncio.gather(*map(one, cases))


def evaluate(cases: Iterable[Case], **options: Any) -> Sequence[EvaluationResult]:
    """``aevaluate`` where no event loop runs."""
    return asyncio.run(aevaluate(cases, **options))


def check_grounded(
    evaluator: Evaluator, output: str, documents: str | Sequence[str | Mapping[str, Any]], *, score: float = 1.0
) -> None:
    """Fail with the claims of ``output`` that ``documents`` do not support, if fewer than ``score`` (0 to 1) of them
    are supported or the output could not be judged. An output without claims passes; one without documents fails.

    Raises AssertionError, or ValueError for malformed documents.
    """
    __tracebackhide__ = True
    given = [documents] if isinstance(documents, str) else list(documents)
    result = evaluator.evaluate({"output": output, "documents": given})
    if result.error is not None:
        raise AssertionError(f"the output could not be judged: {result.error}")
    if result.skipped == "no_context":
        raise AssertionError("no documents to ground the output in")
    if result.score is not None and result.score < score:
        raise AssertionError(_explained(result, score))


def _explained(result: EvaluationResult, score: float) -> str:
    lines = [f"{sum(claim.accepted for claim in result.claims)} of {len(result.claims)} claims are supported"]
    lines[0] += f" (score {result.score:.2f}, wanted {score:.2f}):"
    for claim in result.claims:
        if not claim.accepted:
            lines.append(f"  {claim.label}, {claim.confidence:.2f}: {claim.text}")
            if claim.passage is not None:
                lines.append(f"    nearest passage, of {claim.passage.document_id!r}: {claim.passage.content:.200}")
    return "\n".join(lines)


def _read(status: int, body: Mapping[str, Any]) -> EvaluationResult:
    if status == 400:
        raise ValueError(body["error"]["message"])
    if status >= 400:
        raise error_from_response(status, body)
    return EvaluationResult.read(body)
