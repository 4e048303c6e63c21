"""The services of the SDK's judge process: text checks and evaluations of cases."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, Self

from app.errors import InvalidRequestError
from app.evaluation.cases.case import CaseError, read_case
from app.evaluation.cases.case_result import to_json
from app.evaluation.judging.evaluator import Evaluator, open_evaluator
from app.settings import Settings, SettingsError
from app.text_checks.standalone import StandaloneChecks
from judges.label_thresholds import Thresholds

Answer = tuple[int, dict[str, Any]]
"""An HTTP status and the corresponding JSON body."""


class Service(Protocol):
    async def answer(self, request: Mapping[str, Any]) -> Answer: ...


class Evaluations:
    """Evaluates cases with ``evaluator``. A case is given as a record of a case file. Use it as an async context
    manager."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._slots = asyncio.Semaphore(evaluator.at_once)

    async def __aenter__(self) -> Self:
        """Load the judge. Raises JudgeMissingError."""
        await self._evaluator.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._evaluator.aclose()

    async def answer(self, request: Mapping[str, Any]) -> Answer:
        """Evaluate the case in ``request``, and return its result as it appears in a result file. Raises CacheError."""
        try:
            case = read_case(request)
        except CaseError as error:
            return HTTPStatus.BAD_REQUEST, InvalidRequestError(str(error)).body()
        async with self._slots:
            result = await self._evaluator.evaluate(case)
        return HTTPStatus.OK, to_json(result)


def open_service(settings: Settings, options: Mapping[str, Any]) -> AbstractAsyncContextManager[Service]:
    """Open the service that the parent process asks for: ``{"service": "check"}``, or ``{"service": "evaluate"}`` with
    the ``judge``, ``thresholds``, ``cache`` and ``processes`` of ``open_evaluator``.

    Raises SettingsError, CacheError, or ValueError for an invalid option.
    """
    if options["service"] == "check":
        return StandaloneChecks.open(settings)
    thresholds, cache = options.get("thresholds"), options.get("cache")
    return Evaluations(
        open_evaluator(
            settings,
            judge=options.get("judge", "cross-encoder"),
            thresholds=None if thresholds is None else _thresholds(thresholds),
            cache=None if cache is None else Path(cache),
            processes=options.get("processes", 0),
        )
    )


def _thresholds(given: Mapping[str, Any]) -> Thresholds:
    try:
        return Thresholds(**given)
    except TypeError:
        raise SettingsError(f"thresholds: expected entailment and contradiction, not {', '.join(given)}") from None
