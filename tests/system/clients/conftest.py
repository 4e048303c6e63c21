"""The gateway of the end-to-end tests, and the processes in which clients run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.system.clients.workers import Worker
from tests.system.e2e.conftest import gateway, log, shared_gateway

__all__ = ["gateway", "log", "shared_gateway"]


@pytest.fixture(scope="session")
def worker() -> Iterator[Callable[[str, str], Worker]]:
    """One worker per library, with a Python that has it; started on first use."""
    started: dict[tuple[str, str], Worker] = {}
    with ExitStack() as stack:

        def worker(python: str, package: str) -> Worker:
            if (python, package) not in started:
                started[python, package] = stack.enter_context(Worker(python))
            return started[python, package]

        yield worker
