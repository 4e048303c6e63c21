"""Charts are drawn in proportion, escape their texts and list every number in a table."""

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from app.dashboard.charts import (
    BarPart,
    Series,
    histogram,
    lines,
    nice_top,
    share_bar,
    stacked,
    tag,
    ticks,
    time_axis,
    timing_bar,
)

AXIS = ["a", "b"]


def rects(chart: str, tone: str) -> list[dict[str, str]]:
    return [
        element.attrib
        for element in ElementTree.fromstring(chart).iter("rect")
        if element.get("class") == f"tone-{tone}"
    ]


def test_columns_are_stacked_in_proportion() -> None:
    chart = stacked(
        "T", AXIS, [Series(name="A", values=[30, 0], tone="allow"), Series(name="B", values=[10, 20], tone="block")]
    )
    (below,), (above, alone) = rects(chart, "allow"), rects(chart, "block")
    assert (float(below["height"]), float(below["y"])) == (75, 25)
    assert (float(above["height"]), float(above["y"])) == (25, 0)
    assert (float(alone["height"]), float(alone["y"])) == (50, 50)


def test_line_has_gaps_for_missing_values_and_ends_at_the_axis() -> None:
    chart = lines("T", ["a", "b", "c", "d"], [Series(name="A", values=[0, 1, None, 9], tone="good")], top=2.0)
    path = re.search(r' d="([^"]+)"', chart)
    assert path is not None
    assert path.group(1).count("M") == 2
    assert path.group(1).startswith("M125.0 100.0")
    assert "M875.0 0.0" in path.group(1)


def test_names_are_escaped() -> None:
    chart = stacked("<b>", ['"><script>'], [Series(name="<i>", values=[1], tone="allow")])
    assert "<script" not in chart
    assert "<b>" not in chart
    assert "<i>" not in chart
    ElementTree.fromstring(chart)


def test_every_number_is_in_the_table() -> None:
    chart = stacked("T", AXIS, [Series(name="A", values=[1234, None], tone="allow")])
    cells = [cell.text for cell in ElementTree.fromstring(chart).iter("td")]
    assert cells == ["1,234", "–"]


def test_empty_charts_are_drawn() -> None:
    for chart in (stacked("T", [], []), lines("T", [], []), share_bar([], label="x")):
        ElementTree.fromstring(chart)


def test_histogram_draws_its_marker_at_the_value() -> None:
    chart = histogram("T", [0, 0.5, 1], [Series(name="A", values=[1, 2], tone="good")], marker=0.25)
    (marker,) = [line for line in ElementTree.fromstring(chart).iter("line") if line.get("class") == "marker"]
    assert marker.get("x1") == marker.get("x2") == "250"


def test_ticks_are_drawn_at_their_position_with_their_title() -> None:
    chart = stacked(
        "T", AXIS, [Series(name="A", values=[1, 2], tone="good")], ticks=ticks([(0.25, "<changed>"), (2, "b")])
    )
    drawn = [each for each in ElementTree.fromstring(chart).iter("rect") if each.get("class") == "tick"]
    assert [(each.get("x"), each[0].text) for each in drawn] == [("245", "<changed>"), ("995", "b")]


def test_parts_of_a_timing_bar_are_placed_at_their_time() -> None:
    bar = timing_bar(
        [BarPart(name="A", value=20, tone="judge", start=30), BarPart(name="B", value=50, tone="idle")], 100, label="x"
    )
    assert [(r["x"], r["width"]) for r in rects(bar, "judge") + rects(bar, "idle")] == [("300", "200"), ("500", "500")]


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.31, 0.4), (1, 1), (1.02, 1.5), (7, 8), (21, 30), (31, 40), (450, 500), (850, 1000)]
)
def test_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)


@pytest.mark.parametrize(("value", "top"), [(0, 2), (1, 2), (3, 4), (5, 6), (9, 10), (14, 20), (25, 30), (45, 50)])
def test_axis_of_integers_has_an_integer_half(value: int, top: int) -> None:
    assert nice_top(value, whole=True) == top


def test_time_labels_include_the_date_only_if_needed() -> None:
    start = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    texts = [
        re.sub("<[^>]+>", "", time_axis([start, start + timedelta(hours=hours)], step)[0])
        for hours, step in ((1, 60), (30, 3600), (72, 86400))
    ]
    assert texts == ["09:30", "1 Mar 09:30", "1 Mar"]


def test_none_attributes_are_omitted() -> None:
    assert tag("a", "x", class_="y", data_z=None, aria_label='"') == '<a class="y" aria-label="&#34;">x</a>'
