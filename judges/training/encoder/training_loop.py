"""The training loop: steps, checkpoints, resume."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from judges.training.data.batching import Batch, Encoder, batches
from judges.training.data.datasets import Group
from judges.training.data.sampling import Sampler
from judges.training.encoder import checkpoints
from judges.training.encoder.bases import MINILM
from judges.training.encoder.distillation import Teacher, distilled_loss
from judges.training.encoder.model import Judge, loss

log = logging.getLogger(__name__)

_SMOOTH: Final = 0.99

Progress = Callable[[Judge, int, int, float], None]
"""Called at intervals with the current judge, the steps and tokens so far, and the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The training plan. ``steps`` is the total; the learning rate rises over ``warm_up`` steps, stays constant, and
    falls to 0 over the last ``cool_down`` steps. A step consists of ``parts`` batches, each limited by ``claims`` and
    ``tokens``.
    """

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
    """The number of steps between checkpoints."""
    minutes: float = 8.0
    """The maximum number of minutes between checkpoints."""
    shown: int = 500
    """The number of steps between progress evaluations."""
    frozen: int = 0
    """The number of lowest layers that are frozen in the first ``frozen_until`` steps. If it isn't 0, the embeddings
    are frozen too."""
    frozen_until: int = 0
    rank: int = 0
    """The rank of the adapters, or 0 to train the matrices themselves. With adapters, the lowest layers stay frozen."""
    first: int = 0
    """The step at which this run began, if it continues another run. The learning rate warms up again from there."""
    priors_from: int = 0
    """The first step at which the wording prior is added to the model's logits. If the prior were added from the first
    step, the model would learn nothing for a long time. With a teacher, the prior isn't used."""
    begun: bool = False
    """Whether the run started from an exported judge instead of the base model."""
    half: bool = True
    """Whether to compute in bfloat16, which is three times as fast on CPUs that support it. The weights keep their
    precision."""
    threads: int = 2

    def frozen_at(self, step: int) -> int:
        """Return the number of lowest layers that are frozen at ``step``."""
        return self.frozen if self.rank or step < self.frozen_until else 0


def train(
    judge: Judge,
    groups: list[Group],
    encoder: Encoder,
    plan: Plan,
    folder: Path,
    progress: Progress | None = None,
    *,
    tokens: int = 0,
    teacher: Teacher | None = None,
) -> None:
    """Train ``judge``, resuming the run in ``folder`` if it exists. The state of the run is written there every
    ``plan.every`` steps or ``plan.minutes`` minutes. The plan may change between runs, because the learning rate
    depends only on the step and on the step at which the run began, which doesn't change. Data used before an
    interruption isn't used again in the same epoch. ``tokens`` is the number of tokens already read by the run that
    this run continues. With a ``teacher``, the judge learns from its probabilities besides the labels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (first := checkpoints.first_step(folder)) is not None:
        plan = replace(plan, first=first)
    (folder / checkpoints.PLAN).write_text(json.dumps(asdict(plan), indent=1) + "\n", encoding="utf-8")
    torch.manual_seed(plan.seed)
    judge.freeze(plan.frozen if plan.rank else 0)
    trained = [parameter for parameter in judge.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(_by_decay(trained), lr=plan.rate, betas=(0.9, 0.98), eps=1e-6, fused=True)
    step, tokens, mean = checkpoints.resume(judge, optimizer, folder) or (plan.first, tokens, 0.0)
    log.info("beginning at step %d", step)
    stream = _stream(Sampler(groups, encoder, seed=plan.seed), encoder, plan, skip=step)
    began, counted = time.monotonic(), 0
    saved = began
    with _Workers(judge, trained, plan, teacher) as workers:
        while step < plan.steps:
            workers.begin([next(stream) for _ in range(plan.parts)], step)
            for group in optimizer.param_groups:
                group["lr"] = _rate(plan, step)
            value, read = workers.end()
            nn.utils.clip_grad_norm_([parameter for parameter in trained if parameter.grad is not None], 1.0)
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
                checkpoints.save(judge, optimizer, {"step": step, "tokens": tokens, "loss": mean}, folder)
            if progress is not None and (step % plan.shown == 0 or step == plan.steps):
                progress(workers.judge, step, tokens, mean)
                began, counted = time.monotonic(), 0
    log.info("done after %d steps", step)


class _Workers:
    """Threads that compute the gradients of batches, on one core each. They wait for each other only at the end of a
    step. If each small operation were spread over all cores, it would spend most of its time waiting on a busy machine.
    """

    def __init__(self, judge: Judge, trained: Sequence[nn.Parameter], plan: Plan, teacher: Teacher | None) -> None:
        self._plan = plan
        self._teacher = teacher
        self._trained = trained
        self._source = judge
        self.judge = judge.halved() if plan.half else judge
        self._pool = ThreadPoolExecutor(plan.threads, initializer=torch.set_num_threads, initargs=(1,))
        self._lock = threading.Lock()
        names = {id(parameter): name for name, parameter in judge.named_parameters()}
        copies = dict(self.judge.named_parameters())
        self._copies = [copies[names[id(parameter)]] for parameter in trained]
        self._running: list[Future[float]] = []
        self._tokens = 0

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def begin(self, group: Sequence[Batch], step: int) -> None:
        """Start computing the gradients of the mean loss over the claims in ``group``."""
        for parameter in self._trained:
            parameter.grad = None
        self.judge.train()
        self.judge.freeze(self._plan.frozen_at(step))
        claims = sum(len(batch.targets) for batch in group)
        self._tokens = sum(len(batch.ids) for batch in group)
        use_prior = step >= self._plan.priors_from
        self._running = [self._pool.submit(self._add, batch, claims, use_prior) for batch in group]

    def end(self) -> tuple[float, int]:
        """Wait for the gradients. Return the loss and the number of tokens read."""
        return sum(loss_part.result() for loss_part in self._running), self._tokens

    def renew(self) -> None:
        """Copy the updated weights."""
        if self.judge is not self._source:
            with torch.no_grad():
                for copy, parameter in zip(self._copies, self._trained, strict=True):
                    if parameter.grad is not None:
                        copy.copy_(parameter)

    def _add(self, batch: Batch, claims: int, use_prior: bool) -> float:
        pairs = zip(self._trained, self._copies, strict=True)
        trained = [(parameter, copy) for parameter, copy in pairs if copy.requires_grad]
        targets = torch.from_numpy(batch.targets)
        logits = self.judge(batch, prefix=self._plan.prefix)
        if self._teacher is not None:
            value = distilled_loss(logits, self._teacher.logits(batch), targets)
        else:
            value = loss(logits, targets, torch.from_numpy(batch.priors) if use_prior else None)
        value = value * (len(targets) / claims)
        gradients = torch.autograd.grad(value, [copy for _, copy in trained])
        with self._lock:
            for (parameter, _), gradient in zip(trained, gradients, strict=True):
                if parameter.grad is None:
                    parameter.grad = gradient.to(parameter.dtype)
                else:
                    parameter.grad.add_(gradient)
        return value.item()


def _by_decay(trained: Sequence[nn.Parameter]) -> list[dict[str, Any]]:
    """Biases and norms have no weight decay."""
    return [
        {"params": [parameter for parameter in trained if parameter.dim() > 1], "weight_decay": 0.01},
        {"params": [parameter for parameter in trained if parameter.dim() == 1], "weight_decay": 0.0},
    ]


def _rate(plan: Plan, step: int) -> float:
    rising = (step - plan.first + 1) / max(1, plan.warm_up)
    falling = (plan.steps - step) / max(1, plan.cool_down)
    return plan.rate * min(1.0, rising, falling)


def _stream(sampler: Sampler, encoder: Encoder, plan: Plan, *, skip: int) -> Iterator[Batch]:
    """Yield an infinite stream of batches. After a resume, the order continues with a different seed, so no time is
    spent on skipping data.
    """
    number = 0
    while True:
        yield from batches(sampler.epoch(number + 1000 * skip), encoder, claims=plan.claims, tokens=plan.tokens)
        number += 1
