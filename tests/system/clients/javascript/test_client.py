"""The client for JavaScript and TypeScript: its own tests, and the examples on its pages, against a gateway."""

import json
import os
import re
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.apis.api_cases import RESPONSES
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.system.clients import processes
from tests.system.clients.javascript import typescript

PAGES = [typescript.ROOT / "docs" / "clients" / "javascript.md", typescript.CLIENT / "README.md"]
TEXT = "Descale the machine every 3 months."
LEAVE = "Permanent staff receive 25 days of annual leave."
_EXAMPLE = re.compile(
    r"(?:<!-- (?P<needs>\w+): (?P<what>[^\n]*) -->\n)?"
    r"```ts\n(?P<code>.*?)```\n\n```text\n(?P<printed>.*?)```",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Example:
    """``needs``: a ``policy`` in force, or ``replies`` of the model."""

    name: str
    code: str
    printed: str
    needs: str | None
    what: str


def examples() -> Sequence[Example]:
    found = [(page.stem.lower(), match) for page in PAGES for match in _EXAMPLE.finditer(page.read_text("utf-8"))]
    return [
        Example(f"{page}-{number}", match["code"], match["printed"], match["needs"], match["what"])
        for number, (page, match) in enumerate(found)
    ]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the client, in which its tests and all examples are compiled."""
    typescript.needs("openai", "typescript", "@types/node")
    folder = typescript.project(tmp_path_factory.mktemp("javascript") / "project")
    typescript.install_client(folder)
    shutil.copy(typescript.CLIENT / "test" / "gateway.test.ts", folder)
    for example in examples():
        (folder / f"{example.name}.ts").write_text(example.code, "utf-8")
    typescript.compile_strictly(folder, *(file.name for file in folder.glob("*.ts")))
    return folder


@pytest.mark.node
def test_tests_of_the_package_pass(compiled: Path, gateway: Gateway) -> None:
    gateway.policy(category="retrieval", rules={"max_source_age_days": 90}, scope={"agents": ["strict"]})
    chats = [answer(LEAVE, stream=stream) for stream in (False, True)]
    gateway.upstream.script(*chats, *(RESPONSES.reply([("text", LEAVE)], stream=stream) for stream in (False, True)))
    environment = {**os.environ, "GROUNDLANE_BASE_URL": f"http://127.0.0.1:{gateway.port}"}
    said = processes.run(["node", "--test", "gateway.test.js"], cwd=compiled, env=environment)
    assert "# fail 0" in said or "ℹ fail 0" in said


@pytest.mark.node
@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_examples_print_the_documented_output(compiled: Path, gateway: Gateway, example: Example) -> None:
    match example.needs:
        case "policy":
            gateway.policy(**json.loads(example.what))
        case "replies" if example.what == "whole-response":
            gateway.upstream.script(RESPONSES.reply([("text", TEXT)], stream=False))
        case "replies":
            gateway.upstream.script(*(answer(TEXT, stream=reply == "streamed") for reply in example.what.split()))
    script = compiled / f"{example.name}.js"
    script.write_text(script.read_text("utf-8").replace("localhost:8080", f"127.0.0.1:{gateway.port}"), "utf-8")
    assert processes.run(["node", script.name], cwd=compiled) == example.printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_code_block_of_the_page_is_run(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("```ts\n") == len(_EXAMPLE.findall(text))


def test_package_version_is_that_of_the_gateway() -> None:
    version = tomllib.loads((typescript.ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert json.loads((typescript.CLIENT / "package.json").read_text("utf-8"))["version"] == version
    assert f'VERSION = "{version}"' in (typescript.CLIENT / "src" / "version.ts").read_text("utf-8")
    assert f"groundlane-{version}.tgz" in PAGES[0].read_text("utf-8")
