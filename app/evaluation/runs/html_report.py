"""The report on a run: a single HTML page without scripts or external resources. All text is escaped."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from app.evaluation.cases.case_result import CaseResult, JudgedClaim
from app.evaluation.runs.run_summary import CaseLine, Summary, format_cost, format_estimate

MOST_CASES: Final = 300
"""Maximum number of cases shown. Failed cases come first, then those with the lowest scores. The run folder contains
all cases."""
_MOST_CHARS: Final = 4_000

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --open: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --open: #d29922; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .6rem .3rem 0; }
tr { border-bottom: 1px solid var(--line); vertical-align: top; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
pre, blockquote { white-space: pre-wrap; overflow-wrap: anywhere; }
blockquote { margin: .3rem 0 .3rem 1rem; padding-left: .8rem; border-left: 3px solid var(--line); }
pre { font: inherit; margin: .4rem 0; } td { overflow-wrap: anywhere; }
.supported { color: var(--good); } .contradicted, .error { color: var(--bad); } .unverifiable { color: var(--open); }
.score { display: inline-block; min-width: 3.5rem; font-variant-numeric: tabular-nums; font-weight: 600; }
.more { opacity: .75; font-size: .9em; }
"""


def render_report(summary: Summary, lines: Sequence[CaseLine], load: Callable[[str], CaseResult]) -> str:
    """Render a run's page. ``load`` returns the result of the case with a given id. Raises any error from ``load``."""
    shown = sorted((line for line in lines if line.skipped is None), key=_rank)[:MOST_CASES]
    judged = sum(line.skipped is None for line in lines)
    which = "All cases" if len(shown) == judged else f"{len(shown)} of {judged:,} cases"
    body = [
        "<h1>Grounding</h1>",
        _figures(summary),
        f"<h2>{which}, lowest scores first</h2>",
        *(_case(load(line.case_id)) for line in shown),
    ]
    return _page("\n".join(body))


def _page(body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Grounding report</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _rank(line: CaseLine) -> tuple[bool, float, int]:
    return line.error is None, -1.0 if line.score is None else line.score, line.place


def _figures(summary: Summary) -> str:
    cases, claims = summary.cases, summary.claims
    left = ", ".join(
        f"{cases[name]:,} {words}"
        for name, words in (
            ("no_context", "without context"),
            ("no_claims", "without claims"),
            ("disabled", "disabled"),
        )
        if cases[name]
    )
    rows = [
        ("Mean score of the cases", format_estimate(summary.score), summary.score.method),
        ("Claims accepted", format_estimate(summary.claims_accepted), summary.claims_accepted.method),
        ("Cases without rejected claims", format_estimate(summary.grounded_cases), summary.grounded_cases.method),
        (
            "Claims",
            f"{claims['total']:,}: {claims['accepted']:,} supported, {claims['contradicted']:,} contradicted, "
            f"{claims['unverifiable']:,} unverifiable",
            None,
        ),
        ("Cases", f"{cases['scored']:,} scored of {cases['total']:,}", f"left out: {left}" if left else None),
        ("Failed", f"{cases['errors']:,}", None),
        ("Judge", f"{summary.judge} ({summary.kind})", f"thresholds {_thresholds(summary)}"),
        ("Cost of the verdicts", format_cost(summary.cost), f"in this run: {format_cost(summary.spent)}"),
    ]
    cells = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}"
        + (f' <span class="more">{escape(note)}</span>' if note else "")
        + "</td></tr>"
        for name, value, note in rows
    )
    return f'<table>{cells}</table>\n<p class="more">Brackets show 95 % confidence intervals.</p>'


def _thresholds(summary: Summary) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in summary.thresholds.items())


def _case(result: CaseResult) -> str:
    score = "failed" if result.score is None else f"{result.score:.2f}"
    state = "error" if result.error else "supported" if result.score == 1.0 else "contradicted"
    parts = [
        f'<details><summary><span class="score {state}">{score}</span> {escape(result.case.case_id)}</summary>',
    ]
    if result.error is not None:
        parts.append(f'<p class="error">{escape(result.error)}</p>')
    if result.case.input:
        parts.append(f"<p><strong>Input</strong></p><pre>{_text(result.case.input)}</pre>")
    parts.append(f"<p><strong>Output</strong></p><pre>{_text(result.case.output)}</pre>")
    parts.extend(_claim(claim) for claim in result.claims)
    return "".join([*parts, "</details>"])


def _claim(claim: JudgedClaim) -> str:
    why = claim.explanation or claim.reason
    confidence = "" if claim.confidence is None else f" {claim.confidence:.2f}"
    parts = [
        f'<p><strong class="{claim.label.value}">{claim.label.value}</strong>{confidence}: ',
        _text(claim.text),
        f' <span class="more">{escape(why)}</span>' if why else "",
        "</p>",
    ]
    if claim.passage is not None:
        name = escape(claim.passage.document_id)
        parts.append(f'<blockquote><span class="more">{name}</span>\n{_text(claim.passage.content)}</blockquote>')
    return "".join(parts)


def _text(text: str) -> str:
    shown = text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + " […]"
    return escape(shown)
