"""Reads and writes checkpoints: the full state of a run, which can be resumed, and its trained part, which is small
enough for a repository."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from judges.training.encoder import adapters
from judges.training.encoder.bases import BASES, MINILM
from judges.training.encoder.model import Judge, from_base
from judges.training.encoder.progress import FILE as CURVE

PLAN: Final = "plan.json"
_LAST: Final = "last.pt"
_KEPT, _STATE = "trained.safetensors", "state.json"


def save(judge: Judge, optimizer: torch.optim.Optimizer, state: Mapping[str, Any], run: Path) -> None:
    """Write the state of a run, through a temporary file. With adapters, frozen parameters are left out, because they
    are the same as in the base model.
    """
    partial = run / f"{_LAST}.partial"
    torch.save({"model": adapters.state(judge), "optimizer": optimizer.state_dict(), **state}, partial)
    os.replace(partial, run / _LAST)


def resume(judge: Judge, optimizer: torch.optim.Optimizer, run: Path) -> tuple[int, int, float] | None:
    """Load the state of a run, if there is one. Return the steps and tokens so far, and the loss. Raises ValueError if
    the run is the mean of other runs.
    """
    if not (run / _LAST).is_file():
        return None
    state = torch.load(run / _LAST, weights_only=True)
    if "optimizer" not in state:
        raise ValueError(f"{run} is the mean of other runs, so it cannot be trained further")
    _fill(judge, state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]), int(state["tokens"]), float(state["loss"])


def first_step(run: Path) -> int | None:
    """Return the step at which the run in a folder began, or None if there is no run to resume."""
    if not (run / _LAST).is_file():
        return None
    return int(json.loads((run / PLAN).read_text(encoding="utf-8")).get("first", 0))


def load(run: Path, base: Path | None = None) -> tuple[Judge, int, Mapping[str, Any]]:
    """Return the encoder of a run (with its adapters merged), the run's steps, and its plan. ``base`` is a folder with
    the base model, to be used instead of the base model's packages. Raises FileNotFoundError.
    """
    state = torch.load(run / _LAST, weights_only=True)
    plan = json.loads((run / PLAN).read_text(encoding="utf-8"))
    judge = from_base(base or BASES[plan.get("base", MINILM)].folder())
    if plan.get("rank") and "mean_of" not in plan:
        adapters.adapt(judge, plan["rank"], frozen=plan["frozen"])
    _fill(judge, state["model"])
    return adapters.merge(judge).eval(), int(state["step"]), plan


def mean(runs: Sequence[Path], folder: Path, base: Path | None = None) -> None:
    """Write a run to ``folder`` whose weights are the mean of several runs. It can be shipped, but not trained further.
    Runs with a common start are close enough for averaging, and the mean is better than each single run (Wortsman et
    al., "Model soups", ICML 2022). Raises FileNotFoundError, or ValueError if the runs train different models.
    """
    found = [load(run, base) for run in runs]
    if len({plan.get("base", MINILM) for _, _, plan in found}) > 1:
        raise ValueError("the runs train different models")
    states = [judge.state_dict() for judge, _, _ in found]
    weights = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    folder.mkdir(parents=True, exist_ok=True)
    of = [{**plan, "steps": step} for _, step, plan in found]
    (folder / PLAN).write_text(json.dumps({**found[-1][2], "mean_of": of}, indent=1) + "\n", encoding="utf-8")
    torch.save({"model": weights, "step": max(step for _, step, _ in found)}, folder / _LAST)


def keep(run: Path, folder: Path) -> int:
    """Write the trained part of a run with adapters to ``folder``, in half precision, with its plan, steps and curve.
    These few MB are enough for ``begin`` to continue the run on a machine that has only the base model. Return the size
    in bytes. Raises FileNotFoundError, or ValueError for a run without adapters, because its trained part is nearly the
    whole model.
    """
    state = torch.load(run / _LAST, weights_only=True)
    plan = json.loads((run / PLAN).read_text(encoding="utf-8"))
    if not plan.get("rank") or "optimizer" not in state:
        raise ValueError(f"{run} is not a run with adapters")
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.half().contiguous() for name, value in state["model"].items()}, folder / _KEPT)
    summary = {"step": state["step"], "tokens": state["tokens"], "loss": state["loss"], "plan": plan}
    (folder / _STATE).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if (run / CURVE).is_file():
        shutil.copy(run / CURVE, folder / CURVE)
    return sum(file.stat().st_size for file in folder.iterdir())


def kept(folder: Path) -> Mapping[str, Any] | None:
    """Return the ``step``, ``tokens``, ``loss`` and ``plan`` of the run that ``keep`` wrote to ``folder``, or None if
    the folder contains none.
    """
    file = folder / _STATE
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def begin(judge: Judge, folder: Path) -> None:
    """Load the trained part that was written by ``keep`` into ``judge``, which must have adapters of the same rank.
    Raises ValueError if the parameters differ.
    """
    _fill(judge, load_file(folder / _KEPT))


def _fill(judge: Judge, given: Mapping[str, Tensor]) -> None:
    there = judge.state_dict()
    wrong = [name for name, value in given.items() if name not in there or there[name].shape != value.shape]
    if wrong or not adapters.state(judge).keys() <= given.keys():
        raise ValueError(f"the checkpoint is for a different model: {wrong[:1] or 'it lacks parameters'}")
    judge.load_state_dict(given, strict=False)
