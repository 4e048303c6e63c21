"""The training loop: steps, checkpoints, resume."""

import json
import logging
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from judges.training.batches import Batch, Encoder, Sampler, batches
from judges.training.data import Group
from judges.training.model import Judge, loss

log = logging.getLogger(__name__)

RATE: Final = 1.5e-4
_LAST, _PLAN = "last.pt", "plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to train. ``steps`` in all; the learning rate rises over ``warm_up`` steps, holds, and falls to 0 over the
    last ``cool_down``. ``claims`` and ``tokens`` bound a batch: claims in it, and its tokens with their padding."""

    steps: int
    warm_up: int = 300
    cool_down: int = 2000
    rate: float = RATE
    claims: int = 112
    tokens: int = 6000
    seed: int = 20
    prefix: bool = True
    every: int = 250
    begun: bool = False
    """Whether the run set out from an exported judge in place of the base model."""
    half: bool = True
    """Multiply in bfloat16, where the CPU is made for it three times as fast."""


def train(judge: Judge, groups: list[Group], encoder: Encoder, plan: Plan, folder: Path) -> None:
    """Train ``judge``, going on from ``folder/last.pt`` if it is there.

    The state is written there every ``plan.every`` steps, by way of a temporary file. A changed plan is taken up: the
    rate follows from the step alone. The data seen before an interruption is not seen again before its epoch ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _PLAN).write_text(json.dumps(asdict(plan), indent=1) + "\n", encoding="utf-8")
    torch.manual_seed(plan.seed)
    optimizer = torch.optim.AdamW(_parameters(judge), lr=plan.rate, betas=(0.9, 0.98), eps=1e-6)
    step = _resume(judge, optimizer, folder / _LAST)
    stream = _stream(Sampler(groups, encoder, seed=plan.seed), encoder, plan, skip=step)
    judge.train()
    mean, began, counted = 0.0, time.monotonic(), 0
    while step < plan.steps:
        batch = next(stream)
        rate = _rate(plan, step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=plan.half):
            logits = judge(batch, prefix=plan.prefix)
        value = loss(logits, torch.from_numpy(batch.targets), torch.from_numpy(batch.priors))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_([one for one in judge.parameters() if one.requires_grad], 1.0)
        optimizer.step()
        step += 1
        counted += 1
        mean = value.item() if counted == 1 else 0.98 * mean + 0.02 * value.item()
        if step % 50 == 0:
            speed = (time.monotonic() - began) / counted
            log.info("step %d loss %.4f rate %.2e, %.2f s a step", step, mean, rate, speed)
        if step % plan.every == 0 or step == plan.steps:
            _save(judge, optimizer, step, folder / _LAST)
    log.info("done after %d steps", step)


def mean(runs: Sequence[Path], folder: Path) -> None:
    """Write the mean of the weights of several runs: a run in ``folder`` that can be shipped and is not gone on with.

    Runs that share their beginning lie close enough together for it, and it is better than each of them (Wortsman et
    al., "Model soups", ICML 2022). Raises FileNotFoundError, or ValueError for runs of different models.
    """
    states = [torch.load(run / _LAST, weights_only=True) for run in runs]
    first = states[0]["model"]
    if any(_shapes(state["model"]) != _shapes(first) for state in states):
        raise ValueError("the runs are of different models")
    weights = {name: torch.stack([state["model"][name].float() for state in states]).mean(0) for name in first}
    plans = [json.loads((run / _PLAN).read_text(encoding="utf-8")) for run in runs]
    folder.mkdir(parents=True, exist_ok=True)
    of = [{**plan, "steps": state["step"]} for plan, state in zip(plans, states, strict=True)]
    (folder / _PLAN).write_text(json.dumps({**plans[-1], "mean_of": of}, indent=1) + "\n", encoding="utf-8")
    torch.save({"model": weights, "step": max(state["step"] for state in states)}, folder / _LAST)


def _shapes(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items()}


def _parameters(judge: Judge) -> list[dict[str, Any]]:
    """No weight decay on biases and norms."""
    trained = [one for one in judge.parameters() if one.requires_grad]
    return [
        {"params": [one for one in trained if one.dim() > 1], "weight_decay": 0.01},
        {"params": [one for one in trained if one.dim() == 1], "weight_decay": 0.0},
    ]


def _rate(plan: Plan, step: int) -> float:
    rising = (step + 1) / max(1, plan.warm_up)
    falling = (plan.steps - step) / max(1, plan.cool_down)
    return plan.rate * min(1.0, rising, falling)


def _stream(sampler: Sampler, encoder: Encoder, plan: Plan, *, skip: int) -> Iterator[Batch]:
    """Batches without end. After a resume the order goes on with another seed: no step is spent on skipping."""
    number = 0
    while True:
        rng = random.Random(f"{plan.seed}/{number}/{skip}")
        yield from batches(sampler.epoch(number + 1000 * skip), encoder, rng, claims=plan.claims, tokens=plan.tokens)
        number += 1


def _save(judge: Judge, optimizer: torch.optim.Optimizer, step: int, file: Path) -> None:
    partial = file.with_suffix(".partial")
    torch.save({"model": judge.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    os.replace(partial, file)


def _resume(judge: Judge, optimizer: torch.optim.Optimizer, file: Path) -> int:
    if not file.is_file():
        return 0
    state = torch.load(file, weights_only=True)
    if "optimizer" not in state:
        raise ValueError(f"{file.parent} is the mean of other runs, and no run to go on with")
    judge.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
