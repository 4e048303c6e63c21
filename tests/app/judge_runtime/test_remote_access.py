"""Keys, prices and queues of remote judges, from the settings."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from app.judge_runtime.offline import open_cross_encoder
from app.judge_runtime.remote_access import judge_access
from app.judge_runtime.stack import JudgeStack
from app.settings import Settings, SettingsError
from judges.cross_encoder.cascade import CascadeScorer
from judges.cross_encoder.presets.service_presets import KEY_SETTINGS
from judges.cross_encoder.score_cache import CachingScorer


class Secrets:
    def key(self, name: str) -> str | None:
        return f"secret-{name}" if name != "google" else None


@pytest.mark.parametrize(("name", "setting"), list(KEY_SETTINGS.items()))
def test_key_comes_from_its_setting_or_the_secret_of_that_name(
    name: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judge_access(Settings(_env_file=None)).keys(name) is None
    stored = judge_access(Settings(_env_file=None), Secrets())
    assert stored.keys(name) == (None if name == "google" else f"secret-{name}")
    monkeypatch.setenv(setting, "from-the-setting")
    assert judge_access(Settings(_env_file=None), Secrets()).keys(name) == "from-the-setting"


def test_timeouts_and_prices_come_from_the_settings(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('["mine"]\ninput = 2\noutput = 4\n')
    access = judge_access(Settings(_env_file=None, judge_timeout_ms=1500, prices=str(prices)))
    assert access.timeout_s == 1.5
    assert access.cost("mine", 1_000_000, 500_000) == 4.0
    assert access.cost("unknown", 1, 1) is None
    assert judge_access(Settings(_env_file=None), timeout_s=60.0).timeout_s == 60.0
    with pytest.raises(SettingsError, match="GROUNDLANE_PRICES"):
        judge_access(Settings(_env_file=None, prices=str(tmp_path / "none.toml")))


def test_judges_of_a_cascade_have_own_queues_and_caches_with_summed_counters() -> None:
    settings = Settings(
        _env_file=None, judge="preset:vectara then preset:vectara if uncertain then embedded if uncertain"
    )
    backend = open_cross_encoder(settings)
    stack = JudgeStack(settings, backend)
    assert isinstance(stack.scorer, CascadeScorer)
    outer = stack.scorer
    assert isinstance(outer._second, CachingScorer)
    assert isinstance(outer._first, CascadeScorer)
    assert isinstance(outer._first._first, CachingScorer)
    outer._second.misses, outer._first._first.misses = 3, 4
    assert stack.totals().cache_misses == 7


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ("preset:azure-groundedness", "GROUNDLANE_JUDGE: judge preset:azure-groundedness: needs the option 'endpoint'"),
        ("preset:vectra", "GROUNDLANE_JUDGE: unknown preset 'vectra': did you mean 'vectara'"),
        ("embedded then", "GROUNDLANE_JUDGE: judge 'embedded then': expected 'embedded'"),
    ],
)
def test_invalid_judge_names_the_setting(judge: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as fault:
        open_cross_encoder(Settings(_env_file=None, judge=judge, judge_api_key=SecretStr("k")))
    assert "\n" not in str(fault.value)
