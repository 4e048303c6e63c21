"""``python -m judges.training``: train, measure, ship."""

import argparse
import logging
import sys
from pathlib import Path

import torch

from judges.training.data import written_claims as written
from judges.training.data.batching import Encoder
from judges.training.data.datasets import load, split
from judges.training.encoder import exported_weights as exported
from judges.training.encoder.bases import BASES, MINILM
from judges.training.encoder.model import DROPOUT, from_base
from judges.training.encoder.progress import Curve
from judges.training.encoder.training_loop import Plan, mean, train
from judges.training.evaluation import encoder_evaluation as evaluate
from judges.training.evaluation.metrics import table
from judges.training.shipping import ship
from judges.training.shipping.onnx_export import export_plain


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 if it succeeded."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    torch.set_num_threads(given.threads)
    return int(given.command(given) or 0)


def _train(given: argparse.Namespace) -> None:
    pool = load(given.data, stated_only=given.stated_only)
    groups, kept = split([*pool, *written.load(pool)])
    base = BASES[given.base]
    folder = given.base_folder or base.folder()
    plan = Plan(
        base=given.base,
        steps=given.steps,
        cool_down=given.cool_down,
        rate=given.rate or base.rate,
        prefix=not given.plain,
        frozen=given.frozen,
        frozen_until=given.frozen_until,
        priors_from=given.priors_from,
        seed=given.seed,
        begun=given.begin is not None,
        half=not given.exact,
        threads=given.threads,
    )
    judge = from_base(folder, dropout=given.dropout)
    if given.begin is not None:
        exported.restore(given.begin, judge)
    encoder = Encoder.of(folder / "tokenizer.json")
    dev = evaluate.load(given.data / "dev.jsonl.gz")
    curve = Curve(given.run, encoder, dev, kept, prefix=plan.prefix, threads=given.threads)
    train(judge, groups, encoder, plan, given.run, curve)


def _mean(given: argparse.Namespace) -> None:
    mean(given.of, given.run)


def _measure(given: argparse.Namespace) -> None:
    run = ship.restore(given.run, given.base_folder)
    rows = evaluate.load(given.data / "dev.jsonl.gz")
    judge = run.judge if given.exact else run.judge.halved()
    found = evaluate.probabilities(judge, rows, run.encoder, prefix=not given.plain, threads=given.threads)
    sys.stdout.write(f"step {run.step}\n\n{table(evaluate.by_source(rows, found, threshold=0.5))}")


def _ship(given: argparse.Namespace) -> None:
    report = ship.ship(given.data, given.run, given.folder, stated_only=given.stated_only, base=given.base_folder)
    sys.stdout.write(f"INT8 loses {report['int8_loss']:.4f} of balanced accuracy; {report['bytes']:,} bytes\n")


def _plain(given: argparse.Namespace) -> None:
    run = ship.restore(given.run, given.base_folder)
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, quantised in (("fp32", False), ("int8", True)):
        export_plain(run.judge, given.folder / f"{name}.onnx", quantised=quantised)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m judges.training", description=__doc__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data", type=Path, help="folder with train, snli and dev .jsonl.gz")
    shared.add_argument("--run", type=Path, required=True, help="folder of checkpoints")
    shared.add_argument("--base-folder", type=Path, help="folder of the base model, in place of its packages")
    shared.add_argument("--stated-only", action="store_true", help="leave out data whose licence is not stated")
    shared.add_argument("--threads", type=int, default=2, help="cores to compute on")
    shared.add_argument("--plain", action="store_true", help="a cross-encoder in which all attends to all, to compare")
    shared.add_argument("--exact", action="store_true", help="multiply in float32, for a CPU that has no bfloat16")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("train", parents=[shared], help="train, or go on where a run stopped")
    one.add_argument("--base", choices=sorted(BASES), default=MINILM, help="model to begin with")
    one.add_argument("--steps", type=int, default=4000)
    one.add_argument("--cool-down", type=int, default=1500, help="last steps, over which the rate falls to 0")
    one.add_argument("--rate", type=float, help="highest learning rate, in place of the one that suits the base model")
    one.add_argument("--dropout", type=float, default=DROPOUT)
    one.add_argument("--frozen", type=int, default=0, help="lowest layers that are not trained at first")
    one.add_argument("--frozen-until", type=int, default=0, help="steps after which they are")
    one.add_argument("--priors-from", type=int, default=0, help="step from which on what words tell is added")
    one.add_argument("--begin", type=Path, help="folder of an exported judge to begin with, in place of the base model")
    one.add_argument("--seed", type=int, default=20)
    one.set_defaults(command=_train)
    one = commands.add_parser("mean", parents=[shared], help="the mean of the weights of several runs")
    one.add_argument("--of", type=Path, required=True, action="append", help="folder of checkpoints; once for each run")
    one.set_defaults(command=_mean)
    one = commands.add_parser("measure", parents=[shared], help="figures of the encoder alone")
    one.set_defaults(command=_measure)
    one = commands.add_parser("ship", parents=[shared], help="export, fit the combiner, measure, write the card")
    one.add_argument("--folder", type=Path, required=True, help="where the model goes")
    one.set_defaults(command=_ship)
    one = commands.add_parser("plain", parents=[shared], help="a plain cross-encoder of the same weights, to time")
    one.add_argument("--folder", type=Path, required=True, help="where fp32.onnx and int8.onnx go")
    one.set_defaults(command=_plain)
    return parser


if __name__ == "__main__":
    sys.exit(main())
