"""Every example on the client's pages runs unchanged and prints the output that the page shows."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from judges.types import Label
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import Gateway

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "clients" / "sdk.md", ROOT / "sdk" / "README.md"]
TEXT = "Descale the machine every 3 months."
EXAMPLE = re.compile(
    r"(?:<!-- (?P<needs>\w+): (?P<what>[^\n]*) -->\n)?"
    r"```python\n(?P<code>.*?)```\n\n```text\n(?P<printed>.*?)```",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Example:
    """``needs`` lists requirements: a ``policy`` in force, ``replies`` of the model, or a ``label`` that the judge
    assigns to a text."""

    code: str
    printed: str
    needs: str | None
    what: str


def examples() -> list[object]:
    found = [(page.stem, match) for page in PAGES for match in EXAMPLE.finditer(page.read_text("utf-8"))]
    return [
        pytest.param(Example(match["code"], match["printed"], match["needs"], match["what"]), id=f"{page}-{number}")
        for number, (page, match) in enumerate(found)
    ]


@pytest.mark.parametrize("example", examples())
def test_examples_print_the_documented_output(
    gateway: Gateway, example: Example, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    match example.needs:
        case "policy":
            gateway.policy(**json.loads(example.what))
        case "replies":
            gateway.upstream.script(*(answer(TEXT, stream=reply == "streamed") for reply in example.what.split()))
        case "label":
            label, _, piece = example.what.partition(": ")
            gateway.judge.labels = {piece: Label(label)}
    monkeypatch.setenv("GROUNDLANE_BASE_URL", gateway.base_url)
    code = example.code.replace("localhost:8080", f"127.0.0.1:{gateway.port}")
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == example.printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_code_block_of_the_pages_is_run(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("```python\n") == len(EXAMPLE.findall(text))
