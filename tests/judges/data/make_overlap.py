"""Writes ``overlap.onnx``: a cross-encoder without weights, whose answers can be worked out by hand. Needs ``onnx``.

The share of the claim's tokens that are in the evidence, times eight, is the logit of entailment, or of
contradiction if the claim has the token "no". The logit of neutral is 4.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NO = 2053
"""The id of "no" in the vocabulary of BERT, uncased."""


def number(name: str, value: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, dtype=np.float32), name)


def main() -> None:
    node = helper.make_node
    nodes = [
        node("Cast", ["attention_mask"], ["present"], to=TensorProto.FLOAT),
        node("Cast", ["token_type_ids"], ["second"], to=TensorProto.FLOAT),
        node("Sub", ["one", "second"], ["first"]),
        node("Mul", ["present", "first"], ["evidence"]),
        node("Mul", ["present", "second"], ["claim"]),
        node("Unsqueeze", ["input_ids", "axis2"], ["rows"]),
        node("Unsqueeze", ["input_ids", "axis1"], ["columns"]),
        node("Equal", ["rows", "columns"], ["same"]),
        node("Cast", ["same"], ["alike"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["evidence", "axis1"], ["evidence_columns"]),
        node("Mul", ["alike", "evidence_columns"], ["hits"]),
        node("ReduceMax", ["hits", "axis2"], ["hit"], keepdims=0),
        node("Mul", ["hit", "claim"], ["found"]),
        node("ReduceSum", ["found", "axis1"], ["count"], keepdims=1),
        node("ReduceSum", ["claim", "axis1"], ["all"], keepdims=1),
        node("Div", ["count", "all"], ["share"]),
        node("Mul", ["share", "eight"], ["agreement"]),
        node("Equal", ["input_ids", "no"], ["denials"]),
        node("Cast", ["denials"], ["denied"], to=TensorProto.FLOAT),
        node("Mul", ["denied", "claim"], ["denied_claim"]),
        node("ReduceMax", ["denied_claim", "axis1"], ["denies"], keepdims=1),
        node("Sub", ["one", "denies"], ["affirms"]),
        node("Mul", ["agreement", "affirms"], ["entailment"]),
        node("Mul", ["agreement", "denies"], ["contradiction"]),
        node("Mul", ["share", "zero"], ["nothing"]),
        node("Add", ["nothing", "four"], ["neutral"]),
        node("Concat", ["contradiction", "entailment", "neutral"], ["logits"], axis=1),
    ]
    constants = [number("one", 1), number("eight", 8), number("four", 4), number("zero", 0)]
    constants += [numpy_helper.from_array(np.array([axis], dtype=np.int64), f"axis{axis}") for axis in (1, 2)]
    constants.append(numpy_helper.from_array(np.array(NO, dtype=np.int64), "no"))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])]
    graph = helper.make_graph(nodes, "overlap", inputs, outputs, initializer=constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, Path(__file__).with_name("overlap.onnx"))


if __name__ == "__main__":
    main()
