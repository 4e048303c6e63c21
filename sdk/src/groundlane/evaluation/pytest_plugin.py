"""A pytest plugin that asserts that an output is grounded. The whole test session uses one judge.

To use the fixture ``assert_grounded``, add ``pytest_plugins = ["groundlane.evaluation.pytest_plugin"]`` to a
``conftest.py``.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from groundlane.evaluation import Evaluator, check_grounded


@pytest.fixture(scope="session")
def grounding_evaluator() -> Iterator[Evaluator]:
    """The judge configured by the environment variables. It is loaded once per session."""
    with Evaluator() as evaluator:
        yield evaluator


@pytest.fixture
def assert_grounded(grounding_evaluator: Evaluator) -> Callable[..., None]:
    """Return the function ``assert_grounded(output, documents, question=None, score=1.0)``; see ``check_grounded``."""
    return partial(check_grounded, grounding_evaluator)
