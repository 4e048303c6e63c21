"""``groundlane eval judges``: compares judges on labelled cases."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.common import CommandError, UsageError, show_columns
from app.cli.evaluation import (
    CacheFile,
    Contradiction,
    Entailment,
    Input,
    Limit,
    NoCache,
    evaluation_errors,
    progress_bar,
)
from app.cli.evaluation_output import print_json
from app.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from app.evaluation.judge_comparison.comparison import JudgeComparison

_HEADING = ("JUDGE", "BALANCED ACCURACY", "ROC AUC", "FALSE BLOCKS", "MISSED", "CASES", "FAILED", "MS/CASE", "COST")
_FAILED = 1


def judges(
    input: Input,
    judge: Annotated[
        list[str],
        typer.Option(metavar="JUDGE", help="A judge, as in GROUNDLANE_JUDGE; repeat the option to compare several"),
    ],
    limit: Limit = None,
    entailment_threshold: Entailment = 0.7,
    contradiction_threshold: Contradiction = 0.7,
    cache: CacheFile = None,
    no_cache: NoCache = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Hide the progress bar")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON")] = False,
) -> None:
    """Compare judges on labelled cases. Exits with code 1 if a judge could not be used or failed to judge some
    cases."""
    import asyncio

    from app.evaluation.cases.case_files import read_cases
    from app.evaluation.judge_comparison.comparison import compare_judges
    from app.evaluation.judge_comparison.labels import LabelError
    from app.evaluation.judging.verdict_cache import default_cache
    from judges.label_thresholds import Thresholds

    with evaluation_errors():
        cases = list(read_cases(input, limit=limit))
        try:
            with progress_bar(len(cases) * len(judge), quiet) as advance:
                found = asyncio.run(
                    compare_judges(
                        cases,
                        judge,
                        load_settings(),
                        thresholds=Thresholds(entailment=entailment_threshold, contradiction=contradiction_threshold),
                        cache=None if no_cache else cache or default_cache(),
                        progress=advance,
                    )
                )
        except LabelError as error:
            raise UsageError(f"{input}: {error}") from None
        except SettingsError as error:
            raise UsageError(str(error).replace("GROUNDLANE_JUDGE", "--judge")) from None
        except KeyboardInterrupt:
            raise CommandError("Stopped. Cached verdicts are kept; run the same command again to continue.") from None
    _show(found, json=json)
    if any(line.fault is not None or line.failed for line in found.judges):
        raise typer.Exit(_FAILED)


def _show(found: "JudgeComparison", *, json: bool) -> None:
    from app.evaluation.runs.run_summary import format_cost, format_estimate

    if json:
        print_json(found)
        return
    typer.echo(f"{found.supported} supported and {found.unsupported} unsupported cases\n")
    rows: list[Sequence[str]] = [_HEADING]
    for line in found.judges:
        figures = (line.balanced_accuracy, line.roc_auc, line.false_blocks, line.missed)
        rows.append(
            (
                line.spec,
                *map(format_estimate, figures),
                str(line.cases),
                str(line.failed),
                "-" if line.ms_per_case is None else f"{line.ms_per_case:.1f}",
                format_cost(line.cost),
            )
        )
    show_columns(rows)
    for line in found.judges:
        if line.fault is not None:
            typer.echo(f"{line.spec}: {line.fault}", err=True)
