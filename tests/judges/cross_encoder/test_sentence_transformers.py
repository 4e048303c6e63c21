import asyncio
import builtins
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from judges.cross_encoder import SentenceTransformersScorer
from judges.protocols import JudgeError, JudgeUnavailableError

pytestmark = pytest.mark.anyio

LABELS = {0: "contradiction", 1: "entailment", 2: "neutral"}


class StubTokenizer:
    model_max_length = 10**30

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [1] * len(text.split())}

    def num_special_tokens_to_add(self, *, pair: bool) -> int:
        return 3 if pair else 2


class StubModel:
    """The parts of a ``CrossEncoder`` that we use: every pair gets the given logits."""

    def __init__(self, logits: list[float], id2label: dict[int, str]) -> None:
        self.logits = logits
        self.num_labels = len(logits)
        self.max_seq_length = 128
        self.config = SimpleNamespace(id2label=id2label, max_position_embeddings=512)
        self.tokenizer = StubTokenizer()

    def predict(self, pairs: list[tuple[str, str]], *, activation_fn: Any, **_: Any) -> Any:
        if pairs[0][0] == "boom":
            raise RuntimeError("out of memory")
        rows = activation_fn(np.array([self.logits] * len(pairs)))
        return rows[:, 0] if self.num_labels == 1 else rows


def install(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    module = ModuleType("sentence_transformers")
    module.__dict__["CrossEncoder"] = make
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


async def test_labels_are_read_from_the_model_config(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = np.log([0.1, 0.6, 0.3]).tolist()
    install(monkeypatch, lambda model, backend, device, model_kwargs: StubModel(logits, LABELS))
    scorer = SentenceTransformersScorer("some/model")
    await scorer.start()
    first, second = await scorer.score([("e", "c"), ("e", "d")])
    assert (first.entailed, first.neutral, first.contradicted) == pytest.approx((0.6, 0.3, 0.1))
    assert first == second
    assert (scorer.max_tokens, scorer.count_tokens("one two three")) == (125, 3)
    assert await scorer.score([]) == []
    await scorer.aclose()


async def test_model_with_one_logit_gets_a_sigmoid(monkeypatch: pytest.MonkeyPatch) -> None:
    backends: list[str] = []

    def make(model: str, backend: str, device: str | None, model_kwargs: dict[str, Any]) -> StubModel:
        assert (model_kwargs, device) == ({}, "cpu")
        backends.append(backend)
        return StubModel([float(np.log(4.0))], {0: "LABEL_0"})

    install(monkeypatch, make)
    scorer = SentenceTransformersScorer("some/judge", backend="onnx", device="cpu")
    await scorer.start()
    (found,) = await scorer.score([("e", "c")])
    assert (found.entailed, found.neutral, found.contradicted) == pytest.approx((0.8, 0.2, 0.0))
    assert backends == ["onnx"]
    await scorer.aclose()


async def test_reranker_is_loaded_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, lambda model, backend, device, model_kwargs: StubModel([0.0], {0: "LABEL_0"}))
    scorer = SentenceTransformersScorer("cross-encoder/ms-marco-MiniLM-L6-v2")
    with caplog.at_level(logging.WARNING):
        await scorer.start()
        await scorer.score([("e", "c")])
        await scorer.score([("e", "d")])
    assert [record.message.count("re-ranker") for record in caplog.records] == [1]
    await scorer.aclose()


async def test_languages_are_configured_or_from_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(model: str, backend: str, device: str | None, model_kwargs: dict[str, Any]) -> StubModel:
        stub = StubModel([0.0, 0.0, 0.0], LABELS)
        stub.config.languages = ["en"]
        return stub

    install(monkeypatch, make)
    for said, known in ((None, frozenset({"en"})), (frozenset({"en", "de"}), frozenset({"en", "de"}))):
        scorer = SentenceTransformersScorer("some/model", languages=said)
        await scorer.start()
        assert scorer.languages == known
        await scorer.aclose()


async def test_errors_are_judge_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: str, backend: str, device: str | None, model_kwargs: dict[str, Any]) -> StubModel:
        raise OSError("no such model")

    install(monkeypatch, fail)
    scorer = SentenceTransformersScorer("some/model")
    with pytest.raises(JudgeUnavailableError, match="cannot load st:some/model: no such model"):
        await scorer.start()
    with pytest.raises(JudgeUnavailableError, match="not loaded"):
        await scorer.score([("e", "c")])
    with pytest.raises(JudgeUnavailableError, match="not loaded"):
        _ = scorer.max_tokens
    install(monkeypatch, lambda model, backend, device, model_kwargs: StubModel([0.0, 0.0, 0.0], LABELS))
    await scorer.start()
    with pytest.raises(JudgeError, match="prediction failed: out of memory"):
        await scorer.score([("boom", "c")])
    await scorer.aclose()
    with pytest.raises(JudgeUnavailableError, match="closed"):
        await scorer.start()


async def test_missing_extra_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "sentence_transformers":
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(JudgeUnavailableError, match=r"pip install 'groundlane\[sentence-transformers\]'"):
        await SentenceTransformersScorer("some/model").start()


@pytest.mark.sentence_transformers
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("size", [1, 3])
async def test_real_model_of_each_kind_is_read(tmp_path: Path, size: int) -> None:
    pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sleeps"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"), model_max_length=32)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        num_labels=size,
        **({"id2label": LABELS} if size == 3 else {}),
    )
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(50.0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    pairs = [("the cat sleeps", "the dog"), ("the dog", "the cat sleeps")]
    with torch.no_grad():
        logits = model(**tokenizer([a for a, _ in pairs], [b for _, b in pairs], return_tensors="pt", padding=True))[0]
    scorer = SentenceTransformersScorer(str(tmp_path))
    await scorer.start()
    found = await scorer.score(pairs)
    if size == 1:
        assert [one.entailed for one in found] == pytest.approx(torch.sigmoid(logits[:, 0]).tolist(), abs=1e-4)
    else:
        expected = torch.softmax(logits, dim=1).tolist()
        got = [[one.contradicted, one.entailed, one.neutral] for one in found]
        assert [p for row in got for p in row] == pytest.approx([p for row in expected for p in row], abs=1e-4)
    assert scorer.max_tokens == 29
    assert scorer.count_tokens("the cat sleeps") == 3
    await asyncio.sleep(0)
    await scorer.aclose()


async def test_weights_with_code_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def make(model: str, backend: str, device: str | None, model_kwargs: dict[str, Any]) -> StubModel:
        asked.append(model_kwargs)
        return StubModel([0.0, 0.0, 0.0], LABELS)

    install(monkeypatch, make)
    await SentenceTransformersScorer("some/model").start()
    assert asked == [{"use_safetensors": True}]
