"""The layout of the repository: rules for names, and for the size of folders."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "policies", "judges")
FOLDERS = (*PACKAGES, "groundlane_server", "sdk", "benchmarks", "tests", "docs")
MOST_FILES = 15
NOT_COUNTED = (
    "docs/adr",  # decision records and stream cases are numbered series
    "tests/system/e2e/cases/stream",
)
IN_EVERY_PROTOCOL = {
    "adapter.py",
    "allowlist.py",
    "decoder.py",
    "encoder.py",
    "event_types.py",
    "fields.py",
    "prompt.py",
    "request.py",
    "whole_reply.py",
}


def modules(package: str) -> Iterator[Path]:
    return (path for path in sorted((ROOT / package).rglob("*.py")) if "node_modules" not in path.parts)


def test_public_class_names_are_unique() -> None:
    defined = defaultdict(list)
    for package in PACKAGES:
        for path in modules(package):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    defined[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_have_at_most_fifteen_files(folder: str) -> None:
    count: dict[str, int] = defaultdict(int)
    for path in (ROOT / folder).rglob("*.*"):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith((".", "_")) and part != "__init__.py" for part in parts)
        if path.is_file() and not hidden and "node_modules" not in parts:
            count["/".join(parts[:-1])] += 1
    assert {name: held for name, held in count.items() if held > MOST_FILES and name not in NOT_COUNTED} == {}


def test_file_names_of_protocols_mean_the_same_in_each() -> None:
    """A name that two protocols share must be common to all of them."""
    folders = [path for path in (ROOT / "app/protocols").iterdir() if path.is_dir() and path.name != "__pycache__"]
    held = [{path.name for path in folder.glob("*.py")} - {"__init__.py"} for folder in folders]
    shared = {name for index, names in enumerate(held) for others in held[index + 1 :] for name in names & others}
    assert shared <= IN_EVERY_PROTOCOL


def test_test_names_begin_with_their_subject() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("tests", "sdk/tests")
        for path in modules(folder)
        for name in re.findall(r"def (test_(?:an?|the)_\w+)", path.read_text(encoding="utf-8"))
    ]
    assert named == [], "leave out the article: test_<subject>_<behaviour>"
