"""Grounding in tests: an assertion, and the pytest plugin that shares one judge among a session's tests.

In a ``conftest.py``: ``pytest_plugins = ["app.evaluation.pytest_plugin"]``. Then ``assert_grounded`` is a fixture.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from app.evaluation.case_result import CaseResult
from app.evaluation.evaluator import GroundingTester


def check_grounded(tester: GroundingTester, output: str, documents: str | Sequence[Any], *, score: float = 1.0) -> None:
    """Fail with the claims that ``documents`` do not support if fewer than ``score`` (0 to 1) of them are supported,
    or if the output could not be judged. An output that claims nothing passes; one without documents fails.

    Raises AssertionError, or CaseError for documents that cannot be read.
    """
    __tracebackhide__ = True
    result = tester.evaluate(output, documents)
    if result.error is not None:
        raise AssertionError(f"the output could not be judged: {result.error}")
    if result.skipped == "no_context":
        raise AssertionError("there are no documents that the output could be grounded in")
    if result.score is not None and result.score < score:
        raise AssertionError(_told(result, score))


@pytest.fixture(scope="session")
def grounding_tester() -> Iterator[GroundingTester]:
    """The judge of the settings in the environment, loaded once a session."""
    with GroundingTester() as tester:
        yield tester


@pytest.fixture
def assert_grounded(grounding_tester: GroundingTester) -> Callable[..., None]:
    """``assert_grounded(output, documents, score=1.0)``: see ``check_grounded``."""
    return partial(check_grounded, grounding_tester)


def _told(result: CaseResult, score: float) -> str:
    lines = [f"{sum(claim.accepted for claim in result.claims)} of {len(result.claims)} claims are supported"]
    lines[0] += f" (score {result.score:.2f}, wanted {score:.2f}):"
    for claim in result.claims:
        if not claim.accepted:
            lines.append(f"  {claim.label.value}, {claim.confidence:.2f}: {claim.text}")
            if claim.passage is not None:
                lines.append(f"    nearest passage, of {claim.passage.document_id!r}: {claim.passage.content:.200}")
    return "\n".join(lines)
