"""``python -m judges.training``: trains, evaluates and ships the judge."""

import argparse
import logging
import sys
from pathlib import Path

import torch

from judges.training.data import written_claims as written
from judges.training.data.batching import Encoder
from judges.training.data.datasets import load, split
from judges.training.encoder import adapters, checkpoints
from judges.training.encoder import exported_weights as exported
from judges.training.encoder.bases import BASES, MINILM
from judges.training.encoder.distillation import Teacher
from judges.training.encoder.model import DROPOUT, from_base
from judges.training.encoder.progress import Curve
from judges.training.encoder.training_loop import Plan, train
from judges.training.evaluation import encoder_evaluation as evaluate
from judges.training.evaluation import judge_evaluation
from judges.training.evaluation.metrics import calibration_table, reliability, table, truth_of
from judges.training.shipping import ship
from judges.training.shipping.onnx_export import export_plain


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Return 0 if the command succeeded."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    torch.set_num_threads(options.threads)
    return int(options.command(options) or 0)


def _train(options: argparse.Namespace) -> None:
    pool = load(options.data, stated_only=options.stated_only)
    groups, kept = split([*pool, *written.load(pool)])
    base = BASES[options.base]
    folder = options.base_folder or base.folder()
    kept_run = checkpoints.kept(options.begin) if options.begin else None
    plan = Plan(
        base=options.base,
        steps=options.steps,
        warm_up=options.warm_up,
        parts=options.parts,
        shown=options.shown,
        cool_down=options.cool_down,
        rate=options.rate or base.rate,
        prefix=not options.plain,
        frozen=options.frozen,
        frozen_until=options.frozen_until,
        rank=options.rank,
        first=kept_run["step"] if kept_run else 0,
        priors_from=options.priors_from,
        seed=options.seed,
        begun=options.begin is not None and kept_run is None,
        half=not options.exact,
        threads=options.threads,
    )
    judge = from_base(folder, dropout=options.dropout)
    if options.begin is not None and kept_run is None:
        exported.restore(options.begin, judge)
    if options.rank:
        adapters.adapt(judge, options.rank, frozen=options.frozen)
    if kept_run is not None:
        checkpoints.begin(judge, options.begin)
    encoder = Encoder.of(folder / "tokenizer.json")
    dev = evaluate.load(options.data / "dev.jsonl.gz")
    curve = Curve(options.run, encoder, dev, kept, prefix=plan.prefix, threads=options.threads)
    teacher = Teacher.kept(options.teacher, folder / "tokenizer.json", half=plan.half) if options.teacher else None
    tokens = kept_run["tokens"] if kept_run else 0
    train(judge, groups, encoder, plan, options.run, curve, tokens=tokens, teacher=teacher)


def _mean(options: argparse.Namespace) -> None:
    checkpoints.mean(options.of, options.run, options.base_folder)


def _keep(options: argparse.Namespace) -> None:
    sys.stdout.write(f"{checkpoints.keep(options.run, options.folder):,} bytes\n")


def _measure(options: argparse.Namespace) -> None:
    run = ship.restore(options.run, options.base_folder)
    rows = written.measured(options.cases) if options.cases else evaluate.load(options.data / "dev.jsonl.gz")
    judge = run.judge if options.exact else run.judge.halved()
    found = evaluate.probabilities(judge, rows, run.encoder, prefix=not options.plain, threads=options.threads)
    sys.stdout.write(f"step {run.step}\n\n{table(evaluate.by_source(rows, found, threshold=0.5))}")


def _calibration(options: argparse.Namespace) -> None:
    rows = evaluate.load(options.data / "dev.jsonl.gz")
    supported = truth_of(rows)
    entailed, _ = judge_evaluation.judge(options.folder, rows)
    sys.stdout.write(calibration_table(reliability(entailed, supported)))


def _ship(options: argparse.Namespace) -> None:
    report = ship.ship(
        options.data,
        options.run,
        options.folder,
        first=options.first,
        stated_only=options.stated_only,
        base=options.base_folder,
    )
    sys.stdout.write(f"INT8 reduces balanced accuracy by {report['int8_loss']:.4f}; {report['bytes']:,} bytes\n")


def _plain(options: argparse.Namespace) -> None:
    run = ship.restore(options.run, options.base_folder)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, quantised in (("fp32", False), ("int8", True)):
        export_plain(run.judge, options.folder / f"{name}.onnx", quantised=quantised)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m judges.training", description=__doc__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data", type=Path, help="folder with train.jsonl.gz, snli.jsonl.gz and dev.jsonl.gz")
    shared.add_argument("--run", type=Path, required=True, help="folder of checkpoints")
    shared.add_argument("--base-folder", type=Path, help="folder with the base model; default: its installed packages")
    shared.add_argument("--stated-only", action="store_true", help="exclude data without a stated licence")
    shared.add_argument("--threads", type=int, default=2, help="number of CPU threads")
    shared.add_argument(
        "--plain", action="store_true", help="full attention, as in a plain cross-encoder, for comparison"
    )
    shared.add_argument("--exact", action="store_true", help="compute in float32, for CPUs without bfloat16")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("train", parents=[shared], help="train a model, or resume a run")
    command.add_argument("--base", choices=sorted(BASES), default=MINILM, help="base model")
    command.add_argument("--steps", type=int, default=4000)
    command.add_argument(
        "--cool-down", type=int, default=1500, help="number of final steps over which the learning rate falls to 0"
    )
    command.add_argument("--rate", type=float, help="peak learning rate; default: the base model's")
    command.add_argument("--dropout", type=float, default=DROPOUT)
    command.add_argument("--frozen", type=int, default=0, help="number of lowest layers to freeze")
    command.add_argument("--frozen-until", type=int, default=0, help="step at which the frozen layers are unfrozen")
    command.add_argument("--rank", type=int, default=0, help="train adapters of this rank, except in --frozen layers")
    command.add_argument("--warm-up", type=int, default=300, help="number of warm-up steps")
    command.add_argument("--parts", type=int, default=4, help="batches per step")
    command.add_argument("--shown", type=int, default=500, help="steps between measurements of the learning curve")
    command.add_argument(
        "--priors-from", type=int, default=0, help="first step at which the wording prior is added to the logits"
    )
    command.add_argument(
        "--begin", type=Path, help="start from the judge in this folder: an exported judge, or one written by `keep`"
    )
    command.add_argument(
        "--teacher",
        type=Path,
        help="folder in which `keep` stored a larger encoder's probabilities, to learn from them too",
    )
    command.add_argument("--seed", type=int, default=20)
    command.set_defaults(command=_train)
    command = commands.add_parser("mean", parents=[shared], help="average the weights of several runs")
    command.add_argument(
        "--of", type=Path, required=True, action="append", help="folder of checkpoints; repeat it for each run"
    )
    command.set_defaults(command=_mean)
    command = commands.add_parser("keep", parents=[shared], help="save only the adapters of a run (a few MB)")
    command.add_argument("--folder", type=Path, required=True, help="output folder, for `train --begin`")
    command.set_defaults(command=_keep)
    command = commands.add_parser("measure", parents=[shared], help="evaluate the encoder without the combiner")
    command.add_argument(
        "--cases", type=Path, help="file in the format of judges/training/data/languages.jsonl, instead of --data"
    )
    command.set_defaults(command=_measure)
    command = commands.add_parser(
        "ship", parents=[shared], help="export the model, fit the combiner, evaluate, and write the card"
    )
    command.add_argument("--folder", type=Path, required=True, help="output folder for the model")
    command.add_argument(
        "--first", type=Path, help="folder of the first encoder, if the exported one is to be the second of a pair"
    )
    command.set_defaults(command=_ship)
    command = commands.add_parser(
        "calibration", help="compare an exported judge's scores with the share of claims that are supported"
    )
    command.add_argument("--data", type=Path, required=True, help="folder with dev.jsonl.gz")
    command.add_argument(
        "--folder",
        type=Path,
        required=True,
        action="append",
        help="folder of an encoder; repeat it for a second one",
    )
    command.set_defaults(command=_calibration, threads=1)
    command = commands.add_parser(
        "plain", parents=[shared], help="export a plain cross-encoder with the same weights, for benchmarks"
    )
    command.add_argument("--folder", type=Path, required=True, help="output folder for fp32.onnx and int8.onnx")
    command.set_defaults(command=_plain)
    return parser


if __name__ == "__main__":
    sys.exit(main())
