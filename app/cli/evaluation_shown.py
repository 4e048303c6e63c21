"""What ``groundlane eval`` prints."""

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
    from app.evaluation.runs.run_summary import told, told_cost

    if json:
        _print_json(summary)
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
            ("score", told(summary.score)),
            ("claims accepted", told(summary.claims_accepted)),
            ("grounded cases", told(summary.grounded_cases)),
            ("cost", f"{told_cost(summary.spent)}; {summary.cached_cases} cases from the cache"),
            ("report", str(folder / "report.html")),
        ]
    )


def show_estimate(found: "RunEstimate", *, json: bool) -> None:
    from app.evaluation.cases.case_result import Cost
    from app.evaluation.runs.cost_estimate import ANSWER_TOKENS
    from app.evaluation.runs.run_summary import told_cost

    if json:
        _print_json(found)
        return
    rows = [
        ("judge", f"{found.judge} ({found.kind.value})"),
        ("cases", f"{found.cases}: {found.judged} to judge, {found.cached} in the cache, {found.skipped} to skip"),
        ("claims", f"about {found.claims}"),
    ]
    if found.kind.asks_llm:
        rows += [
            ("calls", f"about {found.calls}, with {ANSWER_TOKENS} tokens an answer"),
            ("tokens", f"about {found.input_tokens} in, {found.output_tokens} out"),
        ]
    rows.append(("cost", told_cost(Cost(usd=found.usd))))
    if found.seconds is not None:
        rows.append(("time", f"about {found.seconds:.0f} s of the cross-encoder on this machine, as busy as it is now"))
    if found.sampled < found.judged:
        rows.append(("based on", f"{found.sampled} cases, spread over the input"))
    show_columns(rows)


def show_comparison(found: "RunComparison", *, json: bool) -> None:
    from app.evaluation.runs.run_summary import told

    if json:
        _print_json(found)
        return
    show_columns(
        [
            ("judges", " → ".join(found.judges)),
            ("cases", f"{found.cases} in both, {len(found.only_before)} and {len(found.only_after)} in one only"),
            ("claims", f"{found.claims} in both, {found.claims_gone} gone, {found.claims_new} new"),
            ("score", f"{told(found.before)} → {told(found.after)}"),
            ("change", told(found.change)),
            ("flipped", f"{len(found.worse)} no longer accepted, {len(found.better)} now accepted"),
        ]
    )
    for mark, flips in (("-", found.worse), ("+", found.better)):
        for flip in flips[:_SHOWN_FLIPS]:
            typer.echo(f"{mark} {_flip(flip)}")
        if len(flips) > _SHOWN_FLIPS:
            typer.echo(f"{mark} and {len(flips) - _SHOWN_FLIPS} more (--json has all)")


def _flip(flip: "Flip") -> str:
    return f"{flip.case_id}: {flip.before.label.value} → {flip.after.label.value}: {flip.text}"


def _print_json(value: object) -> None:
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
