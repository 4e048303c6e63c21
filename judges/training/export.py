"""The trained encoder as two ONNX graphs that share one file of weights.

``evidence.onnx`` reads a window and gives the keys and values of every layer; ``claim.onnx`` reads a claim against the
keys and values of one window, or of several put one after another, and gives the logits. Neither takes padding: a row
costs as much alone as in a batch. The word embedding is INT8 with a scale for each word. Quantised, the weights of
the linear layers are INT8 with a scale for each output; their inputs are quantised as they come, by the operator
``DynamicQuantizeMatMul`` of ONNX Runtime.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from judges.training.batches import CLAIM_TOKENS, WINDOW_TOKENS
from judges.training.model import LABELS, Judge

WEIGHTS: Final = "weights.bin"
EVIDENCE: Final = "evidence.onnx"
CLAIM: Final = "claim.onnx"
_KINDS: Final = ("weight", "bias")
_SHARED_FROM: Final = 256
"""Bytes from which on a tensor lies in the shared file."""
_MICROSOFT: Final = "com.microsoft"
_OPSETS: Final = [helper.make_opsetid("", 20), helper.make_opsetid(_MICROSOFT, 1)]

Array = npt.NDArray[Any]


class _Graph:
    """Nodes and weights in the order in which they are added."""

    def __init__(self, weights: Mapping[str, Array], *, heads: int, quantised: bool) -> None:
        self.weights = weights
        self.quantised = quantised
        self.heads = heads
        self.width = weights["words.weight"].shape[1]
        self.layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def add(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def split(self, value: str, count: int) -> list[str]:
        names = [f"{value}_part{part}" for part in range(count)]
        self.nodes.append(helper.make_node("Split", [value], names, name=f"{value}_split", axis=-1, num_outputs=count))
        return names

    def cut(self, value: str, place: str) -> tuple[str, str]:
        """What lies before and behind ``place`` on the last axis."""
        end, last = self.ints(2**31), self.ints(-1)
        return self.add("Slice", value, self.ints(0), place, last), self.add("Slice", value, place, end, last)

    def constant(self, name: str, value: Array) -> str:
        self.constants[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def ints(self, *values: int) -> str:
        return self.constant("ints_" + "_".join(str(value) for value in values), np.array(values, dtype=np.int64))

    def linear(self, value: str, name: str) -> str:
        weight = self.weights[f"{name}.weight"]
        bias = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        if not self.quantised:
            return self.add("Add", self.add("MatMul", value, self.constant(f"{name}.weight", weight.T)), bias)
        codes, scales = _by_row(weight)
        codes_name = self.constant(f"{name}.codes", codes.T)
        scales_name = self.constant(f"{name}.scales", scales[:, 0])
        return self.add("DynamicQuantizeMatMul", value, codes_name, scales_name, "", bias, domain=_MICROSOFT)

    def norm(self, value: str, name: str) -> str:
        scale = self.constant(f"{name}.weight", self.weights[f"{name}.weight"])
        bias = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        return self.add("LayerNormalization", value, scale, bias, axis=-1, epsilon=1e-12)

    def embed(self, ids: str, *, start: int, most: int, kind: int) -> str:
        positions = self.weights["positions.weight"][start : start + most] + self.weights["kinds.weight"][kind]
        table = self.constant(f"positions.{kind}", positions)
        length = self.add("Slice", self.add("Shape", ids), self.ints(1), self.ints(2))
        place = self.add("Slice", table, self.ints(0), length, self.ints(0))
        codes, scales = _by_row(self.weights["words.weight"])
        words = self.add("Gather", self.constant("words", codes), ids)
        scale = self.add("Gather", self.constant("words_scale", scales), ids)
        word = self.add("Mul", self.add("Cast", words, to=TensorProto.FLOAT), scale)
        return self.norm(self.add("Add", word, place), "norm")

    def ints_scalar(self, value: int) -> str:
        return self.constant(f"scalar_{value}", np.array(value, dtype=np.int64))

    def heads_of(self, value: str, *order: int) -> str:
        size = self.width // self.heads
        return self.add("Transpose", self.add("Reshape", value, self.ints(0, 0, self.heads, size)), perm=list(order))

    def project(self, states: str, layer: str) -> tuple[str, str, str]:
        """Queries (rows, heads, tokens, size), already divided; keys (…, size, tokens); values (…, tokens, size)."""
        query, key, value = self.split(self.linear(states, f"{layer}.qkv"), 3)
        root = self.constant("root", np.array((self.width // self.heads) ** -0.5, dtype=np.float32))
        return (
            self.add("Mul", self.heads_of(query, 0, 2, 1, 3), root),
            self.heads_of(key, 0, 2, 3, 1),
            self.heads_of(value, 0, 2, 1, 3),
        )

    def finish(self, states: str, attended: str, layer: str) -> str:
        flat = self.add("Reshape", self.add("Transpose", attended, perm=[0, 2, 1, 3]), self.ints(0, 0, self.width))
        middle = self.norm(self.add("Add", states, self.linear(flat, f"{layer}.out")), f"{layer}.norm")
        inner = self.add("Gelu", self.linear(middle, f"{layer}.up"))
        return self.norm(self.add("Add", middle, self.linear(inner, f"{layer}.down")), f"{layer}.end_norm")

    def head(self, states: str) -> None:
        """The logits, from the claim's first state and the mean of all of them."""
        first = self.add("Gather", states, self.ints_scalar(0), axis=1)
        mean = self.add("ReduceMean", states, self.ints(1), keepdims=0)
        pooled = self.add("Tanh", self.linear(self.add("Concat", first, mean, axis=-1), "pool"))
        weight, bias = (self.constant(f"classify.{kind}", self.weights[f"classify.{kind}"]) for kind in _KINDS)
        self.add("Gemm", pooled, weight, bias, transB=1, name="logits")

    def model(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "judge", inputs, outputs, initializer=list(self.constants.values()))
        return helper.make_model(graph, opset_imports=_OPSETS, ir_version=10)


def _by_row(weights: Array) -> tuple[Array, Array]:
    """Symmetric INT8 codes, and the scale of each row."""
    scales = np.abs(weights).max(axis=1, keepdims=True) / 127
    scales[scales == 0] = 1.0
    return np.round(weights / scales).astype(np.int8), scales.astype(np.float32)


def _evidence(graph: _Graph) -> onnx.ModelProto:
    states = graph.embed("ids", start=CLAIM_TOKENS, most=WINDOW_TOKENS + 1, kind=1)
    keys: list[str] = []
    values: list[str] = []
    for number in range(graph.layers):
        layer = f"layers.{number}"
        query, key, value = graph.project(states, layer)
        keys.append(key)
        values.append(value)
        if number + 1 < graph.layers:
            weights = graph.add("Softmax", graph.add("MatMul", query, key), axis=-1)
            states = graph.finish(states, graph.add("MatMul", weights, value), layer)
    half = TensorProto.FLOAT16
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        graph.add("Cast", key, to=half, name=f"keys.{number}")
        graph.add("Cast", value, to=half, name=f"values.{number}")
    return graph.model([_ids()], _states(graph, "tokens"))


def _logits() -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", len(LABELS)])


def _ids() -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "tokens"])


def _states(graph: _Graph, tokens: str) -> list[onnx.ValueInfoProto]:
    """The keys of every layer, then the values, by (rows, heads, size, tokens) and (rows, heads, tokens, size)."""
    size = graph.width // graph.heads
    return [
        helper.make_tensor_value_info(f"{name}.{number}", TensorProto.FLOAT16, ["rows", graph.heads, *shape])
        for name, shape in (("keys", [size, tokens]), ("values", [tokens, size]))
        for number in range(graph.layers)
    ]


def _claim(graph: _Graph) -> onnx.ModelProto:
    states = graph.embed("ids", start=0, most=CLAIM_TOKENS, kind=0)
    length = graph.add("Slice", graph.add("Shape", "keys.0"), graph.ints(3), graph.ints(4))
    for number in range(graph.layers):
        layer = f"layers.{number}"
        query, key, value = graph.project(states, layer)
        far_key, far_value = (
            graph.add("Cast", f"{name}.{number}", to=TensorProto.FLOAT) for name in ("keys", "values")
        )
        scores = graph.add("Concat", graph.add("MatMul", query, far_key), graph.add("MatMul", query, key), axis=-1)
        attention = graph.add("Softmax", scores, axis=-1)
        from_far, from_own = graph.cut(attention, length)
        attended = graph.add("Add", graph.add("MatMul", from_far, far_value), graph.add("MatMul", from_own, value))
        states = graph.finish(states, attended, layer)
    graph.head(states)
    return graph.model([_ids(), *_states(graph, "evidence")], [_logits()])


def _plain(graph: _Graph) -> onnx.ModelProto:
    """The plain cross-encoder of the same weights, in which all attends to all: what the two graphs compare with."""
    claim = graph.embed("ids", start=0, most=CLAIM_TOKENS, kind=0)
    evidence = graph.embed("evidence_ids", start=CLAIM_TOKENS, most=WINDOW_TOKENS + 1, kind=1)
    states = graph.add("Concat", claim, evidence, axis=1)
    for number in range(graph.layers):
        layer = f"layers.{number}"
        query, key, value = graph.project(states, layer)
        attention = graph.add("Softmax", graph.add("MatMul", query, key), axis=-1)
        states = graph.finish(states, graph.add("MatMul", attention, value), layer)
    length = graph.add("Slice", graph.add("Shape", "ids"), graph.ints(1), graph.ints(2))
    graph.head(graph.add("Slice", states, graph.ints(0), length, graph.ints(1)))
    evidence_ids = helper.make_tensor_value_info("evidence_ids", TensorProto.INT64, ["rows", "evidence"])
    return graph.model([_ids(), evidence_ids], [_logits()])


def export_plain(judge: Judge, file: Path, *, quantised: bool) -> None:
    """Write the plain cross-encoder with its weights in one file; for measuring alone."""
    weights = {name: tensor.detach().float().numpy() for name, tensor in judge.state_dict().items()}
    onnx.save(_plain(_Graph(weights, heads=judge.heads, quantised=quantised)), file)


def export(judge: Judge, tokenizer: Path, folder: Path, *, quantised: bool = True, extra: Mapping[str, Any]) -> None:
    """Write the graphs, their weights, ``tokenizer.json``, ``config.json`` and ``SHA256SUMS`` into ``folder``.

    ``extra`` goes into the config beside what a runtime needs: labels and lengths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().float().numpy() for name, tensor in judge.state_dict().items()}
    _share(
        {
            EVIDENCE: _evidence(_Graph(weights, heads=judge.heads, quantised=quantised)),
            CLAIM: _claim(_Graph(weights, heads=judge.heads, quantised=quantised)),
        },
        folder,
    )
    texts = Tokenizer.from_file(str(tokenizer))
    texts.no_truncation()
    texts.no_padding()
    texts.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "prefix-cross-encoder",
        "id2label": {str(place): label for place, label in enumerate(LABELS)},
        "claim_tokens": CLAIM_TOKENS,
        "window_tokens": WINDOW_TOKENS,
        **extra,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    names = [CLAIM, "config.json", EVIDENCE, "tokenizer.json", WEIGHTS]
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="ascii")


def _share(models: Mapping[str, onnx.ModelProto], folder: Path) -> None:
    """Move large tensors of all graphs into one file, equal ones once."""
    written: dict[bytes, tuple[int, int]] = {}
    with (folder / WEIGHTS).open("wb") as file:
        for model in models.values():
            for tensor in model.graph.initializer:
                raw = numpy_helper.to_array(tensor).tobytes()
                if len(raw) < _SHARED_FROM:
                    continue
                digest = hashlib.sha256(raw).digest()
                if digest not in written:
                    file.write(b"\0" * (-file.tell() % 64))
                    written[digest] = (file.tell(), len(raw))
                    file.write(raw)
                offset, length = written[digest]
                tensor.ClearField("raw_data")
                for name in ("float_data", "int32_data", "int64_data"):
                    tensor.ClearField(name)
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (("location", WEIGHTS), ("offset", str(offset)), ("length", str(length))):
                    tensor.external_data.add(key=key, value=value)
    for name, model in models.items():
        (folder / name).write_bytes(model.SerializeToString(deterministic=True))
