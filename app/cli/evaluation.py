"""``groundlane eval``: evaluates the answers in a file against their documents."""

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from app.cli.common import CommandError, UsageError
from app.cli.evaluation_output import show_comparison, show_estimate, show_summary
from app.settings import Settings, SettingsError, load_settings

T = TypeVar("T")

if TYPE_CHECKING:
    from app.evaluation.judging.evaluator import Evaluator
    from app.evaluation.runs.cost_estimate import RunEstimate
    from app.evaluation.runs.run_summary import Summary

evaluation = typer.Typer(
    help="Evaluate answers against their documents. Reads case files and writes reports.", no_args_is_help=True
)

_FAILED = 1
_INTERRUPTED = 130
_TERMINATED = 143
_LONG = 200
"""The minimum number of cases for which several processes are faster than one. Judging this many cases takes about ten
seconds, and starting the processes about two."""


class Metric(StrEnum):
    GROUNDING = "grounding"


class JudgeOption(StrEnum):
    CROSS_ENCODER = "cross-encoder"
    LLM = "llm"
    CASCADE = "cascade"


class Engine(StrEnum):
    LOCAL = "local"
    RAY = "ray"


Input = Annotated[Path, typer.Option("--input", "-i", help="File with the cases: .json, .jsonl, .csv or .parquet")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use only the first N cases")]
Which = Annotated[
    JudgeOption,
    typer.Option(help="Cross-encoder, LLM, or a cascade that asks the LLM when the cross-encoder is undecided"),
]
CacheFile = Annotated[Path | None, typer.Option(help="File for cached verdicts; default: in the user's cache folder")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Do not use the verdict cache")]
Entailment = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Minimum probability of support for a claim to count as supported")
]
Contradiction = Annotated[
    float,
    typer.Option(min=0.0, max=1.0, help="Minimum probability of contradiction for a claim to count as contradicted"),
]
Metrics = Annotated[Metric, typer.Argument(help="Metric to compute")]


@evaluation.command()
def run(
    metric: Metrics,
    input: Input,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", help="Folder for the results; resumes an existing run")
    ],
    limit: Limit = None,
    judge: Which = JudgeOption.CROSS_ENCODER,
    fail_under: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Exit with code 1 if the score is below this or missing")
    ] = None,
    max_errors: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Exit with code 1 if the share of failed cases exceeds this")
    ] = 0.0,
    entailment_threshold: Entailment = 0.7,
    contradiction_threshold: Contradiction = 0.7,
    cache: CacheFile = None,
    no_cache: NoCache = False,
    engine: Annotated[Engine, typer.Option(help="Judge on this machine or on a Ray cluster")] = Engine.LOCAL,
    processes: Annotated[
        int | None,
        typer.Option(min=0, help="Number of judging processes, or 0 to judge in the main process; default: automatic"),
    ] = None,
    ray_address: Annotated[str | None, typer.Option(help="Address of the Ray cluster; default: RAY_ADDRESS")] = None,
    ray_judges: Annotated[int | None, typer.Option(min=1, help="Number of judges; default: one per core")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Hide the progress bar")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON")] = False,
) -> None:
    """Judge every case in a file.

    Exits with code 1 if the share of failed cases exceeds --max-errors or the score is below --fail-under.
    """
    from asyncio import CancelledError
    from functools import partial

    from app.evaluation.cases.case_files import count_cases, read_cases
    from app.evaluation.runs.run import run_cases
    from app.evaluation.runs.run_folder import RunFolder

    settings = load_settings()
    with evaluation_errors():
        total = count_cases(input, limit=limit)
        if processes and engine is Engine.RAY:
            raise UsageError("--processes applies only to the local engine; with --engine ray, use --ray-judges")
        if processes is None:
            processes = default_processes(settings, judge, total) if engine is Engine.LOCAL else 0
        evaluator = _open(settings, judge, entailment_threshold, contradiction_threshold, cache, no_cache, processes)
        work = run_cases
        if engine is Engine.RAY:
            from app.evaluation.runs.ray_engine import Cluster, run_cases_on_ray

            cluster = Cluster(judges=ray_judges, address=ray_address)
            work = partial(run_cases_on_ray, settings=settings, cluster=cluster)

        async def judged(advance: Callable[[], None]) -> "Summary":
            with _ended_by_sigterm():
                async with evaluator:
                    folder = RunFolder(output_dir)
                    return await work(evaluator, read_cases(input, limit=limit), folder, lambda _line: advance())

        try:
            with progress_bar(total, quiet) as advance:
                summary = _run(judged(advance))
        except (KeyboardInterrupt, CancelledError) as stop:
            typer.echo("Stopped. The results are kept; run the same command to resume.", err=True)
            raise typer.Exit(_INTERRUPTED if isinstance(stop, KeyboardInterrupt) else _TERMINATED) from None
    show_summary(summary, output_dir, json=json)
    raise typer.Exit(exit_code(summary, fail_under, max_errors))


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work``. Uses uvloop, except on Windows, because it leaves more CPU time for the judge."""
    if sys.platform == "win32":
        import asyncio

        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM cancel the current task, so that the task can stop the processes it started."""
    if sys.platform == "win32":
        yield
        return
    import asyncio
    import signal

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@evaluation.command()
def estimate(
    metric: Metrics,
    input: Input,
    limit: Limit = None,
    judge: Which = JudgeOption.CROSS_ENCODER,
    entailment_threshold: Entailment = 0.7,
    contradiction_threshold: Contradiction = 0.7,
    cache: CacheFile = None,
    no_cache: NoCache = False,
    json: Annotated[bool, typer.Option("--json", help="Print the estimate as JSON")] = False,
) -> None:
    """Estimate the cost of a run, without calling an LLM. No API key is needed."""
    import asyncio

    from app.analytics.configured_prices import open_prices
    from app.evaluation.cases.case_files import read_cases
    from app.evaluation.runs.cost_estimate import estimate_run

    settings = load_settings()
    with evaluation_errors():
        evaluator = _open(settings, judge, entailment_threshold, contradiction_threshold, cache, no_cache)
        prices = open_prices(settings)

        async def estimated() -> "RunEstimate":
            try:
                await evaluator.judge.start(ask_llm=False)
                return await estimate_run(
                    evaluator,
                    lambda: read_cases(input, limit=limit),
                    model=settings.llm_judge_model,
                    prices=prices,
                )
            finally:
                await evaluator.aclose()

        found = asyncio.run(estimated())
    show_estimate(found, json=json)


@evaluation.command()
def compare(
    before: Annotated[Path, typer.Argument(help="Folder of the earlier run")],
    after: Annotated[Path, typer.Argument(help="Folder of the later run")],
    fail_on_regression: Annotated[
        bool, typer.Option("--fail-on-regression", help="Exit with code 1 if a claim is no longer accepted")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON")] = False,
) -> None:
    """Compare two runs: show the claims whose verdict changed, and the change in the score."""
    from app.evaluation.runs.run_comparison import compare_runs

    with evaluation_errors():
        found = compare_runs(before, after)
    show_comparison(found, json=json)
    raise typer.Exit(_FAILED if fail_on_regression and found.worse else 0)


@evaluation.command()
def sample() -> None:
    """Print sample cases as JSON Lines."""
    from importlib.resources import files

    typer.echo((files("app.evaluation") / "sample.jsonl").read_text("utf-8"), nl=False)


@contextmanager
def evaluation_errors() -> Iterator[None]:
    """Convert errors to one-line errors: UsageError for the input, SettingsError for the judge, and CommandError for
    everything else."""
    from app.evaluation.cases.case_files import CaseFileError
    from app.evaluation.judging.verdict_cache import CacheError
    from app.evaluation.runs.run import EngineMissingError, RunStoppedError
    from app.evaluation.runs.run_folder import RunFolderError
    from app.judge_runtime.offline import JudgeMissingError

    try:
        yield
    except (CaseFileError, RunFolderError) as error:
        raise UsageError(str(error)) from None
    except JudgeMissingError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None
    except CacheError as error:
        raise CommandError(f"cannot use the verdict cache: {error}. To run without a cache, use --no-cache.") from None
    except EngineMissingError as error:
        raise UsageError(str(error)) from None
    except RunStoppedError as error:
        raise CommandError(f"{error} The results are kept; run the same command to resume.") from None


def _open(
    settings: Settings,
    judge: JudgeOption,
    entailment: float,
    contradiction: float,
    cache: Path | None,
    no_cache: bool,
    processes: int = 0,
) -> "Evaluator":
    from app.evaluation.judging.case_judge import JudgeKind
    from app.evaluation.judging.evaluator import open_evaluator
    from app.evaluation.judging.verdict_cache import default_cache
    from judges.label_thresholds import Thresholds

    return open_evaluator(
        settings,
        judge=JudgeKind(judge.value),
        thresholds=Thresholds(entailment=entailment, contradiction=contradiction),
        cache=None if no_cache else cache or default_cache(),
        processes=processes,
    )


def default_processes(settings: Settings, judge: JudgeOption, total: int) -> int:
    """Choose the number of processes for judging ``total`` cases. Long runs with the embedded judge use one process per
    core, because that judge is small enough to be loaded several times. For all other runs, the number is 0: the main
    process judges. LLM calls are always made from this process."""
    from judges.cross_encoder.model_files import cores

    long = judge is JudgeOption.CROSS_ENCODER and settings.judge == "embedded" and total >= _LONG
    return cores() if long and cores() > 1 else 0


@contextmanager
def progress_bar(total: int, quiet: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar on stderr if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    with bar:
        task = bar.add_task("judging", total=total)
        yield lambda: bar.advance(task)


def exit_code(summary: "Summary", fail_under: float | None, max_errors: float) -> int:
    """Return the exit code of a run. Unless it is 0, print the reason."""
    if summary.errors:
        typer.echo(
            f"{summary.errors} cases could not be judged completely; run the same command to retry them.", err=True
        )
        if summary.errors > max_errors * summary.cases["total"]:
            return _FAILED
    if fail_under is None:
        return 0
    score = summary.score.value
    if score is not None and score >= fail_under:
        return 0
    reason = "no case has a score" if score is None else f"the score {score:.3f} is below {fail_under:g}"
    typer.echo(f"Failed: {reason}.", err=True)
    return _FAILED
