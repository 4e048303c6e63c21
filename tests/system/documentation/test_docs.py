"""The documentation keeps up with the code: settings, commands, metrics, links, files and classes."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from app.cli.main import cli, setting_rows
from app.observability import Metrics
from app.settings import Settings
from policies.base import Category
from policies.registry import CATEGORIES

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LINK_AS_CODE = re.compile(r"`[^`\n]*\]\([^`\n]*`")
FENCE = re.compile(r"```.*?```", re.DOTALL)
FILE = re.compile(
    r"`((?:app|judges|migrations|tests|sdk|docs|deploy|benchmarks|\.ci)/[\w./-]*|policies/[\w./-]*(?:\.\w+|/))`"
)
NAME = re.compile(r"`((?:app|judges|policies)(?:\.[a-z_]+)*)\.([A-Z]\w+)`")
RECORDS = ROOT / "docs" / "adr"
"""Records describe the files at the time of writing."""


def commands() -> list[str]:
    group = typer.main.get_command(cli)

    def walk(command: object, path: str) -> Iterator[str]:
        children: dict[str, object] = getattr(command, "commands", {})
        if not children:
            yield path
        for name, child in children.items():
            yield from walk(child, f"{path} {name}")

    return list(walk(group, "groundlane"))


@pytest.fixture(scope="module")
def settings_page() -> str:
    return (ROOT / "docs" / "operations" / "settings.md").read_text("utf-8")


@pytest.mark.parametrize("row", setting_rows(Settings.model_construct()), ids=lambda row: row[0])
def test_every_setting_is_documented_with_its_default(row: tuple[str, str, str, str], settings_page: str) -> None:
    name, _, default, _ = row
    shown = "–" if default == "-" else f"`{default}`"
    assert f"| `{name}` | {shown} |" in settings_page


def test_documented_settings_exist(settings_page: str) -> None:
    known = {f"GROUNDLANE_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"GROUNDLANE_[A-Z_]+", settings_page)) <= known


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented(command: str) -> None:
    assert any(f"{command}" in page.read_text("utf-8") for page in PAGES)


@pytest.mark.parametrize("category", CATEGORIES.values(), ids=lambda category: category.name)
def test_every_policy_rule_is_documented(category: Category) -> None:
    page = (ROOT / "docs" / "policies" / "rules.md").read_text("utf-8")
    assert [rule for rule in category.rules.model_fields if f"`{rule}`" not in page] == []


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "operations" / "running.md").read_text("utf-8")
    metrics = set(re.findall(r"^# TYPE (groundlane_\w+)", Metrics().render().decode(), re.MULTILINE))
    gone = {name for name in metrics if name.endswith("_created")}
    assert {name for name in metrics - gone if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_have_a_target(page: Path) -> None:
    broken = []
    for target in LINK.findall(LINK_AS_CODE.sub("", FENCE.sub("", page.read_text("utf-8")))):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve()
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent != RECORDS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_files_and_classes_mentioned_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text("utf-8"))
    assert [path for path in FILE.findall(text) if not (ROOT / path).exists()] == []
    assert [name for module, name in NAME.findall(text) if not hasattr(import_module(module), name)] == []


def test_every_guarantee_names_an_existing_test() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
    promises = text[: text.index("## `stream_mode: live`")].split("\n- ")[1:]
    for promise in promises:
        (named,) = re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", promise)
        path, _, test = named.partition("::")
        source = (ROOT / path).read_text("utf-8")
        assert f"def {test or 'check'}" in source or (not test and "def test_" in source), named


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown renderers generate them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
