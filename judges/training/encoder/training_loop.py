"""The training loop: steps, checkpoints, resume."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from judges.training.data.batching import Batch, Encoder, Sampler, batches
from judges.training.data.datasets import Group
from judges.training.encoder.bases import MINILM
from judges.training.encoder.model import Judge, loss

log = logging.getLogger(__name__)

_LAST, _PLAN = "last.pt", "plan.json"
_SMOOTH: Final = 0.99

Progress = Callable[[Judge, int, int, float], None]
"""Told now and then of the judge as it stands, the steps and tokens it has behind it, and its loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to train. ``steps`` in all; the learning rate rises over ``warm_up`` steps, holds, and falls to 0 over the
    last ``cool_down``. A step is ``parts`` batches, each bounded by ``claims`` and ``tokens``."""

    base: str = MINILM
    steps: int
    warm_up: int = 300
    cool_down: int = 1500
    rate: float
    parts: int = 4
    claims: int = 40
    tokens: int = 1500
    seed: int = 20
    prefix: bool = True
    every: int = 100
    """Steps from one checkpoint to the next."""
    minutes: float = 8.0
    """Longest time from one checkpoint to the next."""
    shown: int = 500
    """Steps from one look at its progress to the next."""
    frozen: int = 0
    """Lowest layers that are not trained, and with any the embeddings, in the first ``frozen_until`` steps."""
    frozen_until: int = 0
    priors_from: int = 0
    """The step from which on what a claim's words tell is added to what the model says; learning against it from the
    first step learns nothing for long."""
    begun: bool = False
    """Whether the run set out from an exported judge in place of the base model."""
    half: bool = True
    """Compute in bfloat16, where the CPU is made for it three times as fast; the weights stay as they are."""
    threads: int = 2


def train(
    judge: Judge, groups: list[Group], encoder: Encoder, plan: Plan, folder: Path, progress: Progress | None = None
) -> None:
    """Train ``judge``, going on from ``folder/last.pt`` if it is there.

    The state is written there every ``plan.every`` steps or ``plan.minutes``, by way of a temporary file. A changed
    plan is taken up: the rate follows from the step alone. The data seen before an interruption is not seen again
    before its epoch ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _PLAN).write_text(json.dumps(asdict(plan), indent=1) + "\n", encoding="utf-8")
    torch.manual_seed(plan.seed)
    judge.freeze(0)
    trained = [one for one in judge.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(_by_decay(trained), lr=plan.rate, betas=(0.9, 0.98), eps=1e-6, fused=True)
    step, tokens, mean = _resume(judge, optimizer, folder / _LAST)
    log.info("beginning at step %d", step)
    stream = _stream(Sampler(groups, encoder, seed=plan.seed), encoder, plan, skip=step)
    began, counted = time.monotonic(), 0
    saved = began
    with _Workers(judge, trained, plan) as workers:
        while step < plan.steps:
            workers.begin([next(stream) for _ in range(plan.parts)], step)
            for group in optimizer.param_groups:
                group["lr"] = _rate(plan, step)
            value, read = workers.end()
            nn.utils.clip_grad_norm_([one for one in trained if one.grad is not None], 1.0)
            optimizer.step()
            workers.renew()
            step += 1
            tokens += read
            counted += read
            mean = _SMOOTH * mean + (1 - _SMOOTH) * value if mean else value
            if step % 10 == 0:
                speed = counted / (time.monotonic() - began)
                log.info("step %d, %d tokens: loss %.4f (%.4f), %.0f tokens/s", step, tokens, mean, value, speed)
                began, counted = time.monotonic(), 0
            late = time.monotonic() - saved >= 60 * plan.minutes
            if step % plan.every == 0 or step == plan.steps or late:
                saved = time.monotonic()
                _save(judge, optimizer, {"step": step, "tokens": tokens, "loss": mean}, folder / _LAST)
            if progress is not None and (step % plan.shown == 0 or step == plan.steps):
                progress(workers.judge, step, tokens, mean)
                began, counted = time.monotonic(), 0
    log.info("done after %d steps", step)


class _Workers:
    """Threads that compute the gradients of batches, one core each: none waits for another before a step's end, which
    is what many small operations spread over all cores do most of the time on a busy machine."""

    def __init__(self, judge: Judge, trained: Sequence[nn.Parameter], plan: Plan) -> None:
        self._plan = plan
        self._trained = trained
        self._source = judge
        self.judge = judge.halved() if plan.half else judge
        self._pool = ThreadPoolExecutor(plan.threads, initializer=torch.set_num_threads, initargs=(1,))
        self._lock = threading.Lock()
        names = {id(one): name for name, one in judge.named_parameters()}
        mine = dict(self.judge.named_parameters())
        self._copies = [mine[names[id(one)]] for one in trained]
        self._running: list[Future[float]] = []
        self._tokens = 0

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def begin(self, given: Sequence[Batch], step: int) -> None:
        """Set out to compute the gradients of the mean loss over the claims of ``given``."""
        for one in self._trained:
            one.grad = None
        self.judge.train()
        self.judge.freeze(self._plan.frozen if step < self._plan.frozen_until else 0)
        claims = sum(len(batch.targets) for batch in given)
        self._tokens = sum(len(batch.ids) for batch in given)
        told = step >= self._plan.priors_from
        self._running = [self._pool.submit(self._add, batch, claims, told) for batch in given]

    def end(self) -> tuple[float, int]:
        """Wait for the gradients; the loss and the tokens read."""
        return sum(one.result() for one in self._running), self._tokens

    def renew(self) -> None:
        """Take over the weights as they have become."""
        if self.judge is not self._source:
            with torch.no_grad():
                for copy, one in zip(self._copies, self._trained, strict=True):
                    if one.grad is not None:
                        copy.copy_(one)

    def _add(self, batch: Batch, claims: int, told: bool) -> float:
        wanted = [(one, copy) for one, copy in zip(self._trained, self._copies, strict=True) if copy.requires_grad]
        priors = torch.from_numpy(batch.priors) if told else None
        logits = self.judge(batch, prefix=self._plan.prefix)
        value: Tensor = loss(logits, torch.from_numpy(batch.targets), priors) * (len(batch.targets) / claims)
        found = torch.autograd.grad(value, [copy for _, copy in wanted])
        with self._lock:
            for (one, _), gradient in zip(wanted, found, strict=True):
                if one.grad is None:
                    one.grad = gradient.to(one.dtype)
                else:
                    one.grad.add_(gradient)
        return value.item()


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


def _by_decay(trained: Sequence[nn.Parameter]) -> list[dict[str, Any]]:
    """No weight decay on biases and norms."""
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
        yield from batches(sampler.epoch(number + 1000 * skip), encoder, claims=plan.claims, tokens=plan.tokens)
        number += 1


def _save(judge: Judge, optimizer: torch.optim.Optimizer, state: Mapping[str, Any], file: Path) -> None:
    partial = file.with_suffix(".partial")
    torch.save({"model": judge.state_dict(), "optimizer": optimizer.state_dict(), **state}, partial)
    os.replace(partial, file)


def _resume(judge: Judge, optimizer: torch.optim.Optimizer, file: Path) -> tuple[int, int, float]:
    """Steps and tokens behind it, and the loss."""
    if not file.is_file():
        return 0, 0, 0.0
    state = torch.load(file, weights_only=True)
    if "optimizer" not in state:
        raise ValueError(f"{file.parent} is the mean of other runs, and no run to go on with")
    judge.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]), int(state["tokens"]), float(state["loss"])
