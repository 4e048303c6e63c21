"""The original proposal "Grounding (grounding)", an evaluation metric, section by section, with its own examples."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Run, command
from tests.system.seeds.llm import Llm, serving

EIFFEL = """{
  "case_id": "eiffel-tower-basic",
  "input": "What is the Eiffel Tower and where is it located?",
  "output": "The Eiffel Tower is in Paris, France. The Eiffel Tower is located in Berlin.",
  "context": "The Eiffel Tower (/ˈaɪfəl/ EYE-fəl; French: Tour Eiffel) is a wrought-iron lattice tower on the Champ de Mars in Paris, France."
}"""  # noqa: E501 - as the proposal has it


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs ``groundlane eval`` as a shell would, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return command(monkeypatch, capsys, "eval")


def evaluate(run: Run, *cases: dict[str, Any], judge: str = "cross-encoder") -> list[dict[str, Any]]:
    """The result files of ``cases``."""
    Path("sample.json").write_text(json.dumps(cases), "utf-8")
    given = ("--input", "./sample.json", "--limit", "5", "--output-dir", "./out/grounding", "--judge", judge)
    ran = run("run", "grounding", *given, "-q")
    assert ran.code == 0, ran.err
    folder = Path("out", "grounding", "cases")
    return [json.loads((folder / f"{case['case_id']}.json").read_text("utf-8")) for case in cases]


@pytest.mark.slow
def test_example(run: Run) -> None:
    """One claim of two is supported; the names and shapes of the example output."""
    (case,) = evaluate(run, json.loads(EIFFEL))
    (metric,) = case["metrics"]
    assert (metric["name"], metric["category"], metric["error"]) == ("grounding", "answer", None)
    paris, berlin = metric["result"]
    assert [claim["item"]["text"] for claim in (paris, berlin)] == [
        "The Eiffel Tower is in Paris, France.",
        "The Eiffel Tower is located in Berlin.",
    ]
    assert [claim["verdict"] for claim in (paris, berlin)] == ["ACCEPTED", "REJECTED"]
    assert [claim["raw_score"] for claim in (paris, berlin)] == [1, 0]
    assert metric["score"] == 0.5
    assert set(paris["item"]) == {"id", "text", "tokens", "confidence", "cached"}
    assert {"source_chunk_index", "confidence", "extraction_failed"} <= set(paris)
    assert case["cost"]["cost"] == 0


@pytest.mark.slow
def test_scoring_modes(run: Run) -> None:
    """``scale_1_5``: raw scores 1 to 5, normalised by (raw - 1) / 4; accepted at 0.6 and above."""
    (case,) = evaluate(
        run, json.loads(EIFFEL) | {"grounding": {"scoring_mode": "scale_1_5", "include_reasoning": True}}
    )
    (metric,) = case["metrics"]
    *claims, reasoning = metric["result"]
    raw = [claim["raw_score"] for claim in claims]
    assert raw[0] == 5
    assert 1 <= raw[1] <= 3
    assert metric["score"] == pytest.approx(sum((score - 1) / 4 for score in raw) / 2)
    assert [claim["verdict"] for claim in claims] == ["ACCEPTED", "REJECTED"]
    assert reasoning["reasoning"]


@pytest.mark.parametrize(
    ("scoring", "verdicts", "score"),
    [
        ({"scoring_mode": "scale_1_5", "include_reasoning": True}, [5, 1], 0.5),
        ({"scoring_mode": "scale_1_5"}, [4, 3], 0.625),
        (None, [True, False], 0.5),
    ],
    ids=["scale and reasoning", "scale", "default"],
)
def test_one_judge_prompt_with_an_llm(
    run: Run, monkeypatch: pytest.MonkeyPatch, scoring: Any, verdicts: list[Any], score: float
) -> None:
    """The full context and the numbered claims in one prompt; the raw scores and the reasoning are the judge's own."""
    told = "Most claims are directly supported by the context; the Berlin claim contradicts it."
    llm = Llm(lambda _: json.dumps({"reasoning": told, "verdicts": verdicts}))
    with serving(llm) as url:
        Path("groundlane.toml").write_text(
            f'[[upstreams]]\nname = "referee"\nbase_url = "{url}"\napi_key_env = "REFEREE_KEY"\n'
        )
        monkeypatch.setenv("REFEREE_KEY", "sk-referee")
        monkeypatch.setenv("GROUNDLANE_CONFIG", "groundlane.toml")
        monkeypatch.setenv("GROUNDLANE_LLM_JUDGE_MODEL", "referee/gpt-4o-mini")
        (case,) = evaluate(run, json.loads(EIFFEL) | {"grounding": scoring}, judge="llm")
    (prompt,) = llm.prompts
    assert all(text in prompt for text in (json.loads(EIFFEL)["context"], "Claim 1", "Claim 2", "in Berlin."))
    (metric,) = case["metrics"]
    claims = [entry for entry in metric["result"] if "item" in entry]
    assert [claim["raw_score"] for claim in claims] == [int(verdict) for verdict in verdicts]
    assert [claim["verdict"] for claim in claims] == ["ACCEPTED", "REJECTED"]
    assert (metric["score"], metric["error"]) == (score, None)
    assert metric["result"][2:] == ([{"reasoning": told}] if scoring and scoring.get("include_reasoning") else [])
    assert (case["cost"]["input_tokens"], case["cost"]["output_tokens"]) == (500, 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [{"context": ""}, {"output": "Hello!"}, {"grounding": {"enabled": False}}],
    ids=["context", "claims", "off"],
)
def test_skip_behaviour(run: Run, fields: dict[str, Any]) -> None:
    """No context, no claims or disabled: no metrics, and no cost."""
    (case,) = evaluate(run, json.loads(EIFFEL) | fields)
    assert case["metrics"] == []
    assert case["cost"]["cost"] == 0


def test_estimate(run: Run) -> None:
    Path("sample.json").write_text(f"[{EIFFEL}]", "utf-8")
    estimated = run("estimate", "grounding", "--input", "./sample.json", "--limit", "5", "--json")
    assert estimated.code == 0
    assert json.loads(estimated.out)["cases"]
