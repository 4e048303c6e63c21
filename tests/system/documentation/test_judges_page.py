"""The page on judges lists every preset that the gateway can run, with the facts from the table."""

import re
from pathlib import Path

import pytest

from judges.cross_encoder.presets import Preset, presets

PAGE = (Path(__file__).parents[3] / "docs" / "judging" / "judges.md").read_text(encoding="utf-8")
ROWS = {
    row.split("`")[1]: [cell.strip() for cell in row.split("|")[2:-1]] for row in re.findall(r"^\| `.*", PAGE, re.M)
}
LOCAL = [preset for preset in presets().values() if preset.speed != "remote"]


def family(preset: Preset) -> str:
    """The name in the preset's row; models for single languages share one."""
    return re.sub(r"^(lettucedetect-\d+m)-.*", r"\1-…", preset.name)


@pytest.mark.parametrize("preset", LOCAL, ids=lambda preset: preset.name)
def test_preset_has_a_row_with_its_facts(preset: Preset) -> None:
    size, speed, licence, languages, published, streaming = ROWS[family(preset)]
    assert (size, speed, licence, streaming) == (
        f"{preset.parameters} M",
        preset.speed,
        preset.licence,
        preset.streaming,
    )
    assert languages == (", ".join(preset.languages) or "many") or set(preset.languages) < set(
        re.findall("[a-z]{2}", languages)
    )
    if family(preset) == preset.name:
        figures = [f"[{f.value:g}]({f.source}) {f.metric}, {f.benchmark}" for f in preset.figures]
        assert published == ("; ".join(figures) or "–")
    else:
        low, high = map(float, re.findall(r"[\d.]+", published)[:2])
        assert all(low <= figure.value <= high and figure.source in published for figure in preset.figures)


def test_documented_judges_exist() -> None:
    rows = {name for name in ROWS if ROWS[name][0].endswith(" M")}
    assert rows == {family(preset) for preset in LOCAL}
    named = set(
        re.findall(r"`(?:preset:)?((?:minicheck|factcg|alignscore|hhem|lettucedetect|nli|bespoke)-[\w.-]*\w)`", PAGE)
    )
    assert named <= presets().keys()
