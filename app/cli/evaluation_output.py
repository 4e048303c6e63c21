"""The output of ``groundlane eval``."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from app.cli.common import show_columns

if TYPE_CHECKING:
    from app.evaluation.runs.cost_estimate import RunEstimate
    from app.evaluation.runs.run_comparison import Flip, RunComparison
    from app.evaluation.runs.run_summary import Summary

_SHOWN_FLIPS = 50


def show_summary(summary: "Summary", folder: Path, *, json: bool) -> None:
    from app.evaluation.runs.run_summary import format_cost, format_estimate

    if json:
        print_json(summary)
        return
    cases, claims = summary.cases, summary.claims
    left = {"no_context": "without context", "no_claims": "without claims", "disabled": "disabled"}
    notes = [f"{cases[name]} {words}" for name, words in left.items() if cases[name]]
    show_columns(
        [
            ("judge", f"{summary.judge} ({summary.kind})"),
            ("cases", f"{cases['scored']} of {cases['total']} scored" + "".join(f", {note}" for note in notes)),
            ("failed", str(cases["errors"])),
            (
                "claims",
                f"{claims['total']}: {claims['accepted']} supported, {claims['contradicted']} contradicted, "
                f"{claims['unverifiable']} unverifiable",
            ),
            ("score", format_estimate(summary.score)),
            ("claims accepted", format_estimate(summary.claims_accepted)),
            ("grounded cases", format_estimate(summary.grounded_cases)),
            ("cost", f"{format_cost(summary.spent)}; {summary.cached_cases} cases from the cache"),
            ("report", str(folder / "report.html")),
        ]
    )


def show_estimate(found: "RunEstimate", *, json: bool) -> None:
    from app.evaluation.cases.case_result import Cost
    from app.evaluation.runs.cost_estimate import ANSWER_TOKENS
    from app.evaluation.runs.run_summary import format_cost

    if json:
        print_json(found)
        return
    rows = [
        ("judge", f"{found.judge} ({found.kind.value})"),
        ("cases", f"{found.cases}: {found.judged} to judge, {found.cached} cached, {found.skipped} skipped"),
        ("claims", f"about {found.claims}"),
    ]
    if found.kind.asks_llm:
        rows += [
            ("calls", f"about {found.calls}, {ANSWER_TOKENS} tokens per answer"),
            ("tokens", f"about {found.input_tokens} in, {found.output_tokens} out"),
        ]
    rows.append(("cost", format_cost(Cost(usd=found.usd))))
    if found.seconds is not None:
        rows.append(("time", f"about {found.seconds:.0f} s with the cross-encoder, at this machine's current load"))
    if found.sampled < found.judged:
        rows.append(("based on", f"{found.sampled} cases sampled from the input"))
    show_columns(rows)


def show_comparison(found: "RunComparison", *, json: bool) -> None:
    from app.evaluation.runs.run_summary import format_estimate

    if json:
        print_json(found)
        return
    show_columns(
        [
            ("judges", " → ".join(found.judges)),
            (
                "cases",
                f"{found.cases} in both, {len(found.only_before)} only in the first, "
                f"{len(found.only_after)} only in the second",
            ),
            ("claims", f"{found.claims} in both, {found.claims_gone} removed, {found.claims_new} new"),
            ("score", f"{format_estimate(found.before)} → {format_estimate(found.after)}"),
            ("change", format_estimate(found.change)),
            ("flipped", f"{len(found.worse)} no longer accepted, {len(found.better)} now accepted"),
        ]
    )
    for mark, flips in (("-", found.worse), ("+", found.better)):
        for flip in flips[:_SHOWN_FLIPS]:
            typer.echo(f"{mark} {_flip(flip)}")
        if len(flips) > _SHOWN_FLIPS:
            typer.echo(f"{mark} and {len(flips) - _SHOWN_FLIPS} more (--json lists all)")


def _flip(flip: "Flip") -> str:
    return f"{flip.case_id}: {flip.before.label.value} → {flip.after.label.value}: {flip.text}"


def print_json(value: object) -> None:
    """Print ``value`` as indented JSON."""
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
