"""Loads an exported judge for further training, if its checkpoints no longer exist."""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from judges.training.encoder.model import Judge
from judges.training.shipping.onnx_export import CLAIM, EVIDENCE, Array


def restore(folder: Path, base: Judge) -> Judge:
    """Return ``base`` with the encoder's weights from the INT8 graphs in ``folder``, as ``export`` wrote them. The
    codes are dequantised, so the weights are the same as in the graphs. Word embeddings, which are never trained, are
    taken from ``base``, as are the relative position biases and any positions that the graphs don't contain. Raises
    FileNotFoundError, and ValueError for graphs that are not quantised or not of this size.
    """
    claim, evidence = (_constants(folder / name) for name in (CLAIM, EVIDENCE))
    state = base.state_dict()
    for name in [name for name in state if not name.startswith(("words.", "positions.", "kinds.", "relative."))]:
        codes = claim.get(f"{name.removesuffix('weight')}codes") if name.endswith(".weight") else None
        if codes is not None:
            value = codes.T.astype(np.float32) * claim[f"{name.removesuffix('weight')}scales"][:, None]
        else:
            value = claim.get(name, np.empty(0))
        if value.shape != state[name].shape:
            raise ValueError(f"{folder}: expected INT8 graphs of this size, but {name} has a different size")
        state[name] = torch.from_numpy(value.copy())
    start = 0
    for kind, table in enumerate((claim["positions.0"], evidence["positions.1"])):
        # The graph contains only the sum of the two embeddings. ``kinds`` keeps its values, and ``positions`` gets the
        # rest.
        state["positions.weight"][start : start + len(table)] = (
            torch.from_numpy(table.copy()) - state["kinds.weight"][kind]
        )
        start += len(table)
    base.load_state_dict(state)
    return base


def _constants(file: Path) -> dict[str, Array]:
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(file).graph.initializer}
