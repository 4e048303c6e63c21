"""Turns a trained run into the shipped files: export, combiner, metrics, model card."""

import json
import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from judges.cross_encoder.model_files import cores
from judges.features import probability_calibration as combiner
from judges.training.data import written_claims as written
from judges.training.data.batching import CLAIM_TOKENS, WINDOW_TOKENS, Encoder
from judges.training.data.datasets import Group, load, split
from judges.training.data.wording_prior import measure_rows
from judges.training.encoder import checkpoints
from judges.training.encoder.bases import BASES, MINILM
from judges.training.encoder.model import Judge
from judges.training.evaluation import encoder_evaluation as evaluate
from judges.training.evaluation.judge_evaluation import figures, judge
from judges.training.evaluation.lexical_baseline import floor
from judges.training.evaluation.metrics import Figures, macro
from judges.training.shipping import combiner_fit as fit
from judges.training.shipping import model_card as card
from judges.training.shipping import onnx_export as export

log = logging.getLogger(__name__)

_SAMPLE: Final = 8000
_EXTRA: Final = {"languages": ["en"]}
_COMPARED: Final = 250
"""The number of rows on which a second encoder is compared with its weights before quantization."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The encoder of a run, its current step, and the model that it started from."""

    judge: Judge
    step: int
    tokenizer: Path
    title: str

    @property
    def encoder(self) -> Encoder:
        return Encoder.of(self.tokenizer)


def restore(run: Path, folder: Path | None = None) -> TrainingRun:
    """Load the current state of a run. ``folder`` contains the base model, to be used instead of its packages. Raises
    FileNotFoundError.
    """
    judge, step, plan = checkpoints.load(run, folder)
    base = BASES[plan.get("base", MINILM)]
    return TrainingRun(judge, step, (folder or base.folder()) / "tokenizer.json", base.title)


def ship(
    data: Path,
    run: Path,
    folder: Path,
    *,
    first: Path | None = None,
    stated_only: bool = False,
    base: Path | None = None,
) -> dict[str, Any]:
    """Export the encoder of ``run`` to ``folder``, fit the combiner, evaluate the whole judge on ``dev.jsonl.gz``, and
    write ``CARD.md`` and ``report.json`` next to the model. Returns the report. With ``first``, the folder of another
    encoder, the new one becomes the second encoder of a judge, and the combiner is fitted for both.
    """
    made = restore(run, base)
    model, tokenizer = made.judge, made.tokenizer
    pool = load(data, stated_only=stated_only)
    groups = [*pool, *written.load(pool)]
    kept = split(groups)[1]
    rows = evaluate.load(data / "dev.jsonl.gz")
    export.export(model, tokenizer, folder, quantised=True, extra=_EXTRA)
    log.info("computing the combiner's inputs for premises held out from training")
    folders = (folder,) if first is None else (first, folder)
    seen = fit.sample(folders, kept, most=_SAMPLE)
    worded = measure_rows(pool)
    fit.write(fit.fit(seen, worded), Path(combiner.__file__).with_name(combiner.WEIGHTS_FILE))
    combiner.regressions.cache_clear()
    log.info("measuring on %d rows", len(rows))
    entailed, labels = judge(folders, rows)
    shipped = figures(rows, entailed, labels)
    drawn = range(len(rows)) if first is None else random.Random(0).sample(range(len(rows)), min(_COMPARED, len(rows)))
    compared = [rows[place] for place in drawn]
    quantised = figures(compared, entailed[list(drawn)], [labels[place] for place in drawn])
    files = (written.REPLIES, written.PARAPHRASES, written.ANSWERS)
    hard = [*written.rows(kept), *(row for file in files for row in written.measured(file))]
    with TemporaryDirectory() as place:
        export.export(model, tokenizer, Path(place), quantised=False, extra=_EXTRA)
        exact = figures(compared, *judge((*folders[:-1], Path(place)), compared))
    alone = evaluate.probabilities(model.halved(), rows, made.encoder, threads=cores())
    report = {
        "steps": made.step,
        "base": made.title,
        "plan": json.loads((run / "plan.json").read_text(encoding="utf-8")),
        "training_rows": _count(groups),
        "combiner_rows": len(seen.targets),
        "judge": _plain(shipped),
        "judge_fp32": _plain(exact),
        "encoder_alone": _plain(evaluate.by_source(rows, alone, threshold=0.5)),
        "wording_alone": _plain(floor(worded, rows)),
        "written": _plain(figures(hard, *judge(folders, hard))),
        "int8_loss": macro(exact, "balanced_accuracy") - macro(quantised, "balanced_accuracy"),
        "claim_tokens": CLAIM_TOKENS - 2,
        "window_tokens": WINDOW_TOKENS,
        "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file() and file.suffix != ".py"),
    }
    if first is not None:
        report |= {"first": first.name, "judge_int8": _plain(quantised), "compared_rows": len(compared)}
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (folder / "CARD.md").write_text(card.write(report), encoding="utf-8")
    return report


def _count(groups: Sequence[Group]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.source] += len(group.rows)
    return dict(sorted(counts.items()))


def _plain(found: Mapping[str, Figures]) -> dict[str, Any]:
    return {source: {name: round(value, 4) for name, value in asdict(one).items()} for source, one in found.items()}
