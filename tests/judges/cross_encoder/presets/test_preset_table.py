import re

import pytest

from judges.cross_encoder import open_scorer, spec_languages
from judges.cross_encoder.presets import Preset, find_preset, presets

EVERY = list(presets().values())


@pytest.mark.parametrize("preset", EVERY, ids=lambda preset: preset.name)
def test_every_preset_opens_and_names_its_references(preset: Preset) -> None:
    assert open_scorer(f"preset:{preset.name}?{preset.options}") is not None
    assert preset.sources
    assert all(source.startswith("https://") for source in preset.sources)
    assert all(figure.source.startswith("https://") and 0 < figure.value <= 100 for figure in preset.figures)
    assert 0 < preset.threshold < 1
    assert all(re.fullmatch("[a-z]{2}", code) for code in preset.languages)
    assert preset.window is None or preset.window.tokens < preset.max_tokens


def test_recommended_judges_are_available() -> None:
    wanted = {
        "minicheck-roberta-large",
        "minicheck-deberta-v3-large",
        "minicheck-flan-t5-large",
        "factcg-deberta-v3-large",
        "alignscore-base",
        "alignscore-large",
        "hhem-2.1-open",
        "nli-deberta-v3-large",
        "nli-mdeberta-v3-base",
        "nli-modernbert-large",
        "lettucedetect-base",
        "lettucedetect-large",
        "lettucedetect-v2-base",
        "lettucedetect-610m-de",
    }
    assert wanted <= presets().keys()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("minicheck-roberta", "did you mean 'minicheck-roberta-large'? "),
        ("HHEM", "did you mean 'hhem-2.1-open'? "),
        ("factgc-deberta-v3-large", "did you mean 'factcg-deberta-v3-large'? "),
        ("gpt-4o", ""),
    ],
)
def test_unknown_preset_fails_with_one_line_of_instructions(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match="unknown preset") as refused:
        open_scorer(f"preset:{name}")
    assert str(refused.value) == f"unknown preset {name!r}: {hint}`groundlane judges` lists them"


def test_unknown_option_of_a_preset_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"preset 'hhem-2.1-open': unknown option 'backend'; options: base, device, "):
        open_scorer("preset:hhem-2.1-open?backend=onnx")
    with pytest.raises(ValueError, match="trust_remote_code='yes': expected true or false"):
        open_scorer("preset:lettucedetect-610m-de?trust_remote_code=yes")


def test_languages_of_a_preset_come_from_its_option_or_the_table() -> None:
    assert spec_languages("preset:hhem-2.1-open") == frozenset({"en"})
    assert spec_languages("preset:lettucedetect-610m-de") == frozenset({"de"})
    assert spec_languages("preset:nli-mdeberta-v3-base") is None
    assert spec_languages("preset:hhem-2.1-open?languages=en,de") == frozenset({"en", "de"})


def test_preset_with_another_model_is_named_after_both() -> None:
    scorer = open_scorer("preset:minicheck-roberta-large?model=/models/ours")
    assert scorer is not None
    assert scorer.name == "preset:minicheck-roberta-large(ours)"


def test_window_length_follows_the_model() -> None:
    windowing = find_preset("minicheck-roberta-large").windowing
    assert windowing is not None
    assert (windowing.tokens, windowing.sentences > 1000, windowing.overlap) == (400, True, 0)
    assert find_preset("nli-deberta-v3-large").windowing is None
