"""The tables of ``docs/operations/faults.md``. ``python -m tests.system.faults.page`` writes them into it."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.system.faults.matrix import (
    CONNECTION_FAULTS,
    DATABASE_FAULTS,
    JUDGE_FAULTS,
    PROCESS_FAULTS,
    UPSTREAM_FAULTS,
    Fault,
)

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "faults.md"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _upstream() -> str:
    rows = []
    for fault in UPSTREAM_FAULTS:
        events = fault.whole.kept
        if fault.stream.kept != events:
            events += f"; stream: {fault.stream.kept}"
        log = "`upstream_failed`" if fault.logged else "–"
        rows.append([fault.about, fault.whole.client, fault.stream.client, events, log, f"`{fault.id}`"])
    return _table(["the upstream …", "non-streamed reply", "streamed reply", "event", "log", "test"], rows)


def _connection() -> str:
    rows = [[fault.about, f"`{fault.detail}`", f"`{fault.id}`"] for fault in CONNECTION_FAULTS]
    return _table(["fault", "`detail` in the log", "test"], rows)


def _others(faults: Sequence[Fault]) -> str:
    rows = [
        [fault.about, fault.client, fault.seen, fault.kept, f"`{fault.test.rpartition('::')[2]}`"] for fault in faults
    ]
    return _table(["fault", "what the client gets", "what you can observe", "what is recorded", "test"], rows)


def tables() -> dict[str, str]:
    """Every table by its name in the page."""
    return {
        "upstream": _upstream(),
        "connection": _connection(),
        "database": _others(DATABASE_FAULTS),
        "judge": _others(JUDGE_FAULTS),
        "process": _others(PROCESS_FAULTS),
    }


def written(page: str) -> str:
    """``page`` with up-to-date tables."""
    for name, table in tables().items():
        page = re.sub(
            rf"(<!-- table: {name} -->\n\n).*?(\n<!-- end -->)",
            lambda found, table=table: found[1] + table + found[2],
            page,
            flags=re.DOTALL,
        )
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
