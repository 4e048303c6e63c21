import asyncio
import hashlib
import json
import logging
import math
import shutil
import threading
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from judges import embedded
from judges.cross_encoder import OnnxScorer
from judges.cross_encoder.tokenization import PairEncoder, read_limit
from judges.protocols import JudgeError, JudgeUnavailableError

pytestmark = pytest.mark.anyio

CAT = "A cat is sleeping on the red sofa in the living room."


def word_tokenizer(template: str = "[CLS] $A [SEP] $B:1 [SEP]:1") -> Tokenizer:
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that counts the words in common (data/make_overlap.py), with the shipped tokenizer."""
    shutil.copy(Path(__file__).parent.parent / "data" / "overlap.onnx", tmp_path / "model_int8.onnx")
    tokenizer = Tokenizer.from_file(str(embedded.FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(224)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    labels = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    (tmp_path / "config.json").write_text(json.dumps({"id2label": labels}), encoding="utf-8")
    files = ("config.json", "model_int8.onnx", "tokenizer.json")
    sums = [f"{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}  {name}\n" for name in files]
    (tmp_path / "SHA256SUMS").write_text("".join(sums), encoding="ascii")
    return tmp_path


DIGEST = hashlib.sha256((Path(__file__).parent.parent / "data" / "overlap.onnx").read_bytes()).hexdigest()[:8]


# Tokens


@pytest.mark.parametrize("template", ["[CLS] $A [SEP] $B:1 [SEP]:1", "[CLS] $A [SEP] [SEP] $B [SEP]", "$A [SEP] $B"])
def test_pairs_are_joined_like_the_tokenizer_does(template: str) -> None:
    encoder = PairEncoder(word_tokenizer(template), limit=64)
    pairs = [("a b c", "d"), ("", "a"), ("b", ""), ("a zebra", "b")]
    batch = encoder.batch(pairs)
    for row, pair in enumerate(pairs):
        expected = word_tokenizer(template).encode(*pair)
        length = len(expected.ids)
        assert batch["input_ids"][row, :length].tolist() == expected.ids
        assert batch["token_type_ids"][row, :length].tolist() == expected.type_ids
        assert batch["attention_mask"][row].sum() == length
        assert not batch["input_ids"][row, length:].any()


def test_embedded_tokenizer_joins_real_text_likewise() -> None:
    file = str(embedded.FOLDER / "tokenizer.json")
    reference = Tokenizer.from_file(file)
    reference.no_truncation()
    reference.no_padding()
    pair = ("Der Tarif stieg um 3,5 % auf 1.000 €.", "日本語のテキスト 😀 naïve")
    ids = PairEncoder(Tokenizer.from_file(file), limit=224).batch([pair])["input_ids"][0].tolist()
    assert ids == reference.encode(*pair).ids


def test_long_pair_loses_the_end_of_its_claim_first() -> None:
    encoder = PairEncoder(word_tokenizer(), limit=11)
    assert encoder.max_tokens == 8
    assert not encoder.fits("a a a a", "b b b b b b")
    ids = encoder.batch([("a a a a", "b b b b b b"), ("a a a a a a a a a", "b")])["input_ids"]
    assert ids.tolist() == [[2, 4, 4, 4, 4, 3, 5, 5, 5, 5, 3], [2, 4, 4, 4, 4, 4, 4, 4, 3, 5, 3]]


def test_limit_is_read_from_the_configuration(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    assert read_limit(tmp_path, tokenizer, {}) == 512
    assert read_limit(tmp_path, tokenizer, {"max_position_embeddings": 128}) == 128
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 96}')
    assert read_limit(tmp_path, tokenizer, {"max_position_embeddings": 128}) == 96
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 10**30}))
    assert read_limit(tmp_path, tokenizer, {"max_position_embeddings": 128}) == 128
    tokenizer.enable_truncation(64)
    assert read_limit(tmp_path, tokenizer, {}) == 64


# Scoring


async def test_entailment_direction_is_correct(folder: Path) -> None:
    """All six of the claim's tokens are in the evidence: odds of e to the 8 against e to the 4 and 1."""
    scorer = OnnxScorer(folder, threads=1, label="mine")
    assert scorer.name == "mine"
    await scorer.start()
    await scorer.start()
    yes, no, other = await scorer.score([(CAT, "A cat is sleeping."), (CAT, "No cat is sleeping."), (CAT, "Rain!")])
    total = math.exp(8) + math.exp(4) + 1
    assert (yes.entailed, yes.neutral) == pytest.approx((math.exp(8) / total, math.exp(4) / total), rel=1e-5)
    assert no.contradicted > 0.5
    assert other.neutral > 0.5
    assert sum((yes.entailed, yes.neutral, yes.contradicted)) == pytest.approx(1.0)
    assert scorer.name == f"mine@{DIGEST}"
    assert scorer.max_tokens == 221
    assert scorer.count_tokens("A cat is sleeping.") == 5
    assert await scorer.score([]) == []
    await scorer.aclose()


async def test_scores_do_not_depend_on_the_batch(folder: Path) -> None:
    scorer = OnnxScorer(folder, threads=1)
    await scorer.start()
    alone = (await scorer.score([(CAT, "A cat is sleeping.")]))[0]
    padded = (await scorer.score([(CAT * 4, "A dog barks."), (CAT, "A cat is sleeping.")]))[1]
    await scorer.aclose()
    assert alone.entailed == pytest.approx(padded.entailed)


async def test_truncated_input_is_logged_and_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    scorer = OnnxScorer(folder, threads=1, max_length=32)
    await scorer.start()
    with caplog.at_level(logging.WARNING):
        results = await scorer.score([(CAT, "A cat is sleeping."), (CAT, "A cat is sleeping. " * 10)])
    await scorer.aclose()
    assert len(results) == 2
    assert scorer.pairs_cut == 1
    assert "1 of 2 pairs were truncated to 29 tokens" in caplog.text


async def test_inference_never_runs_on_the_event_loop_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    batch = PairEncoder.batch

    def noting(self: PairEncoder, pairs: list[tuple[str, str]]) -> object:
        seen.add(threading.current_thread().name)
        return batch(self, pairs)

    monkeypatch.setattr(PairEncoder, "batch", noting)
    scorer = OnnxScorer(folder, threads=1)
    await scorer.start()
    await asyncio.gather(*(scorer.score([(CAT, f"claim {n}")]) for n in range(3)))
    await scorer.aclose()
    assert seen == {"judge-1"}


# Failures


async def test_unloaded_or_closed_judge_is_an_error(folder: Path) -> None:
    scorer = OnnxScorer(folder, threads=1)
    with pytest.raises(JudgeUnavailableError, match="not loaded"):
        await scorer.score([(CAT, CAT)])
    with pytest.raises(JudgeUnavailableError, match="not loaded"):
        scorer.count_tokens("a")
    await scorer.aclose()
    with pytest.raises(JudgeUnavailableError, match="closed"):
        await scorer.start()


async def test_missing_folder_or_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(JudgeUnavailableError, match="no such folder"):
        await OnnxScorer(tmp_path / "none").start()
    with pytest.raises(JudgeUnavailableError, match=r"no \.onnx file"):
        await OnnxScorer(tmp_path).start()


async def test_corrupt_file_is_rejected(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(JudgeUnavailableError, match=r"tokenizer\.json is damaged"):
        await OnnxScorer(folder).start()


async def test_folder_without_checksums_is_accepted(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()
    (folder / "model_int8.onnx").rename(folder / "other.onnx")
    scorer = OnnxScorer(folder, threads=1)
    await scorer.start()
    assert scorer.name == f"onnx:{folder.name}@{DIGEST}"
    await scorer.aclose()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{}", "cannot load"),
        ("config.json", "not json", "cannot load"),
        ("config.json", '{"id2label": {"0": "a", "1": "b", "2": "c"}}', "expected one logit"),
    ],
)
async def test_unusable_files_are_rejected(folder: Path, name: str, content: str, message: str) -> None:
    (folder / "SHA256SUMS").unlink()
    (folder / name).write_text(content)
    with pytest.raises(JudgeUnavailableError, match=message):
        await OnnxScorer(folder).start()


async def test_failed_inference_is_a_judge_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = OnnxScorer(folder, threads=1)
    await scorer.start()
    broken = {"input_ids": np.zeros((1, 1), dtype=np.float32)}
    monkeypatch.setattr(PairEncoder, "batch", lambda self, pairs: broken)
    onnxruntime.set_default_logger_severity(4)
    with pytest.raises(JudgeError, match="inference failed"):
        await scorer.score([(CAT, CAT)])
    onnxruntime.set_default_logger_severity(2)
    await scorer.aclose()
