"""Tests the package as a whole: its exports, its requirements, and how it reads unexpected data."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import groundlane
import groundlane.openai
import pytest
from groundlane import CheckResult, Claim, Decision, Grounding, RunRecord, Span, UnexpectedAnswerError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FOLDER = Path(groundlane.__file__).parent
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
KNOWN = st.sampled_from(
    ["claims", "decisions", "retrieval", "kept", "span", "start", "best_source", "score", "verdict", "judge"]
)
READERS = [Grounding.maybe, Claim.each, Decision.each, Span.maybe, RunRecord.read, CheckResult.read]
VALUES = JSON | st.lists(st.dictionaries(KNOWN, JSON, max_size=4), max_size=2)
OBJECTS = st.dictionaries(KNOWN, VALUES, max_size=4)


def test_public_names() -> None:
    assert sorted(groundlane.__all__) == groundlane.__all__
    subpackages = {"openai", "integrations", "evaluation"}
    assert {name for name in vars(groundlane) if not name.startswith("_") and name not in subpackages} == {
        name for name in groundlane.__all__ if not name.startswith("_")
    }
    assert all(hasattr(groundlane.openai, name) for name in groundlane.openai.__all__)


def test_version_matches_the_distribution() -> None:
    client, whole = (
        tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        for folder in (FOLDER.parents[1], FOLDER.parents[2])
    )
    assert groundlane.__version__ == client["version"] == whole["version"] == version("groundlane")


def test_extras_match_in_both_distributions() -> None:
    """``pip install groundlane[langchain]`` and ``groundlane-sdk[langchain]`` install the same, except that the first
    always includes openai."""
    client, whole = (
        tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        for folder in (FOLDER.parents[1], FOLDER.parents[2])
    )
    extras = client["optional-dependencies"]
    assert set(extras.pop("openai")) <= set(whole["dependencies"])
    assert {name: whole["optional-dependencies"].get(name) for name in extras} == extras


def test_package_is_typed() -> None:
    assert (FOLDER / "py.typed").exists()


def test_openai_and_the_gateway_are_imported_only_on_use() -> None:
    code = "import sys, groundlane; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert {"groundlane", "httpx"} <= loaded
    assert loaded & {"openai", "pydantic", "app", "judges", "policies", "fastapi"} == set()


@pytest.mark.parametrize(
    "read", [Grounding.maybe, Claim.each, Decision.each, Span.maybe, RunRecord.read, CheckResult.read]
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=OBJECTS)
def test_any_gateway_reply_is_parsed(read: Callable[[Any], Any], data: dict[str, Any]) -> None:
    for value in (data, {"run_id": "run_1", "grounded": True, **data}, [data]):
        try:
            hash(read(value)) if isinstance(value, dict) else read(value)
        except (AttributeError, UnexpectedAnswerError):
            # A run or a check must be an object with its required fields. Otherwise, an error is raised.
            assert read in (RunRecord.read, CheckResult.read)


def test_new_fields_are_kept_and_malformed_ones_ignored() -> None:
    claim = {"claim": "It rains.", "verdict": "disputed", "confidence": "high", "mood": "gloomy", "span": [0, 9]}
    found = Grounding.maybe({"verdict": "supported", "claims": [claim, "no claim"], "total_claims": True})
    assert found is not None
    (read,) = found.claims
    assert (read.text, read.verdict, read.confidence, read.span) == ("It rains.", "disputed", None, None)
    assert read.raw["mood"] == "gloomy"
    assert (found.total_claims, found.is_summary) == (0, True)
    assert Grounding.maybe(None) is None
