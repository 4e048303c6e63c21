"""The gateway that the documentation's examples call."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.documentation.running import Reader, Stage, stage
from tests.system.e2e.conftest import log

__all__ = ["log"]


@pytest.fixture(scope="session")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("documentation")) as running:
        yield running


@pytest.fixture
def reader(shared_stage: Stage, tmp_path: Path) -> Reader:
    shared_stage.forget()
    return Reader(stage=shared_stage, folder=tmp_path)
