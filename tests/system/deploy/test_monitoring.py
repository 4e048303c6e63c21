"""The files for Grafana and Prometheus only use metrics and labels that the gateway has."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics import MetricWrapperBase

from app.observability import Metrics

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "groundlane.json"
_NAME = re.compile(r"\bgroundlane_\w+")
_SELECTED = re.compile(r"(groundlane_\w+)\{([^}]*)\}")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!=|!~|=)\s*"')
_BY = re.compile(r"by \(([^)]*)\) \(rate\((groundlane_\w+)")


def labels_of_metrics() -> dict[str, set[str]]:
    """Every series name of the exposition, with the labels that it may have."""
    found: dict[str, set[str]] = {}
    for metric in vars(Metrics()).values():
        of = metric.values() if isinstance(metric, dict) else [metric]
        for one in (item for item in of if isinstance(item, MetricWrapperBase)):
            labels = set(one._labelnames)
            for described in one.describe():
                suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(described.type, [""])
                found.update({described.name + suffix: labels | {"le", "job"} for suffix in suffixes})
    return found


def expressions() -> dict[str, list[str]]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return {panel["title"]: [target["expr"] for target in panel.get("targets", ())] for panel in panels}


def test_dashboard_is_the_output_of_its_script() -> None:
    assert DASHBOARD.read_text("utf-8") == runpy.run_path(str(DEPLOY / "grafana" / "dashboard.py"))["written"]()


def texts() -> list[Any]:
    rules = (DEPLOY / "prometheus" / "groundlane.rules.yml").read_text("utf-8")
    shown = "\n".join(expr for of in expressions().values() for expr in of)
    return [pytest.param(shown, id="dashboard"), pytest.param(rules, id="rules")]


@pytest.mark.parametrize("text", texts())
def test_every_metric_and_label_in_use_exists(text: str) -> None:
    known = labels_of_metrics()
    asked = set(_NAME.findall(text))
    assert asked - known.keys() == set()
    for name, selector in _SELECTED.findall(text):
        assert set(_LABEL.findall(selector)) <= known[name]
    for by, name in _BY.findall(text):
        assert {label.strip() for label in by.split(",")} <= known[name]


def test_dashboard_shows_every_metric() -> None:
    shown = {name for of in expressions().values() for expr in of for name in _NAME.findall(expr)}
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in labels_of_metrics()}
    assert bases - {re.sub(r"_bucket$", "", name) for name in shown} == set()


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    for exprs in expressions().values():
        assert all(expr.count("(") == expr.count(")") for expr in exprs)
