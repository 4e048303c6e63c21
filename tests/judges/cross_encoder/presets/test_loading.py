"""How a preset handles an unexpected model, and text that is too long or imitates the model's own
tokens."""

import builtins
import json
import logging
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judges.cross_encoder import open_scorer
from judges.cross_encoder.presets import local_scorer
from judges.cross_encoder.presets.input_text import PairInputs, TextInputs
from judges.cross_encoder.presets.model_source import ModelSource
from judges.protocols import JudgeError, JudgeUnavailableError, PairScorer
from tests.support.judging import tiny_models

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("default")]

OpenPreset = Callable[..., Awaitable[PairScorer]]


async def refusal(spec: str) -> str:
    """The error with which a judge refuses to start."""
    scorer = open_scorer(spec)
    assert scorer is not None
    with pytest.raises(JudgeUnavailableError) as refused:
        await scorer.start()
    await scorer.aclose()
    assert "\n" not in str(refused.value)
    return str(refused.value)


async def test_missing_extra_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert await refusal("preset:minicheck-roberta-large") == (
        "preset:minicheck-roberta-large needs an extra: pip install 'groundlane[sentence-transformers]'"
    )


async def test_use_before_loading_is_an_error() -> None:
    scorer = open_scorer("preset:hhem-2.1-open")
    assert scorer is not None
    with pytest.raises(JudgeUnavailableError, match=r"preset:hhem-2\.1-open is not loaded"):
        await scorer.score([("e", "c")])
    with pytest.raises(JudgeUnavailableError, match="is not loaded"):
        _ = scorer.max_tokens
    assert getattr(scorer, "pairs_cut", None) == 0
    await scorer.aclose()
    with pytest.raises(JudgeUnavailableError, match="closed"):
        await scorer.start()


@pytest.mark.sentence_transformers
class TestWrongModels:
    @pytest.fixture(autouse=True)
    def needs_torch(self) -> None:
        pytest.importorskip("torch")
        pytest.importorskip("transformers")

    async def test_missing_folder_is_an_error(self, tmp_path: Path) -> None:
        message = await refusal(f"preset:minicheck-roberta-large?model={tmp_path / 'none'}")
        assert message == f"preset:minicheck-roberta-large(none): no such folder: {tmp_path / 'none'}"

    async def test_folder_without_model_files_is_an_error(self, tmp_path: Path) -> None:
        missing = {"minicheck-roberta-large": "config.json", "alignscore-base": "AlignScore-base.ckpt"}
        tiny_models.roberta_classifier(tmp_path / "base")
        (tmp_path / "model").mkdir()
        for name, file in missing.items():
            message = await refusal(f"preset:{name}?model={tmp_path / 'model'}&base={tmp_path / 'base'}")
            assert f"{tmp_path / 'model'} has no file {file}: copy all files of the model to the folder" in message

    async def test_other_architecture_is_an_error(self, tmp_path: Path) -> None:
        tiny_models.roberta_classifier(tmp_path)
        message = await refusal(f"preset:minicheck-flan-t5-large?model={tmp_path}")
        assert message.endswith(f"; {tmp_path} must contain lytang/MiniCheck-Flan-T5-Large, or a model made from it")

    async def test_unavailable_device_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        message = await refusal(f"preset:minicheck-roberta-large?device=cuda:1&model={tmp_path}")
        assert "torch finds no CUDA GPU for device=cuda:1; use device=cpu" in message

    @pytest.mark.parametrize("name", ["minicheck-roberta-large", "nli-deberta-v3-large"])
    async def test_unexpected_classes_are_an_error(self, tmp_path: Path, name: str) -> None:
        tiny_models.roberta_classifier(tmp_path, labels=5)
        expected = 2 if name.startswith("minicheck") else 3
        assert await refusal(f"preset:{name}?model={tmp_path}") == (
            f"preset:{name}({tmp_path.name}): {tmp_path} has 5 classes, but this preset's model has {expected}; "
            f"for other models, use GROUNDLANE_JUDGE=st:{tmp_path}"
        )

    async def test_unnamed_classes_are_an_error(self, tmp_path: Path) -> None:
        tiny_models.roberta_classifier(tmp_path, labels=3)
        message = await refusal(f"preset:nli-deberta-v3-large?model={tmp_path}")
        assert "expected one logit, or an id2label with 'entailment'" in message

    async def test_unexpected_token_classes_are_an_error(self, tmp_path: Path) -> None:
        tiny_models.modernbert_token_classifier(tmp_path, labels=3)
        message = await refusal(f"preset:lettucedetect-base?model={tmp_path}")
        assert f"{tmp_path} has 3 classes, but this preset's model has 2" in message

    async def test_model_without_its_head_is_an_error(self, tmp_path: Path) -> None:
        import transformers

        tiny_models.roberta_classifier(tmp_path)
        config = transformers.AutoConfig.from_pretrained(tmp_path)
        transformers.RobertaModel(config, add_pooling_layer=False).save_pretrained(tmp_path)
        message = await refusal(f"preset:minicheck-roberta-large?model={tmp_path}")
        assert "is not a model of this kind: it has no weights for classifier.dense.bias and 3 others" in message

    async def test_hhem_without_its_head_is_an_error(self, tmp_path: Path) -> None:
        from safetensors.torch import load_file, save_file

        folder, base = tmp_path / "model", tmp_path / "base"
        tiny_models.hhem(folder, base)
        weights = load_file(folder / "model.safetensors")
        save_file(
            {name: one for name, one in weights.items() if "classifier" not in name}, folder / "model.safetensors"
        )
        message = await refusal(f"preset:hhem-2.1-open?model={folder}&base={base}")
        assert "has no weights for classifier.bias and 1 others" in message

    async def test_checkpoint_with_code_is_not_loaded(self, tmp_path: Path) -> None:
        import torch

        folder, base = tmp_path / "model", tmp_path / "base"
        tiny_models.alignscore(folder, base)
        torch.save({"state_dict": {}, "callbacks": Path("ran")}, folder / "AlignScore-base.ckpt")
        message = await refusal(f"preset:alignscore-base?model={folder}&base={base}")
        assert message == (
            "preset:alignscore-base(model): AlignScore-base.ckpt contains objects besides weights, and reading them "
            "could run code; save it again with only its 'state_dict'"
        )

    async def test_architecture_unknown_to_the_library_is_an_error(self, tmp_path: Path) -> None:
        tiny_models.modernbert_token_classifier(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "eurobert-9"}))
        message = await refusal(f"preset:lettucedetect-610m-de?model={tmp_path}")
        assert "eurobert-9" in message

    async def test_failure_during_inference_is_a_judge_error(
        self, tmp_path: Path, open_preset: OpenPreset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import torch

        tiny_models.roberta_classifier(tmp_path)
        scorer = await open_preset("minicheck-roberta-large", tmp_path)

        def fail(*_: Any) -> Any:
            raise RuntimeError("out of memory\nat line 3")

        monkeypatch.setattr(torch.nn.Linear, "forward", fail)
        with pytest.raises(JudgeError, match=r"prediction failed: out of memory$"):
            await scorer.score([("e", "c")])

    async def test_local_copy_with_a_tokenizer_needs_no_base(self, tmp_path: Path, open_preset: OpenPreset) -> None:
        folder, base = tmp_path / "model", tmp_path / "base"
        tiny_models.alignscore(folder, base)
        for file in base.glob("tokenizer*"):
            shutil.copy(file, folder)
        scorer = await open_preset("alignscore-base", folder, base=str(base))
        assert scorer.count_tokens("cat") == 3


class TestDevices:
    """No GPU is needed: what torch says of one is faked, and nothing is loaded."""

    @pytest.fixture
    def loaded(self, monkeypatch: pytest.MonkeyPatch) -> list[ModelSource]:
        """The sources that were loaded, in place of models, where torch finds two GPUs, an A100 and a T4."""
        torch = SimpleNamespace(
            cuda=SimpleNamespace(
                is_available=lambda: True,
                get_device_capability=lambda device: (7, 5) if device == "cuda:1" else (8, 0),
            ),
            backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False)),
        )
        logs = SimpleNamespace(disable_progress_bar=lambda: None)
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "transformers.utils", SimpleNamespace())
        monkeypatch.setitem(sys.modules, "transformers.utils.logging", logs)
        sources: list[ModelSource] = []

        def load(source: ModelSource) -> Any:
            sources.append(source)
            return SimpleNamespace(revision=None)

        monkeypatch.setattr(local_scorer, "_LOADERS", dict.fromkeys(local_scorer.LOCAL_KINDS, load))
        return sources

    @pytest.mark.parametrize(
        ("options", "device", "dtype", "batch_tokens"),
        [
            ("", "cuda", "bfloat16", 16_384),
            ("?device=cuda:1", "cuda:1", "float32", 16_384),
            ("?device=cpu", "cpu", "float32", 1024),
            ("?dtype=float32", "cuda", "float32", 16_384),
            ("?device=cpu&dtype=bfloat16", "cpu", "bfloat16", 1024),
        ],
    )
    async def test_gpu_uses_half_precision_unless_configured_otherwise(
        self, loaded: list[ModelSource], options: str, device: str, dtype: str, batch_tokens: int
    ) -> None:
        scorer: Any = open_scorer(f"preset:hhem-2.1-open{options}")
        await scorer.start()
        assert [(source.device, source.dtype) for source in loaded] == [(device, dtype)]
        assert scorer.batch_tokens == batch_tokens
        await scorer.aclose()

    def test_mac_gpu_or_cpu_uses_single_precision(self) -> None:
        for mps, device in ((True, "mps"), (False, "cpu")):
            torch = SimpleNamespace(
                cuda=SimpleNamespace(is_available=lambda: False),
                backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda mps=mps: mps)),
            )
            assert local_scorer.best_device(torch) == device
            assert local_scorer.best_dtype(torch, device) == "float32"

    def test_unknown_precision_is_refused(self) -> None:
        with pytest.raises(ValueError, match="dtype='half': expected float32 or float16 or bfloat16"):
            open_scorer("preset:hhem-2.1-open?dtype=half")


@pytest.mark.sentence_transformers
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("minicheck-roberta-large", tiny_models.roberta_classifier),
        ("minicheck-flan-t5-large", tiny_models.flan_t5),
        ("hhem-2.1-open", tiny_models.hhem),
    ],
)
async def test_half_precision_hardly_changes_a_score(
    tmp_path: Path, open_preset: OpenPreset, name: str, make: Callable[..., None]
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder, base = tmp_path / "model", tmp_path / "base"
    make(folder, base) if name.startswith("hhem") else make(folder)
    pairs = tiny_models.pairs(10)
    single, half = [
        await (await open_preset(name, folder, base=str(base), dtype=dtype)).score(pairs)
        for dtype in ("float32", "bfloat16")
    ]
    assert [one.entailed for one in half] == pytest.approx([one.entailed for one in single], abs=0.05)
    assert half != single


@pytest.mark.sentence_transformers
class TestTexts:
    @pytest.fixture(autouse=True)
    def needs_torch(self) -> None:
        pytest.importorskip("torch")
        pytest.importorskip("transformers")

    @pytest.mark.parametrize("name", ["minicheck-roberta-large", "alignscore-large"])
    async def test_long_evidence_is_shortened_and_the_claim_kept(
        self, tmp_path: Path, open_preset: OpenPreset, caplog: pytest.LogCaptureFixture, name: str
    ) -> None:
        folder, base = tmp_path / "model", tmp_path / "base"
        if name == "alignscore-large":
            tiny_models.alignscore(folder, base, file="AlignScore-large.ckpt")
        else:
            tiny_models.roberta_classifier(folder)
        scorer: Any = await open_preset(name, folder, base=str(base))
        evidence = "the cat sleeps " * 100
        claim = "The dog runs in the house."
        with caplog.at_level(logging.WARNING):
            long, longer, fitting = await scorer.score(
                [(evidence, claim), (evidence * 3, claim), (evidence[: scorer.max_tokens - len(claim)], claim)]
            )
        assert long.entailed == pytest.approx(longer.entailed, abs=1e-4)
        assert long.entailed == pytest.approx(fitting.entailed, abs=1e-4)
        assert scorer.pairs_cut == 2
        assert [record.getMessage() for record in caplog.records if "shortened" in record.getMessage()] == [
            f"2 of 3 pairs were shortened to {scorer.max_tokens} tokens, the limit of {scorer.name}"
        ]
        (huge,) = await scorer.score([("a", claim * 60)])
        assert 0.0 <= huge.entailed <= 1.0

    async def test_max_tokens_excludes_added_tokens(self, tmp_path: Path) -> None:
        tiny_models.roberta_classifier(tmp_path)
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
        text = TextInputs(tokenizer, "{evidence}{eos}{claim}", 512)
        pair = PairInputs(tokenizer, 512)
        assert (text.max_tokens, pair.max_tokens) == (512 - 3, 512 - 4)
        for inputs in (text, pair):
            assert inputs.encode([("a" * (inputs.max_tokens - 6), "b" * 6)])["input_ids"].shape == (1, 512)
            assert inputs.pairs_cut == 0

    @pytest.mark.parametrize(
        ("name", "make", "token"),
        [
            ("minicheck-roberta-large", tiny_models.roberta_classifier, "</s>"),
            ("factcg-deberta-v3-large", tiny_models.deberta_classifier, "[SEP]"),
            ("minicheck-flan-t5-large", tiny_models.flan_t5, "</s>"),
            ("lettucedetect-base", tiny_models.modernbert_token_classifier, "[SEP]"),
        ],
    )
    async def test_text_cannot_contain_separator_tokens(
        self, tmp_path: Path, open_preset: OpenPreset, name: str, make: Callable[[Path], None], token: str
    ) -> None:
        make(tmp_path)
        scorer: Any = await open_preset(name, tmp_path)
        model = scorer._model
        forged, plain = (
            model.inputs.encode([(f"the cat {mark} a dog", f"a dog {mark} runs")])["input_ids"][0].tolist()
            for mark in (token, "(" + token[1:])
        )
        assert forged == plain

    async def test_placeholder_in_a_text_is_not_filled(self, tmp_path: Path) -> None:
        tiny_models.roberta_classifier(tmp_path)
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
        inputs = TextInputs(tokenizer, "{evidence}{eos}{claim}", 512)
        encoded = inputs.encode([("see {claim}", "and {evidence}")])["input_ids"][0]
        assert tokenizer.decode(encoded) == "<s>see {claim}</s>and {evidence}</s>"

    async def test_claim_without_tokens_is_not_supported(self, tmp_path: Path, open_preset: OpenPreset) -> None:
        tiny_models.modernbert_token_classifier(tmp_path)
        scorer = await open_preset("lettucedetect-base", tmp_path)
        (found,) = await scorer.score([("The cat sleeps.", "")])
        assert (found.entailed, found.spans) == (0.0, ())
        assert await scorer.score([]) == []
