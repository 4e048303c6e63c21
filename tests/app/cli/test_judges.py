import json
import sys

from judges.cross_encoder.presets import presets
from tests.support.command_line import Run


def test_every_named_judge_is_listed_once(run: Run) -> None:
    result = run("judges")
    assert result.code == 0
    heading, *rows = result.out.split("\n\n")[0].splitlines()
    assert heading.split() == ["NAME", "SIZE", "LICENCE", "LANGUAGES", "SPEED", "PUBLISHED", "JUDGE"]
    assert [row.split()[0] for row in rows] == list(presets())
    assert "GROUNDLANE_JUDGE=preset:NAME" in result.out


def test_judge_details_show_figures_sources_and_what_to_install(run: Run) -> None:
    result = run("judges", "factcg-deberta-v3-large")
    assert result.code == 0
    words = " ".join(result.out.split())
    assert "setting GROUNDLANE_JUDGE=preset:factcg-deberta-v3-large" in words
    assert "published 75.6 balanced accuracy on LLM-AggreFact (https://arxiv.org/abs/2501.17144)" in words
    assert "install pip install 'groundlane[sentence-transformers]'" in words
    assert "source https://github.com/derenlei/FactCG" in words


def test_list_is_available_as_json(run: Run) -> None:
    rows = json.loads(run("judges", "--json").out)
    assert [row["name"] for row in rows] == list(presets())
    one = json.loads(run("judges", "hhem-2.1-open", "--json").out)
    assert one in rows
    assert one["figures"][0]["source"].startswith("https://")


def test_unknown_judge_fails_with_one_line(run: Run) -> None:
    result = run("judges", "minicheck")
    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("Error: unknown preset 'minicheck': did you mean 'minicheck-roberta-large'?")


def test_listing_judges_loads_none(run: Run) -> None:
    before = set(sys.modules)
    run("judges")
    assert not {"torch", "transformers", "sentence_transformers"} & (set(sys.modules) - before)
