"""Every example of ``docs/clients/libraries.md`` runs unchanged, and prints what the page shows."""

import re
from pathlib import Path

import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.system.clients import processes
from tests.system.clients.page import PAGE, Example, examples
from tests.system.clients.registry import missing_module, missing_on_node
from tests.system.clients.workers import environment, python_with

TEXT = "Descale the machine every 3 months."
_PACKAGE = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
_NODE_PACKAGE = re.compile(r'^import .* from "([^"]+)"', re.MULTILINE)


def parameter(example: Example) -> object:
    package = _PACKAGE.search(example.code) if example.language == "python" else None
    marks = [pytest.mark.node] if example.language == "js" else []
    if package and package[1] != "openai":
        marks.append(pytest.mark.clients)
    return pytest.param(example, id=example.title, marks=marks)


def command(example: Example, folder: Path) -> list[str]:
    """How to run the example; skips it if its library is missing."""
    if example.language == "python":
        (package,) = set(_PACKAGE.findall(example.code))
        python = python_with(package)
        if python is None:
            pytest.skip(str(missing_module(package)))
        return [python, "example"]
    if example.language == "js":
        for package in _NODE_PACKAGE.findall(example.code):
            if missing := missing_on_node(package):
                pytest.skip(missing)
        processes.modules(folder)
        return ["node", "example.mjs"]
    return ["bash", "example"]


@pytest.mark.parametrize("example", [parameter(example) for example in examples()])
def test_examples_print_the_documented_output(gateway: Gateway, example: Example, tmp_path: Path) -> None:
    gateway.upstream.script(*(answer(TEXT, stream=stream) for stream in example.replies))
    run = command(example, tmp_path)
    address = gateway.base_url.removeprefix("http://")
    (tmp_path / run[1]).write_text(example.code.replace("localhost:8080/v1", address), "utf-8")
    assert processes.run(run, cwd=tmp_path, env=environment()) == example.printed
    assert len(gateway.upstream.exchanges) == len(example.replies)


def test_every_code_block_of_the_page_is_run() -> None:
    blocks = re.findall(r"^```(?!text)\w+$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(blocks) == len(examples())
