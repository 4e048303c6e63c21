"""Every example of the client's pages runs as it stands, and prints what the page says."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from judges.types import Label
from tests.support.live_gateway import Gateway
from tests.support.scripted_answers import answer

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
    """``needs``: a ``policy`` in force, ``replies`` of the model, or a ``label`` that the judge gives to a text."""

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
def test_an_example_prints_what_the_page_says(
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
def test_no_code_stands_on_a_page_that_is_not_run(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("```python\n") == len(EXAMPLE.findall(text))
