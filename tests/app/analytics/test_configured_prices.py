from pathlib import Path

import pytest

from app.analytics.configured_prices import open_prices
from app.settings import Settings, SettingsError
from judges.llm.prices import Price


def test_configured_price_file_overrides_list_prices(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('["gpt-4o"]\ninput = 1\noutput = 2\n')
    table = open_prices(Settings(_env_file=None, prices=str(file)))
    assert table.price("gpt-4o") == Price(input=1.0, output=2.0)
    assert table.price("gpt-4o-mini") == Price(input=0.15, output=0.6)


def test_unreadable_price_file_stops_the_start_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"\AGROUNDLANE_PRICES: [^\n]+\Z"):
        open_prices(Settings(_env_file=None, prices=str(tmp_path / "none.toml")))
