"""The encoder, its training and its export, with models of a few thousand weights: one of each kind of base."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from judges.cross_encoder import CachedEvidenceScorer, open_scorer
from judges.protocols import JudgeError
from judges.training.data import batching as batches
from judges.training.data.batching import Encoder, Item, collate
from judges.training.data.datasets import SHARES, WRITTEN, Group, Row, Target
from judges.training.data.sampling import Sampler
from judges.training.encoder.bases import MPNET
from judges.types import EvidenceWindows

torch = pytest.importorskip("torch", reason="torch is not installed")
model = pytest.importorskip("judges.training.encoder.model", reason="safetensors is not installed")
export = pytest.importorskip("judges.training.shipping.onnx_export", reason="onnx is not installed")
exported = pytest.importorskip("judges.training.encoder.exported_weights")
evaluate = pytest.importorskip("judges.training.evaluation.encoder_evaluation")
progress = pytest.importorskip("judges.training.encoder.progress")
checkpoints = pytest.importorskip("judges.training.encoder.checkpoints")
ship = pytest.importorskip("judges.training.shipping.ship", reason="scikit-learn is not installed")
train = pytest.importorskip("judges.training.encoder.training_loop")

WORDS = [
    "the",
    "a",
    "lock",
    "gate",
    "boat",
    "pilot",
    "opens",
    "closes",
    "waits",
    "at",
    "six",
    "seven",
    "in",
    "on",
    "river",
    "wall",
    "green",
    "red",
    "old",
    "new",
    "not",
    "is",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", ".", *WORDS])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    file = tmp_path_factory.mktemp("base") / "tokenizer.json"
    made.save(str(file))
    return file


RELATIVE = pytest.mark.parametrize("relative", [False, True], ids=["minilm", "mpnet"])


def tiny(seed: int = 1, *, relative: bool = False, **given: Any) -> Any:
    torch.manual_seed(seed)
    judge = model.Judge(vocabulary=64, width=32, layers=2, heads=2, inner=64, relative=relative, **given)
    for weights in judge.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    return judge.eval()


def item(windows: list[list[int]], *claims: list[int]) -> Item:
    return Item(tuple(windows), tuple((claim, Target(place % 4)) for place, claim in enumerate(claims)))


ONE = item([[5, 6, 7], [8, 9]], [11, 12], [13, 14, 15, 16])
TWO = item([[20, 21, 22, 23, 24, 25]], [21, 23, 22])


def logits(judge: Any, encoder: Encoder, *items: Item, prefix: bool = True) -> Any:
    with torch.inference_mode():
        return judge(collate(items, encoder), prefix=prefix).float().numpy()


@RELATIVE
@pytest.mark.parametrize("prefix", [True, False])
def test_score_of_a_claim_does_not_depend_on_its_batch(tokenizer: Path, prefix: bool, relative: bool) -> None:
    """Neither other claims about the same evidence nor the rest of the batch changes a score."""
    judge, encoder = tiny(relative=relative), Encoder.of(tokenizer)
    both = logits(judge, encoder, ONE, TWO, prefix=prefix)
    apart = [Item(ONE.windows, (claim,)) for claim in ONE.claims]
    alone = [logits(judge, encoder, one, prefix=prefix)[0] for one in [*apart, TWO]]
    assert both == pytest.approx(np.stack(alone), abs=1e-5)


@RELATIVE
def test_with_a_prefix_the_order_of_windows_does_not_matter(tokenizer: Path, relative: bool) -> None:
    """Windows don't see each other, so a set of them has no order; in a plain cross-encoder it does."""
    judge, encoder = tiny(relative=relative), Encoder.of(tokenizer)
    turned = Item(ONE.windows[::-1], ONE.claims)
    assert logits(judge, encoder, ONE) == pytest.approx(logits(judge, encoder, turned), abs=1e-5)
    plain = logits(judge, encoder, ONE, prefix=False)
    assert plain != pytest.approx(logits(judge, encoder, turned, prefix=False), abs=1e-3)


def test_attention_gradients_are_correct() -> None:
    """Computed by hand and compared with numeric differences; tokens of one part are keys of another."""
    torch.manual_seed(1)
    kinds = {"dtype": torch.double}
    parts = [
        model.AttentionBlock((0, 3), (0, 3), None),
        model.AttentionBlock((3, 5), (3, 5), torch.randn(2, 2, 2, **kinds)),
        model.AttentionBlock((5, 8), (0, 8), torch.randn(2, 3, 8, **kinds)),
    ]
    given = torch.randn(8, 3 * 2 * 2, requires_grad=True, **kinds)
    assert torch.autograd.gradcheck(lambda qkv: model._Attention.apply(qkv, parts, 2), given)


def test_distances_use_the_buckets_of_mpnet() -> None:
    """As in transformers for an MPNet: each of the first 8 positions has its own bucket, then buckets get wider, and
    128 and more share the last."""
    apart = torch.tensor([0, -1, -7, -8, -15, -127, -128, -500, 1, 8, 128])
    assert model.bucket(apart).tolist() == [0, 1, 7, 8, 9, 15, 15, 15, 17, 24, 31]


def test_frozen_layers_do_not_change(tokenizer: Path, tmp_path: Path) -> None:
    encoder = Encoder.of(tokenizer)
    judge = tiny()
    before = {name: weights.clone() for name, weights in judge.state_dict().items()}
    plan = train.Plan(steps=4, warm_up=1, cool_down=0, rate=1e-3, tokens=200, frozen=1, frozen_until=3, half=False)
    train.train(judge, groups(), encoder, replace(plan, steps=3), tmp_path)
    changed = {
        name.rsplit(".", 1)[0] for name, weights in judge.state_dict().items() if (weights != before[name]).any()
    }
    assert {name.split(".")[1] for name in changed if name.startswith("layers")} == {"1"}
    assert changed >= {"pool", "classify"}
    assert not changed & {"words", "positions", "kinds", "norm"}
    train.train(judge, groups(), encoder, plan, tmp_path)
    assert (judge.layers[0].up.weight != before["layers.0.up.weight"]).any()


def test_bfloat16_gives_nearly_the_same_scores(tokenizer: Path) -> None:
    judge, encoder = tiny(relative=True), Encoder.of(tokenizer)
    assert logits(judge.halved(), encoder, ONE) == pytest.approx(logits(judge, encoder, ONE), abs=0.5)


def test_loss_accepts_either_of_two_classes(tokenizer: Path) -> None:
    """-ln of 1/2 for entailed, and of 1/3 + 1/6 for one of the other two."""
    given = torch.log(torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]))
    targets = torch.tensor([int(Target.ENTAILED), int(Target.OTHER)])
    assert model.loss(given, targets).item() == pytest.approx(np.log(2))
    assert model.loss(given, torch.tensor([1, 2])).item() == pytest.approx((np.log(3) + np.log(6)) / 2)


def test_wording_prior_is_added_to_the_model_output() -> None:
    """Odds of 3 to 3 for entailed, doubled by its words: 6 to 3, so the model itself need not predict it."""
    given = torch.log(torch.tensor([[3.0, 2.0, 1.0]]))
    priors = torch.log(torch.tensor([2.0]))
    assert model.loss(given, torch.tensor([0]), priors).item() == pytest.approx(-np.log(6 / 9))
    assert model.loss(given, torch.tensor([1]), priors).item() == pytest.approx(-np.log(2 / 9))


@pytest.mark.parametrize(
    ("claim", "known", "found"),
    [([1, 2, 3, 4, 5], {1, 2}, 2), ([1, 2, 9], {1, 2}, 5), ([1, 2], set(), 0), ([9], {1}, 4)],
)
def test_known_fifths_of_a_claim(claim: list[int], known: set[int], found: int) -> None:
    """Token 9 has no weight and is ignored."""
    assert batches.fifths(claim, known, {9}) == found


def test_dropout_is_active_only_in_training(tokenizer: Path) -> None:
    judge, encoder = tiny(), Encoder.of(tokenizer)
    assert logits(judge.eval(), encoder, ONE) == pytest.approx(logits(judge, encoder, ONE))
    judge.train()
    assert logits(judge, encoder, ONE) != pytest.approx(logits(judge, encoder, ONE))


def test_sentences_are_packed_whole_and_long_ones_cut() -> None:
    assert batches.pack([[1] * 4, [2] * 4, [3] * 3, [4] * 11], 8) == [[1] * 4 + [2] * 4, [3] * 3, [4] * 8, [4] * 3]
    assert batches.pack([], 8) == []


def test_relevant_windows_are_kept_in_order() -> None:
    windows = [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert batches.nearest(windows, [[8, 9], [4, 5]], 2) == [[3, 4], [7, 8]]
    assert batches.nearest(windows, [[9]], 4) == windows


def groups() -> list[Group]:
    made: list[Group] = []
    for number in range(60):
        colour, verb = ("green", "opens") if number % 2 else ("red", "closes")
        rows = (
            Row(f"the gate is {colour} .", Target.ENTAILED, "BEGIN"),
            Row(f"the gate is not {colour} .", Target.CONTRADICTED, "BEGIN"),
        )
        made.append(Group(f"The gate is {colour}. The old lock {verb} at six on the river wall.", rows, "BEGIN"))
    return made


def test_same_seed_gives_the_same_batches_within_their_size(tokenizer: Path) -> None:
    encoder = Encoder.of(tokenizer)
    made = [
        list(
            batches.batches(
                Sampler(groups(), encoder, seed=seed).epoch(0),
                encoder,
                claims=16,
                tokens=400,
            )
        )
        for seed in (3, 3, 4)
    ]
    same = [all(np.array_equal(a.ids, b.ids) for a, b in zip(made[0], made[other], strict=False)) for other in (1, 2)]
    assert same == [True, False]
    for batch in made[0]:
        assert len(batch.targets) == len(batch.lengths) <= 16
        assert len(batch.ids) <= 400
        assert (batch.ids[batch.starts] == encoder.cls).all()
        assert (batch.ids[batch.starts + batch.lengths - 1] == encoder.sep).all()
        assert sum(sum(one.windows) + sum(one.claims) for one in batch.groups) == len(batch.ids)


def test_plain_cross_encoder_has_evidence_as_one_text(tokenizer: Path) -> None:
    batch = collate([ONE, TWO], Encoder.of(tokenizer)).repeated(6)
    assert batch.groups == tuple(batches.Spans((windows,), (claim,)) for windows, claim in ((6, 4), (6, 6), (6, 5)))
    assert batch.positions[:10].tolist() == [96, 97, 98, 99, 100, 101, 0, 1, 2, 3]
    assert batch.ids[batch.starts].tolist() == [2, 2, 2]


def test_written_claims_are_sampled_alone_or_with_generated_ones(tokenizer: Path) -> None:
    encoder = Encoder.of(tokenizer)
    written = [Group(one.premise, tuple(replace(row, source=WRITTEN) for row in one.rows), WRITTEN) for one in groups()]
    items = list(Sampler(written, encoder, seed=1).epoch(0))
    rows = {(tuple(encoder.encode([row.claim])[0]), row.target) for one in written for row in one.rows}
    told = [{(tuple(claim), target) for claim, target in item.claims} for item in items]
    assert len(items) == len(written) * SHARES[WRITTEN]
    assert {len(one & rows) for one in told} == {2}
    assert {bool(one - rows) for one in told} == {True, False}
    alone = encoder.windows(written[0].premise, 512)[0]
    assert {len(alone) < sum(map(len, item.windows)) for item in items} == {True, False}


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_training_learns_and_resumes_where_it_stopped(tokenizer: Path, tmp_path: Path, half: bool) -> None:
    encoder = Encoder.of(tokenizer)
    plan = train.Plan(
        steps=60, warm_up=5, cool_down=10, rate=5e-3, parts=2, claims=16, tokens=400, every=10, shown=20, half=half
    )
    short = replace(plan, steps=40, cool_down=0)
    judge = tiny()
    rows = [{"premise": one.premise, "hypothesis": row.claim} for one in groups()[:4] for row in one.rows]
    before = evaluate.probabilities(judge, rows, encoder)
    train.train(judge, groups(), encoder, short, tmp_path)
    kept = torch.load(tmp_path / "last.pt", weights_only=True)
    assert kept["step"] == 40
    again = tiny(seed=2)
    looks: list[tuple[int, int]] = []
    train.train(again, groups(), encoder, plan, tmp_path, lambda _judge, *at: looks.append(at[:2]))
    last = torch.load(tmp_path / "last.pt", weights_only=True)
    assert last["step"] == 60
    assert looks == [(60, last["tokens"])]
    assert last["tokens"] > kept["tokens"] > 0
    after = evaluate.probabilities(again, rows, encoder)
    wanted = [Target.ENTAILED, Target.CONTRADICTED] * 4
    assert after[range(8), wanted].mean() > before[range(8), wanted].mean() + 0.1
    assert not list(tmp_path.glob("*.partial"))


@RELATIVE
@pytest.mark.parametrize("quantised", [False, True])
def test_exported_graphs_equal_the_encoder(tokenizer: Path, tmp_path: Path, quantised: bool, relative: bool) -> None:
    judge, encoder = tiny(relative=relative), Encoder.of(tokenizer)
    export.export(judge, tokenizer, tmp_path, quantised=quantised, extra={"languages": ["en"]})
    scorer = open_scorer(f"onnx:{tmp_path}", threads=1)
    assert isinstance(scorer, CachedEvidenceScorer)
    texts = ["The old lock opens at six on the river wall.", "The gate is green."]
    claims = ["the gate is green .", "the boat waits in the river ."]
    pairs: list[tuple[str, str]] = [(EvidenceWindows(texts), claims[0]), (texts[1], claims[1])]

    async def scores() -> Any:
        await scorer.start()
        found = await scorer.score(pairs)
        await scorer.aclose()
        return [(one.entailed, one.neutral, one.contradicted) for one in found]

    windows = encoder.encode(texts)
    ids = encoder.encode(claims)
    items = [item(windows, ids[0]), item(windows[1:], ids[1])]
    expected = torch.from_numpy(np.stack([logits(judge, encoder, one)[0] for one in items])).softmax(-1).numpy()
    assert np.array(asyncio.run(scores())) == pytest.approx(expected, abs=0.12 if quantised else 1e-2)


def test_outlier_tokens_do_not_blur_the_others(tmp_path: Path) -> None:
    """Quantised with one scale for all rows, the rows with small values would all be 0."""
    import onnx
    import onnxruntime

    judge = tiny()
    graph = export._Graph(judge, quantised=True)
    graph.add("Identity", graph.linear("x", "layers.0.down"), name="y")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 64])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows", 32])
    session = onnxruntime.InferenceSession(graph.model([value], [result]).SerializeToString())
    given = torch.randn(3, 64)
    given[0] *= 10_000
    given[2] = 0
    with torch.inference_mode():
        expected = judge.layers[0].down(given).numpy()
    (found,) = session.run(None, {"x": given.numpy()})
    assert found[1:] == pytest.approx(expected[1:], abs=0.1)


@RELATIVE
def test_exported_model_can_be_trained_further(tokenizer: Path, tmp_path: Path, relative: bool) -> None:
    """Read and exported again, it is the same; only untrained parts come from the base."""
    judge, other = tiny(relative=relative), tiny(seed=2, relative=relative)
    other.words.load_state_dict(judge.words.state_dict())
    if relative:
        other.relative.load_state_dict(judge.relative.state_dict())
    export.export(judge, tokenizer, tmp_path / "one", quantised=True, extra={})
    export.export(exported.restore(tmp_path / "one", other), tokenizer, tmp_path / "two", quantised=True, extra={})
    for name in ("claim.onnx", "evidence.onnx"):
        one, two = (constants(tmp_path / folder / name) for folder in ("one", "two"))
        assert one.keys() == two.keys()
        for constant, value in one.items():
            assert two[constant] == pytest.approx(value, abs=1e-6)


def constants(file: Path) -> dict[str, Any]:
    import onnx

    return {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(file).graph.initializer}


def test_graphs_of_another_kind_are_not_trained_further(tokenizer: Path, tmp_path: Path) -> None:
    export.export(tiny(), tokenizer, tmp_path, quantised=False, extra={})
    with pytest.raises(ValueError, match="expected INT8 graphs of this size"):
        exported.restore(tmp_path, tiny())
    export.export(tiny(), tokenizer, tmp_path, quantised=True, extra={})
    with pytest.raises(ValueError, match="expected INT8 graphs of this size"):
        exported.restore(tmp_path, model.Judge(vocabulary=64, width=64, layers=2, heads=2, inner=64))


def test_both_graphs_share_one_copy_of_the_weights(tokenizer: Path, tmp_path: Path) -> None:
    judge = tiny()
    export.export(judge, tokenizer, tmp_path, quantised=False, extra={})
    linear = sum(weights.numel() * 4 for name, weights in judge.state_dict().items() if "layers" in name)
    size = (tmp_path / "weights.bin").stat().st_size
    assert linear < size < 1.7 * linear
    assert all((tmp_path / name).stat().st_size < 60_000 for name in ("claim.onnx", "evidence.onnx"))


@RELATIVE
@pytest.mark.parametrize("quantised", [False, True])
def test_plain_export_is_the_plain_encoder(tokenizer: Path, tmp_path: Path, quantised: bool, relative: bool) -> None:
    import onnxruntime

    judge, encoder = tiny(relative=relative), Encoder.of(tokenizer)
    export.export_plain(judge, tmp_path / "plain.onnx", quantised=quantised)
    session = onnxruntime.InferenceSession(str(tmp_path / "plain.onnx"))
    (window,), ((claim, _),) = TWO.windows, TWO.claims
    feed = {
        "ids": np.array([[encoder.cls, *claim, encoder.sep]]),
        "evidence_ids": np.array([[*window, encoder.sep]]),
    }
    (found,) = session.run(None, feed)
    assert found[0] == pytest.approx(logits(judge, encoder, TWO, prefix=False)[0], abs=0.5 if quantised else 1e-2)


def test_base_model_keeps_its_weights(tmp_path: Path) -> None:
    """Our layers compute the same as BERT's: compared with its own file, name by name."""
    from safetensors.torch import save_file

    width, inner = 64, 128
    shapes = {
        "embeddings.word_embeddings.weight": (50, width),
        "embeddings.position_embeddings.weight": (512, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        shapes[f"encoder.layer.0.attention.{part}.weight"] = (width, width)
        shapes[f"encoder.layer.0.attention.{part}.bias"] = (width,)
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        shapes[f"encoder.layer.0.{name}.weight"] = shapes[f"encoder.layer.0.{name}.bias"] = (width,)
    for name, shape in (("intermediate.dense", (inner, width)), ("output.dense", (width, inner))):
        shapes[f"encoder.layer.0.{name}.weight"] = shape
        shapes[f"encoder.layer.0.{name}.bias"] = shape[:1]
    weights = {name: torch.randn(*shape) for name, shape in shapes.items()}
    save_file(weights, tmp_path / "model.safetensors")
    state = model.from_base(tmp_path).state_dict()
    assert torch.equal(state["words.weight"], weights["embeddings.word_embeddings.weight"])
    assert torch.equal(
        state["layers.0.qkv.weight"][width : 2 * width], weights["encoder.layer.0.attention.self.key.weight"]
    )
    assert torch.equal(state["layers.0.down.bias"], weights["encoder.layer.0.output.dense.bias"])


def test_base_with_relative_positions_keeps_its_weights(tmp_path: Path) -> None:
    """Its first two positions are removed, and its first and last token become those of a BERT, before padding."""
    from safetensors.torch import save_file

    width, heads = 48, 4
    layer = "mpnet.encoder.layer.0"
    weights = {
        "mpnet.embeddings.word_embeddings.weight": torch.randn(120, width),
        "mpnet.embeddings.position_embeddings.weight": torch.randn(514, width),
        "mpnet.encoder.relative_attention_bias.weight": torch.randn(32, heads),
        f"{layer}.intermediate.dense.weight": torch.randn(96, width),
        f"{layer}.intermediate.dense.bias": torch.randn(96),
        f"{layer}.output.dense.weight": torch.randn(width, 96),
        f"{layer}.output.dense.bias": torch.randn(width),
    }
    for name in ("mpnet.embeddings", f"{layer}.attention", f"{layer}.output"):
        weights |= {f"{name}.LayerNorm.{kind}": torch.randn(width) for kind in ("weight", "bias")}
    for part in "qkvo":
        weights[f"{layer}.attention.attn.{part}.weight"] = torch.randn(width, width)
        weights[f"{layer}.attention.attn.{part}.bias"] = torch.randn(width)
    save_file(weights, tmp_path / "model.safetensors")
    judge = model.from_base(tmp_path)
    state, words = judge.state_dict(), weights["mpnet.embeddings.word_embeddings.weight"]
    assert torch.equal(state["words.weight"][[105, 106, 7]], words[[0, 2, 7]])
    assert not state["words.weight"][0].any()
    assert torch.equal(state["positions.weight"], weights["mpnet.embeddings.position_embeddings.weight"][2:])
    assert torch.equal(state["layers.0.qkv.bias"][width : 2 * width], weights[f"{layer}.attention.attn.k.bias"])
    assert torch.equal(state["layers.0.norm.bias"], weights[f"{layer}.attention.LayerNorm.bias"])
    bias = weights["mpnet.encoder.relative_attention_bias.weight"]
    assert torch.equal(judge.distances(3, 3)[:, 0, 2], bias[18])
    assert torch.equal(judge.far(), bias[31])


def test_diverging_scores_are_an_error(tokenizer: Path, tmp_path: Path) -> None:
    """Attention sums exponentials without normalisation: they overflow at a score of 88."""
    judge = tiny()
    with torch.no_grad():
        judge.layers[0].qkv.weight.mul_(1000)
    export.export(judge, tokenizer, tmp_path, quantised=False, extra={})
    scorer = open_scorer(f"onnx:{tmp_path}", threads=1)

    async def score() -> None:
        await scorer.start()
        with pytest.raises(JudgeError, match="is not finite"):
            await scorer.score([("The gate is green.", "the gate is green .")])
        await scorer.aclose()

    asyncio.run(score())


def test_run_records_its_starting_point(tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder.of(tokenizer)
    plan = train.Plan(base=MPNET, steps=1, warm_up=1, cool_down=0, rate=1e-3, tokens=200, half=False)
    train.train(tiny(relative=True), groups(), encoder, plan, tmp_path)
    monkeypatch.setattr(checkpoints, "from_base", lambda _folder: tiny(seed=2, relative=True))
    run = ship.restore(tmp_path, tokenizer.parent)
    assert run.step == 1
    assert run.title.startswith("all-mpnet-base-v2")
    assert run.encoder.cls == encoder.cls
    weights = torch.load(tmp_path / "last.pt", weights_only=True)["model"]["pool.weight"]
    assert torch.equal(run.judge.pool.weight, weights)


def test_curve_has_a_line_per_evaluation(tokenizer: Path, tmp_path: Path) -> None:
    encoder = Encoder.of(tokenizer)
    kept = [Group(one.premise, tuple(replace(row, source=WRITTEN) for row in one.rows), WRITTEN) for one in groups()]
    dev = [
        {"premise": one.premise, "hypothesis": row.claim, "label": row.target.name.lower(), "source": row.source}
        for one in groups()
        for row in one.rows
    ]
    for step in (1, 2):
        progress.Curve(tmp_path, encoder, dev, kept)(tiny(), step, 2000 * step, 0.5)
    lines = (tmp_path / "curve.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("|")[1:4] for line in lines[2:]] == [[" 1 ", " 2 ", " 0.500 "], [" 2 ", " 4 ", " 0.500 "]]
    assert len({line.count("|") for line in lines}) == 1


def test_claims_about_the_same_evidence_are_judged_independently(tokenizer: Path) -> None:
    judge, encoder = tiny(), Encoder.of(tokenizer)
    rows = [{"documents": ["The gate is green.", "The old lock opens."], "hypothesis": text} for text in WORDS[:10]]
    rows += [{"premise": "The pilot waits at six.", "hypothesis": "the pilot waits ."}]
    together = evaluate.probabilities(judge, rows, encoder, threads=2)
    alone = np.concatenate([evaluate.probabilities(judge, [row], encoder) for row in rows])
    assert together == pytest.approx(alone, abs=1e-5)
