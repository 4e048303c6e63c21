import pytest

from judges.cross_encoder import OnnxScorer, SentenceTransformersScorer, open_scorer


def test_each_spec_opens_its_back_end() -> None:
    assert open_scorer("none") is None
    embedded = open_scorer(" embedded ", threads=1)
    assert isinstance(embedded, OnnxScorer)
    assert embedded.name == "embedded"
    assert isinstance(open_scorer("onnx:/models/nli"), OnnxScorer)
    remote = open_scorer("st:cross-encoder/nli-deberta-v3-small")
    assert isinstance(remote, SentenceTransformersScorer)
    assert remote.name == "st:cross-encoder/nli-deberta-v3-small"


@pytest.mark.parametrize("spec", ["", "embeded", "onnx:", "st:", "none:x", "embedded:x", "onnx"])
def test_an_unknown_spec_is_refused_with_what_is_expected(spec: str) -> None:
    with pytest.raises(ValueError, match="expected 'embedded', 'onnx:<folder>'"):
        open_scorer(spec)


@pytest.mark.parametrize("spec", ["http://judge:8080", "https://judge", "http:judge"])
def test_a_remote_judge_is_refused_for_now(spec: str) -> None:
    with pytest.raises(ValueError, match="a remote judge is not supported yet"):
        open_scorer(spec)
