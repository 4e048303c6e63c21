"""A pytest plugin that asserts that an output is grounded. One judge serves the whole test session.

``pytest_plugins = ["groundlane.evaluation.pytest_plugin"]`` in a ``conftest.py`` makes ``assert_grounded`` a fixture.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from groundlane.evaluation import Evaluator, check_grounded


@pytest.fixture(scope="session")
def grounding_evaluator() -> Iterator[Evaluator]:
    """The judge configured by the environment variables, loaded once per session."""
    with Evaluator() as evaluator:
        yield evaluator


@pytest.fixture
def assert_grounded(grounding_evaluator: Evaluator) -> Callable[..., None]:
    """``assert_grounded(output, documents, score=1.0)``: see ``check_grounded``."""
    return partial(check_grounded, grounding_evaluator)
