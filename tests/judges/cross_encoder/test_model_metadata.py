import json
import logging
from pathlib import Path

import pytest

from judges.cross_encoder.model_metadata import folder_languages, is_reranker, known_languages, warn_if_reranker


@pytest.mark.parametrize(
    ("config", "languages"),
    [
        ({"languages": ["en"]}, frozenset({"en"})),
        ({"languages": ["EN", "de"]}, frozenset({"en", "de"})),
        ({"languages": []}, None),
        ({"languages": "en"}, None),
        ({}, None),
    ],
)
def test_languages_are_listed_in_the_config(config: dict[str, object], languages: frozenset[str] | None) -> None:
    assert known_languages(config) == languages


def test_folder_reports_its_languages_if_known(tmp_path: Path) -> None:
    assert folder_languages(tmp_path) is None
    (tmp_path / "config.json").write_text("not json")
    assert folder_languages(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"languages": ["de"]}))
    assert folder_languages(tmp_path) == frozenset({"de"})


@pytest.mark.parametrize(
    ("name", "labels", "size", "card", "expected"),
    [
        ("cross-encoder/ms-marco-MiniLM-L6-v2", ["LABEL_0"], 1, "", True),
        ("BAAI/bge-reranker-v2-m3", ["LABEL_0"], 1, "", True),
        ("org/ranker-nli", ["LABEL_0"], 1, "", False),
        ("org/reranker-trained-on-nli", ["LABEL_0"], 1, "", True),
        ("cross-encoder/stsb-roberta-base", ["LABEL_0"], 1, "", True),
        ("org/judge", ["LABEL_0"], 1, "Trained to find hallucinations in summaries.", False),
        ("org/judge", ["LABEL_0"], 1, "Ranks passages.", True),
        ("org/reranker", ["entailment"], 1, "", False),
        ("cross-encoder/nli-deberta-v3-small", ["contradiction", "entailment", "neutral"], 3, "", False),
    ],
)
def test_reranker_is_detected_by_output_label_name_or_card(
    name: str, labels: list[str], size: int, card: str, expected: bool
) -> None:
    assert is_reranker(name, labels, size=size, card=card) is expected


def test_warning_names_the_model_and_quotes_its_card(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_if_reranker("org/judge", ["LABEL_0"], size=1, folder=tmp_path)
        assert "org/judge looks like a re-ranker" in caplog.text
        caplog.clear()
        (tmp_path / "README.md").write_text("Says whether a claim is entailed.")
        warn_if_reranker("org/judge", ["LABEL_0"], size=1, folder=tmp_path)
        assert caplog.text == ""
        warn_if_reranker("org/judge", ["LABEL_0"], size=1)
        assert "org/judge looks like a re-ranker" in caplog.text
