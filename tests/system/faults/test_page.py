"""The page on faults says what the tests verify."""

import re
from pathlib import Path

import pytest

from tests.system.faults.matrix import DATABASE_FAULTS, JUDGE_FAULTS, PROCESS_FAULTS, Fault
from tests.system.faults.page import PAGE, tables, written


def test_page_has_every_tested_table() -> None:
    """``python -m tests.system.faults.page`` writes them."""
    page = PAGE.read_text("utf-8")
    assert set(re.findall(r"<!-- table: (\w+) -->", page)) == set(tables())
    assert written(page) == page


@pytest.mark.parametrize("fault", [*DATABASE_FAULTS, *JUDGE_FAULTS, *PROCESS_FAULTS], ids=lambda fault: fault.id)
def test_test_of_a_fault_exists(fault: Fault) -> None:
    file, _, function = fault.test.partition("::")
    assert f"def {function}(" in (Path(__file__).parent / file).read_text("utf-8")


@pytest.mark.parametrize("fault", [*DATABASE_FAULTS, *JUDGE_FAULTS, *PROCESS_FAULTS], ids=lambda fault: fault.id)
def test_documented_log_events_are_those_of_the_gateway(fault: Fault) -> None:
    """Names of log lines, metrics and settings exist in the sources."""
    root = Path(__file__).parents[3]
    sources = "".join(path.read_text("utf-8") for name in ("app", "judges") for path in (root / name).rglob("*.py"))
    for name in re.findall(r"`((?:event|events|upstream|clock|judge)_\w+)`", fault.client + fault.seen):
        assert f'"{name}"' in sources, name
    for name in re.findall(r"groundlane_(\w+?)(?:_total)?[`{]", fault.seen):
        assert f'"{name}"' in sources, name
