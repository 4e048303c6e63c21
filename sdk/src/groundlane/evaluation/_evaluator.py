"""Evaluates cases in a judge process that is started once."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from os import PathLike, fspath
from typing import Any, Literal, Self

from groundlane._errors import GatewayTimeoutError, error_from_response
from groundlane._local.process import Answer, JudgeProcess
from groundlane._types import UnjudgedPart
from groundlane.evaluation._results import EvaluationResult

Case = Mapping[str, Any]
"""A case, as in the input files for ``groundlane eval``: ``{case_id, input, output, context | documents, reference,
grounding}``."""

_AT_ONCE = 64
"""The maximum number of cases sent to the judge process at a time, high enough to keep all cores busy."""


class Evaluator:
    """Evaluates cases with the judge configured by the environment variables. Use it in a ``with`` or ``async with``
    statement.

    ``judge`` is ``cross-encoder``, ``llm``, or ``cascade``, which uses both. ``thresholds`` has the keys ``entailment``
    and ``contradiction``, with values from 0 to 1. ``cache`` is a file that stores verdicts for later runs.
    ``processes`` is the number of judging processes, each of which loads its own model; 0 means one. ``timeout`` is in
    seconds per case.

    Raises ImportError if the package ``groundlane`` is not installed, and JudgeProcessError if the judge process does
    not start. Raises ValueError for an invalid setting or option, or if the judge cannot be loaded.
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
        """Evaluate ``case``. If the judge fails, ``error`` of the result says why. Raises ValueError for a malformed
        case, and GroundlaneError if the judge process fails or exceeds the timeout."""
        answer = self._ask(case)
        try:
            return _read(*answer.result(self._timeout))
        except TimeoutError:
            answer.cancel()
            raise self._late() from None

    async def aevaluate(self, case: Case) -> EvaluationResult:
        """Like ``evaluate``, for asynchronous code."""
        try:
            return _read(*await asyncio.wait_for(asyncio.wrap_future(self._ask(case)), self._timeout))
        except TimeoutError:
            raise self._late() from None

    def _ask(self, case: Case) -> "Future[Answer]":
        return self._process.ask(dict(case))

    def _late(self) -> GatewayTimeoutError:
        return GatewayTimeoutError(f"The judge process returned no result within {self._timeout:g} s.")


async def aevaluate(cases: Iterable[Case], **options: Any) -> Sequence[EvaluationResult]:
    """Evaluate ``cases`` with a new ``Evaluator`` and return the results in the same order. ``options`` are the
    arguments of ``Evaluator``. Raises the same errors."""
    slots = asyncio.Semaphore(_AT_ONCE)
    async with await asyncio.to_thread(Evaluator, **options) as evaluator:

        async def one(case: Case) -> EvaluationResult:
            async with slots:
                return await evaluator.aevaluate(case)

        return await asyncio.gather(*map(one, cases))


def evaluate(cases: Iterable[Case], **options: Any) -> Sequence[EvaluationResult]:
    """Like ``aevaluate``, for code outside an event loop."""
    return asyncio.run(aevaluate(cases, **options))


def check_grounded(
    evaluator: Evaluator,
    output: str,
    documents: str | Sequence[str | Mapping[str, Any]],
    *,
    question: str | None = None,
    score: float = 1.0,
) -> None:
    """Assert that ``documents`` support at least the share ``score`` (0 to 1) of the claims in ``output``. The failure
    message lists the unsupported claims. An output without claims passes. Regardless of its score, an output fails if
    it has no documents, or if any part of it could not be judged. ``question`` is the user's message that the output
    answers. If it is missing or blank, an output such as "Yes." counts as unsupported, because it isn't known what it
    answers.

    Raises AssertionError on failure, and ValueError for malformed documents.
    """
    __tracebackhide__ = True
    given = [documents] if isinstance(documents, str) else list(documents)
    known = question if question and question.strip() else None
    result = evaluator.evaluate({"input": known, "output": output, "documents": given})
    if result.error is not None:
        raise AssertionError(f"the output could not be judged: {result.error}")
    if result.skipped == "no_context":
        raise AssertionError("the output has no documents to check it against")
    if result.score is not None and result.score < score:
        raise AssertionError(_explained(result, score))
    if result.unjudged:
        raise AssertionError("\n".join(["a part of the output was not judged:", *_quoted(output, result.unjudged)]))


def _quoted(output: str, unjudged: Sequence[UnjudgedPart]) -> list[str]:
    parts = ((part.kind, output[part.span.start : part.span.end] if part.span else "") for part in unjudged)
    return [f"  {kind}: {text:.200}" for kind, text in parts]


def _explained(result: EvaluationResult, score: float) -> str:
    lines = [f"{sum(claim.accepted for claim in result.claims)} of {len(result.claims)} claims are supported"]
    lines[0] += f" (score {result.score:.2f}, expected at least {score:.2f}):"
    for claim in result.claims:
        if not claim.accepted:
            confidence = "not judged" if claim.confidence is None else f"{claim.confidence:.2f}"
            lines.append(f"  {claim.label}, {confidence}: {claim.text}")
            if claim.passage is not None:
                lines.append(f"    nearest passage, in {claim.passage.document_id!r}: {claim.passage.content:.200}")
    return "\n".join(lines)


def _read(status: int, body: Mapping[str, Any]) -> EvaluationResult:
    if status == 400:
        raise ValueError(body["error"]["message"])
    if status >= 400:
        raise error_from_response(status, body)
    return EvaluationResult.read(body)
