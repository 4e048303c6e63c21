"""Checkpoints of runs with and without adapters, and the adapters themselves, with models of a few thousand weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from judges.training.data.batching import Encoder, Item, collate
from judges.training.data.datasets import Group, Row, Target
from judges.training.encoder.bases import MPNET

torch = pytest.importorskip("torch", reason="torch is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
adapters = pytest.importorskip("judges.training.encoder.adapters")
checkpoints = pytest.importorskip("judges.training.encoder.checkpoints", reason="onnx is not installed")
loop = pytest.importorskip("judges.training.encoder.training_loop")
model = pytest.importorskip("judges.training.encoder.model")

WIDTH, INNER, LAYERS = 48, 96, 3
ITEM = Item(([5, 6, 7], [8, 9]), (([11, 12], Target.ENTAILED), ([13, 14, 15], Target.NEUTRAL)))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a BERT of three small layers, and a tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(3)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (64, WIDTH),
        "embeddings.position_embeddings.weight": (512, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes |= {f"{layer}.{part}.weight": (WIDTH, WIDTH), f"{layer}.{part}.bias": (WIDTH,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{name}.weight": (WIDTH,), f"{layer}.{name}.bias": (WIDTH,)}
        shapes |= {f"{layer}.intermediate.dense.weight": (INNER, WIDTH), f"{layer}.intermediate.dense.bias": (INNER,)}
        shapes |= {f"{layer}.output.dense.weight": (WIDTH, INNER), f"{layer}.output.dense.bias": (WIDTH,)}
    weights = {name: torch.randn(*shape) * 0.3 for name, shape in shapes.items()}
    safetensors.save_file(weights, folder / "model.safetensors")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ".", "the", "gate", "is", "not", "red", "green", "lock", "old", "at"]
    made = Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.save(str(folder / "tokenizer.json"))
    return folder


def adapted(base: Path, *, rank: int = 4, frozen: int = 1) -> Any:
    return adapters.adapt(model.from_base(base), rank, frozen=frozen)


def groups() -> list[Group]:
    made: list[Group] = []
    for number in range(60):
        colour, other = ("green", "red") if number % 2 else ("red", "green")
        rows = (
            Row(f"the gate is {colour} .", Target.ENTAILED, "BEGIN"),
            Row(f"the gate is {other} .", Target.CONTRADICTED, "BEGIN"),
        )
        made.append(Group(f"The old gate number {number} is {colour}. The lock is old.", rows, "BEGIN"))
    return made


def plan(**given: Any) -> Any:
    return loop.Plan(
        **{"steps": 4, "warm_up": 1, "cool_down": 0, "rate": 1e-2, "tokens": 200, "half": False, "parts": 2} | given
    )


def logits(judge: Any, base: Path) -> Any:
    with torch.inference_mode():
        return judge.eval()(collate([ITEM], Encoder.of(base / "tokenizer.json"))).numpy()


def run(files: Path, folder: Path, **given: Any) -> Any:
    torch.manual_seed(1)
    judge = adapted(files) if given.get("rank") else model.from_base(files)
    loop.train(judge, groups(), Encoder.of(files / "tokenizer.json"), plan(**given), folder)
    return judge


def test_new_adapters_change_nothing_and_merging_is_exact(base: Path) -> None:
    judge = adapted(base)
    assert logits(judge, base).shape == (2, 3)
    plain = model.from_base(base)
    plain.load_state_dict({name: value for name, value in judge.state_dict().items() if name in plain.state_dict()})
    assert logits(judge, base) == pytest.approx(logits(plain, base), abs=1e-5)
    for module in judge.modules():
        if isinstance(module, adapters.Adapted):
            torch.nn.init.normal_(module.high, std=0.1)
    merged = adapters.merge(judge)
    assert merged.state_dict().keys() == plain.state_dict().keys()
    assert logits(judge, base) != pytest.approx(logits(plain, base), abs=1e-3)
    assert logits(merged, base) == pytest.approx(logits(judge, base), abs=1e-4)


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_matrices_and_lower_layers_are_frozen(base: Path, tmp_path: Path, half: bool) -> None:
    judge = run(base, tmp_path, rank=4, frozen=1, half=half)
    before, after = model.from_base(base).state_dict(), judge.state_dict()
    changed = {name for name, value in after.items() if name not in before or (value != before[name]).any()}
    assert changed == adapters.state(judge).keys()
    assert not any(name.startswith("layers.0.") or name.endswith("qkv.weight") for name in changed)
    assert {"layers.1.qkv.low", "layers.1.qkv.high", "layers.2.up.bias", "layers.2.norm.weight"} <= changed


def test_run_with_adapters_resumes_where_it_stopped(base: Path, tmp_path: Path) -> None:
    judge = run(base, tmp_path, rank=4, frozen=1)
    again = adapted(base)
    loop.train(again, groups(), Encoder.of(base / "tokenizer.json"), plan(rank=4, frozen=1), tmp_path)
    assert logits(again, base) == pytest.approx(logits(judge, base))
    loaded, step, read = checkpoints.load(tmp_path, base)
    assert (step, read["rank"]) == (4, 4)
    assert logits(loaded, base) == pytest.approx(logits(judge, base), abs=1e-4)


def test_kept_run_continues_with_its_step_and_tokens(base: Path, tmp_path: Path) -> None:
    judge = run(base, tmp_path / "one", rank=4, frozen=1)
    (tmp_path / "one" / "curve.md").write_text("| steps |\n", encoding="utf-8")
    assert checkpoints.keep(tmp_path / "one", tmp_path / "kept") == sum(
        file.stat().st_size for file in (tmp_path / "kept").iterdir()
    )
    assert (tmp_path / "kept" / "curve.md").read_text(encoding="utf-8") == "| steps |\n"
    told = checkpoints.kept(tmp_path / "kept")
    assert told["step"] == 4
    again = adapted(base)
    checkpoints.begin(again, tmp_path / "kept")
    assert logits(again, base) == pytest.approx(logits(judge, base), abs=2e-2)
    longer = plan(rank=4, frozen=1, steps=6, first=4)
    encoder = Encoder.of(base / "tokenizer.json")
    loop.train(again, groups(), encoder, longer, tmp_path / "two", tokens=told["tokens"])
    last = torch.load(tmp_path / "two" / "last.pt", weights_only=True)
    assert last["step"] == 6
    assert last["tokens"] > told["tokens"] > 0


def test_learning_rate_warms_up_again_after_a_kept_run() -> None:
    rates = [loop._rate(plan(steps=100, rate=1.0, warm_up=4, first=50), step) for step in (50, 51, 53, 60)]
    assert rates == pytest.approx([0.25, 0.5, 1.0, 1.0])


def test_checkpoint_of_another_model_is_refused(base: Path, tmp_path: Path) -> None:
    run(base, tmp_path / "one", rank=4, frozen=1)
    checkpoints.keep(tmp_path / "one", tmp_path / "kept")
    for other in (adapted(base, rank=2), adapted(base, frozen=0), model.from_base(base)):
        with pytest.raises(ValueError, match="for a different model"):
            checkpoints.begin(other, tmp_path / "kept")


def test_only_a_run_with_adapters_is_kept(base: Path, tmp_path: Path) -> None:
    run(base, tmp_path / "one")
    with pytest.raises(ValueError, match="not a run with adapters"):
        checkpoints.keep(tmp_path / "one", tmp_path / "kept")
    assert checkpoints.kept(tmp_path / "kept") is None


@pytest.mark.parametrize("given", [{}, {"rank": 4, "frozen": 1}], ids=["whole", "adapters"])
def test_mean_of_runs_is_that_of_their_merged_matrices(base: Path, tmp_path: Path, given: dict[str, int]) -> None:
    for number, folder in enumerate(("one", "two")):
        run(base, tmp_path / folder, seed=number, **given)
    checkpoints.mean([tmp_path / "one", tmp_path / "two"], tmp_path / "both", base)
    found = [checkpoints.load(tmp_path / folder, base)[0].state_dict() for folder in ("one", "two", "both")]
    for name, value in found[2].items():
        assert np.allclose(value, (found[0][name] + found[1][name]) / 2, atol=1e-6)
    with pytest.raises(ValueError, match="mean of other runs"):
        run(base, tmp_path / "both")


def test_runs_of_different_models_have_no_mean(base: Path, tmp_path: Path) -> None:
    run(base, tmp_path / "one")
    run(base, tmp_path / "two", base=MPNET)
    with pytest.raises(ValueError, match="different models"):
        checkpoints.mean([tmp_path / "one", tmp_path / "two"], tmp_path / "both", base)


def test_with_adapters_the_lowest_layers_stay_frozen() -> None:
    given = plan(frozen=2, frozen_until=3)
    assert [given.frozen_at(step) for step in (2, 3)] == [2, 0]
    assert replace(given, rank=4).frozen_at(3) == 2


def test_resumed_run_keeps_the_step_at_which_it_began(base: Path, tmp_path: Path) -> None:
    """A plan that begins at a later step would otherwise give a negative learning rate, so the weights would move away
    from the minimum."""
    run(base, tmp_path, rank=4, frozen=1, steps=4)
    run(base, tmp_path, rank=4, frozen=1, steps=6, first=400, warm_up=50)
    assert checkpoints.load(tmp_path, base)[2]["first"] == 0
