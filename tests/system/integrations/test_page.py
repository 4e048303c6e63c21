"""Every example of ``docs/clients/integrations.md`` runs unchanged, and prints what the page shows."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway
from tests.system.clients.registry import missing_module
from tests.system.clients.workers import Worker, python_with

PAGE = Path(__file__).parents[3] / "docs" / "clients" / "integrations.md"
TEXT = "Descale the machine every 3 months."
_EXAMPLE = re.compile(
    r"(?P<needs>(?:<!-- [^\n]* -->\n)*)```python\n(?P<code>.*?)```\n\n```text\n(?P<printed>.*?)```", re.DOTALL
)
_NEED = re.compile(r"<!-- (\w+)(?:: ([^\n]*))? -->")
_PACKAGE = re.compile(r"^from groundlane\.integrations\.(\w+)", re.MULTILINE)
PACKAGES = {
    "langchain": "langchain_openai",
    "langchain_openai": "langchain_openai",
    "haystack": "haystack",
    "llamaindex": "llama_index",
    "guardrails": "guardrails",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """``needs``: a ``policy`` in force, a ``label`` that the judge gives to some text, ``replies`` of the model, this
    package ``beside`` the library, or LiteLLM's ``proxy``, which ``test_litellm_guardrail`` provides."""

    code: str
    printed: str
    needs: dict[str, str]

    @property
    def library(self) -> str:
        found = _PACKAGE.search(self.code)
        return found[1] if found else "proxy"


def examples() -> list[Example]:
    return [
        Example(code=match["code"], printed=match["printed"], needs=dict(_NEED.findall(match["needs"])))
        for match in _EXAMPLE.finditer(PAGE.read_text("utf-8"))
    ]


def parameters() -> list[object]:
    told = [example for example in examples() if "proxy" not in example.needs]
    return [pytest.param(example, id=example.library) for example in told]


@pytest.mark.clients
@pytest.mark.parametrize("example", parameters())
def test_examples_print_the_documented_output(
    gateway: Gateway, example: Example, worker: Callable[[str, str], Worker]
) -> None:
    package = PACKAGES[example.library]
    python = python_with(package)
    if python is None:
        pytest.skip(str(missing_module(package)))
    if "beside" in example.needs and python_with("onnxruntime") != python:
        pytest.skip("needs the package groundlane beside the client libraries")
    for need, what in example.needs.items():
        match need:
            case "policy":
                gateway.policy(**json.loads(what))
            case "label":
                label, _, piece = what.partition(": ")
                gateway.judge.labels = {piece: Label(label)}
            case "replies":
                gateway.upstream.script(*(answer(TEXT, stream=reply == "streamed") for reply in what.split()))
    printed = worker(python, package).call(
        "tests.system.integrations.drivers.page",
        "run",
        code=example.code,
        environment={"GROUNDLANE_BASE_URL": gateway.base_url},
    )
    assert printed.rstrip("\n") == example.printed.rstrip("\n")


def test_every_code_block_of_the_page_is_run() -> None:
    text = PAGE.read_text("utf-8")
    assert text.count("```python\n") == len(examples())
    assert {example.library for example in examples()} == {*PACKAGES, "proxy"}
