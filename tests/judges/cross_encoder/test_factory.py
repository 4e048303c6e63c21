import json
from pathlib import Path

import pytest

from judges.cross_encoder import (
    CachedEvidenceScorer,
    HttpScorer,
    OnnxScorer,
    SentenceTransformersScorer,
    open_scorer,
    spec_languages,
)


def test_each_spec_opens_its_backend(tmp_path: Path) -> None:
    assert open_scorer("none") is None
    embedded = open_scorer(" embedded ", threads=1)
    assert isinstance(embedded, CachedEvidenceScorer)
    assert embedded.name == "embedded"
    assert isinstance(open_scorer("onnx:/models/nli"), OnnxScorer)
    (tmp_path / "evidence.onnx").touch()
    assert isinstance(open_scorer(f"onnx:{tmp_path}"), CachedEvidenceScorer)
    local = open_scorer("st:cross-encoder/nli-deberta-v3-small")
    assert isinstance(local, SentenceTransformersScorer)
    assert local.name == "st:cross-encoder/nli-deberta-v3-small"


@pytest.mark.parametrize(
    "spec",
    [
        "http:http://judge:8080",
        "http://judge:8080",
        "http:tei+http://judge:8080/predict",
        "http:http://judge:8080/classify",
    ],
)
def test_remote_judge_is_named_by_its_url(spec: str) -> None:
    remote = open_scorer(spec)
    assert isinstance(remote, HttpScorer)
    assert remote.name == "http:judge:8080"


def test_options_follow_a_question_mark() -> None:
    assert open_scorer("st:some/model?backend=onnx&languages=en,de") is not None
    template = "%7Bevidence%7D%5BSEP%5D%7Bclaim%7D"
    assert open_scorer(f"http:http://judge/classify?template={template}&labels=a,b") is not None
    assert open_scorer("http:http://judge?template={evidence}[SEP]{claim}&max_tokens=512") is not None


@pytest.mark.parametrize("spec", ["", "embeded", "onnx:", "st:", "none:x", "embedded:x", "embedded:", "onnx", "http:"])
def test_unknown_spec_error_says_what_is_expected(spec: str) -> None:
    with pytest.raises(ValueError, match="expected 'embedded', 'embedded-large', 'onnx:<folder>'"):
        open_scorer(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("st:model?backend=jax", "unsupported backend 'jax'; expected one of torch, onnx, openvino"),
        ("st:model?bakend=onnx", "unknown option 'bakend'; options: backend, device, languages"),
        ("none?languages=en", "options: none"),
        ("onnx:/m?languages=", "option 'languages' is empty"),
        ("http:judge", "expected a URL"),
        ("http:http://judge?temperature=1", "unknown option 'temperature'"),
    ],
)
def test_invalid_option_is_rejected(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_scorer(spec)


def test_languages_of_a_model_come_from_its_option_or_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"languages": ["en"]}))
    assert spec_languages(f"onnx:{tmp_path}") == frozenset({"en"})
    assert spec_languages(f"onnx:{tmp_path}?languages=en,de") == frozenset({"en", "de"})
    assert spec_languages(f"onnx:{tmp_path / 'none'}") is None
    assert spec_languages("embedded") == spec_languages("embedded-large?languages=en") == frozenset({"en"})
    assert spec_languages("http:http://judge?languages=ja") == frozenset({"ja"})
    assert spec_languages("st:some/model") is None
    assert spec_languages("none") is None
