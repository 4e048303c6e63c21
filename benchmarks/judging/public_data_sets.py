"""Generates ``docs/judging/accuracy.md``: results of the embedded judge on public data sets, with published results of
other models.

    python -m benchmarks.judging.public_data_sets --data DIR [--measure] [--output docs/judging/accuracy.md]

``DIR`` contains ``INDEX.md``, which describes the data sets, and ``dev.jsonl.gz`` with their rows. The judge's results
come from ``judges/embedded/report.json`` and ``judges/embedded/large/report.json``, which were written when the models
were exported. ``--measure`` recomputes them from the rows, with confidence intervals. This takes several minutes.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from judges import embedded
from judges.training.data.datasets import read
from judges.training.evaluation.judge_evaluation import THRESHOLDS, figures, judge
from judges.training.evaluation.metrics import Figures, Floats, macro
from judges.types import Label

ROOT = Path(__file__).parents[2]
_RESAMPLES = 2_000
_SEED = 20

_DESCRIBED = {
    "AttributionBench-AttributedQA": "AttributionBench dev",
    "AttributionBench-ExpertQA": "AttributionBench dev",
    "AttributionBench-Stanford-GenSearch": "AttributionBench dev",
    "BEGIN": "BEGIN dev WoW",
    "CLIMATE-FEVER": "CLIMATE-FEVER",
    "COVID-Fact": "COVID-Fact RTE dev",
    "ContractNLI-window": "ContractNLI dev",
    "FactCG-cg2c_doc": "FactCG CG2C-Doc",
    "FoolMeTwice": "Fool Me Twice dev",
    "HealthVer": "HealthVer dev",
    "InfoTabs": "InfoTabs dev",
    "WiCE": "WiCE claims",
}
"""The beginning of each data set's row in the index's table of origins."""

Row = Mapping[str, str]

_PAGE = """\
# How accurate the embedded judge is

`python -m benchmarks.judging.public_data_sets` generates this page; don't edit it. It describes the default judge,
`embedded` ({megabytes:.1f} MB), and compares it with [`embedded-large`](judges.md#the-embedded-judges). The cards of
the [small](../../judges/embedded/CARD.md) and the [large encoder](../../judges/embedded/large/CARD.md) describe how
they were trained, and on which data.

## Public data sets

The figures are for development splits. None of their passages is in the training data, but other rows of most of these
data sets are (see the second table). Each row is one claim and one passage, judged as in the gateway: a claim
counts as supported if its score is at least {threshold:g}, the policies' default threshold. Balanced accuracy is the
mean of two shares: the share of supported claims that the judge recognizes, and the share of other claims that it
recognizes. Guessing gives 0.5. The false-block rate is the share of supported claims that the judge calls contradicted.
A policy that blocks contradictions would block these claims by mistake.
{intervals}
{sets}

The best result is on {best}, the worst on {worst}.

| data set | domain | other rows in training | repository | licence |
|---|---|---|---|---|
{origins}

Licences are as stated by each repository. This is not legal advice.

## What each part adds

Means over the same sets:

| | balanced accuracy | ROC-AUC | F1 unsupported | false-block rate |
|---|---|---|---|---|
{parts}

`embedded-large` adds the large encoder to the small one. "Wording alone" is a boosted-tree model over nine features of
shared wording, fitted on 7,000 rows of the training data. Its figures are means over twelve samples of those rows.
{floor}

## Claims and replies written for measurement

| | claims | balanced accuracy | ROC-AUC | F1 unsupported | false-block rate |
|---|---|---|---|---|---|
{written}

- "Twins" are true claims, each paired with a false one in nearly the same words. The encoders were trained on similar
  pairs, but about other passages. Some of the twins were used to fit the combiner and to set its threshold.
- "Replies" are sentences from an assistant's answers, with typical mistakes of language models. Each answer is based on
  one to four documents that describe several similar things.
- "Paraphrases" are true sentences that restate a passage in different words, and sentences with one error that stay
  close to the passage's wording.
- "Answers" are sentences from fluent answers over one to four documents. They were written when the small encoder and
  the first large one were finished. No encoder was chosen by them, but the weight of handwritten claims in the combiner
  of `embedded-large` was raised after they had been measured.

Different authors wrote the replies, the paraphrases and the answers, and they were never used in training
(`replies.jsonl`, `paraphrases.jsonl` and `answers.jsonl` in `judges/training/data`). If your documents describe several
similar things, expect figures like these.

## Published figures of other models

The table shows balanced accuracy in percent, from the leaderboard of LLM-AggreFact (Tang et al. 2024,
arXiv:2404.10774), at a threshold of 0.5. Only WiCE is in both tables, with different splits: the leaderboard uses its
test split, and this page uses the development split, at the default threshold. We haven't run the judge on the
leaderboard's data sets, and this page says nothing about how it would perform there.

{published}

## What this means

- The open models in that table have roughly ten to twenty times as many parameters as the default judge. If
  accuracy matters more to you than a few milliseconds, use `embedded-large` or a larger cross-encoder
  [instead](pipeline.md#judges), or add [an LLM](llm-judge.md).
- The judge is weaker on false claims that repeat nearly all the words of the passage, but with swapped roles, one name
  instead of another, a dropped condition, or a plan presented as done. The twins and replies above contain such claims.
  If these errors are costly for you, let [an LLM](llm-judge.md) score the reply as well.
- Results vary more between data sets than between models. [Measure](evaluation.md) on your own answers before you let a
  policy block.
"""


@dataclass(frozen=True, slots=True)
class Index:
    """The contents of ``INDEX.md``: the licence, domain and repository of each origin, and the table of published
    results."""

    origins: Sequence[Row]
    published: Sequence[Row]


def read_index(file: Path) -> Index:
    """Parse ``INDEX.md``. Raises ValueError if a table is missing."""
    tables = {heading: list(_rows(lines)) for heading, lines in _sections(file.read_text("utf-8"))}
    origins = next((rows for heading, rows in tables.items() if heading.startswith("Where they come from")), [])
    published = next((rows for heading, rows in tables.items() if heading.startswith("Published figures")), [])
    if not origins or not published:
        raise ValueError(f"{file}: no table of origins, or none of published figures")
    return Index(origins, published)


def _sections(text: str) -> Iterator[tuple[str, Sequence[str]]]:
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, *lines = part.splitlines()
        yield heading, lines


def _rows(lines: Sequence[str]) -> Iterator[Row]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    if cells:
        for row in cells[2:]:
            yield dict(zip(cells[0], row, strict=False))


def page(
    report: Mapping[str, Any],
    large: Mapping[str, Any],
    index: Index,
    measured: Mapping[str, tuple[Figures, Floats]] | None,
) -> str:
    """Build the page in Markdown from the reports on the default judge and on the one with two encoders. ``measured``
    contains newly computed results of the default judge, with bounds for the balanced accuracy."""
    shipped = {name: one for name, (one, _) in measured.items()} if measured else _figures(report, "judge")
    bounds = {name: one for name, (_, one) in measured.items()} if measured else {}
    parts = {
        "the judge as shipped": shipped,
        "`embedded-large`": _figures(large, "judge"),
        "the small encoder alone, at 0.5": _figures(report, "encoder_alone"),
        "the large encoder alone, at 0.5": _figures(large, "encoder_alone"),
        "wording alone, without a model": _figures(report, "wording_alone"),
    }
    return _PAGE.format(
        megabytes=report["bytes"] / 1e6,
        threshold=THRESHOLDS.entailment,
        intervals=_INTERVALS if measured else "",
        sets=_sets(shipped, bounds),
        best=_told(shipped, max(shipped, key=lambda name: shipped[name].balanced_accuracy)),
        worst=_told(shipped, min(shipped, key=lambda name: shipped[name].balanced_accuracy)),
        origins="\n".join(_origin(name, index, report["training_rows"]) for name in shipped),
        parts="\n".join(f"| {name} | " + " | ".join(_macros(found)) + " |" for name, found in parts.items()),
        floor=_floor(shipped, parts["wording alone, without a model"]),
        published=_published(index, shipped),
        written="\n".join(
            _line(f"{name}{of}", one)
            for of, which in (("", report), (", `embedded-large`", large))
            for name, one in _figures(which, "written").items()
        ),
    )


_INTERVALS = f"""
In brackets: 95 % intervals, a percentile bootstrap over the rows of a set, {_RESAMPLES:,} resamples.
"""
_NAMES = ("balanced_accuracy", "roc_auc", "f1_unsupported", "false_block")


def _sets(shipped: Mapping[str, Figures], bounds: Mapping[str, Floats]) -> str:
    lines = [
        "| data set | rows | balanced accuracy | ROC-AUC | F1 unsupported | false-block rate |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in shipped.items():
        accuracy = f"{one.balanced_accuracy:.3f}"
        if name in bounds:
            accuracy += " ({:.3f} to {:.3f})".format(*bounds[name])
        rest = " | ".join(f"{getattr(one, figure):.3f}" for figure in _NAMES[1:])
        lines.append(f"| {name} | {one.rows:,} | {accuracy} | {rest} |")
    rows = sum(one.rows for one in shipped.values())
    lines.append(f"| **mean of the sets** | {rows:,} | " + " | ".join(_macros(shipped)) + " |")
    return "\n".join(lines)


def _line(name: str, one: Figures) -> str:
    return f"| {name} | {one.rows:,} | " + " | ".join(f"{getattr(one, figure):.3f}" for figure in _NAMES) + " |"


def _origin(name: str, index: Index, training_rows: Mapping[str, int]) -> str:
    begins = _DESCRIBED.get(name, name)
    row = next((row for row in index.origins if row["dataset"].startswith(begins)), {})
    trained = sum(count for source, count in training_rows.items() if source == name or source.startswith(f"{name}-"))
    cells = [row.get("domain", "–"), f"{trained:,}", row.get("repository", "–"), row.get("licence", "–")]
    return f"| {name} | " + " | ".join(cells) + " |"


def _published(index: Index, shipped: Mapping[str, Figures]) -> str:
    columns = list(index.published[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row.values()) + " |" for row in index.published]
    ours = {"model": "this judge, WiCE development split", "size": "0.02B"}
    if "WiCE" in shipped:
        ours["WiCE"] = f"({100 * shipped['WiCE'].balanced_accuracy:.1f})"
    lines.append("| " + " | ".join(ours.get(column, "–") for column in columns) + " |")
    return "\n".join(lines)


def _floor(shipped: Mapping[str, Figures], wording: Mapping[str, Figures]) -> str:
    """Return a sentence that names the data sets on which the judge isn't better than wording alone."""
    told: list[str] = []
    for figure, called in (("balanced_accuracy", "balanced accuracy"), ("roc_auc", "ROC-AUC")):
        pairs = {name: (getattr(one, figure), getattr(wording[name], figure)) for name, one in shipped.items()}
        below = [f"{name} ({ours:.3f} against {its:.3f})" for name, (ours, its) in pairs.items() if ours <= its]
        told.append(f"in {called} on every set" + (f" but {' and '.join(below)}" if below else ""))
    return f"The default judge does better than wording alone {', and '.join(told)}."


def _told(shipped: Mapping[str, Figures], name: str) -> str:
    return f"{name} ({shipped[name].balanced_accuracy:.3f})"


def _figures(report: Mapping[str, Any], name: str) -> Mapping[str, Figures]:
    return {source: Figures(**one) for source, one in report[name].items()}


def _macros(found: Mapping[str, Figures]) -> Sequence[str]:
    return [f"{macro(found, name):.3f}" for name in _NAMES]


def measure(file: Path) -> Mapping[str, tuple[Figures, Floats]]:
    """Judge every row of ``file``. Return the results for each data set, with bounds for its balanced accuracy."""
    rows = list(read(file))
    entailed, labels = judge((embedded.FOLDER,), rows)
    found = figures(rows, entailed, labels)
    return {name: (one, _bounds(rows, entailed, labels, name)) for name, one in found.items()}


def _bounds(rows: Sequence[Mapping[str, Any]], entailed: Floats, labels: Sequence[Label], name: str) -> Floats:
    mine = [place for place, row in enumerate(rows) if row["source"] == name]
    truth = np.array([rows[place]["label"] in ("entailed", "supported") for place in mine])
    right = (entailed[mine] >= THRESHOLDS.entailment) == truth
    generator = np.random.default_rng(_SEED)
    values = []
    for _ in range(_RESAMPLES):
        drawn = generator.integers(len(mine), size=len(mine))
        sides = [right[drawn][truth[drawn] == side] for side in (True, False)]
        if all(len(side) for side in sides):
            values.append(np.mean([side.mean() for side in sides]))
    bounds: Floats = np.quantile(values, [0.025, 0.975])
    return bounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "judging" / "accuracy.md")
    arguments = parser.parse_args()
    try:
        index = read_index(arguments.data / "INDEX.md")
    except (OSError, ValueError) as error:
        sys.exit(f"Error: {error}")
    report, large = (
        json.loads((folder / "report.json").read_text("utf-8")) for folder in (embedded.FOLDER, embedded.LARGE)
    )
    measured = measure(arguments.data / "dev.jsonl.gz") if arguments.measure else None
    arguments.output.write_text(page(report, large, index, measured), "utf-8")
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
