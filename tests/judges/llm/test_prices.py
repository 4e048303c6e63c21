from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from judges.llm.prices import Price, PriceTable


def test_longest_matching_name_gives_the_price() -> None:
    table = PriceTable()
    assert table.price("gpt-4o-mini-2024-07-18") == Price(input=0.15, output=0.60)
    assert table.price("openai/gpt-4o-mini") == Price(input=0.15, output=0.60)
    assert table.price("mystery-7b") is None
    assert table.cost("gpt-4o-mini", 1_000_000, 500_000) == pytest.approx(0.45)
    assert table.cost("mystery-7b", 1, 1) is None


def test_cost_is_exact_and_unknown_without_a_price() -> None:
    table = PriceTable({"m": Price(input=0.15, output=0.6)})
    assert table.cost_of("m", 1, 3) == Decimal("0.00000195")
    assert table.cost_of("m", 0, 0) == 0
    assert table.cost_of("mystery-7b", 1, 1) is None


def test_built_in_prices_have_a_date_and_a_source() -> None:
    table = PriceTable()
    assert table.as_of == date(2026, 1, 31)
    assert "openai.com" in (table.source or "")
    assert table.own_as_of is None


def test_price_file_may_have_a_date_and_a_source(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('as_of = 2026-05-31\nsource = "our contract"\n["m"]\ninput = 1\noutput = 2\n')
    table = PriceTable.read(file)
    assert table.own_as_of == date(2026, 5, 31)
    assert table.price("m") == Price(input=1.0, output=2.0)


def test_price_file_overrides_built_in_prices(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('["gpt-*"]\ninput = 1\noutput = 2.5\n["local/*"]\ninput = 0\noutput = 0\n')
    table = PriceTable.read(file)
    assert table.price("gpt-4o-mini") == Price(input=1.0, output=2.5)
    assert table.cost("local/qwen3", 100, 100) == 0.0
    assert table.price("claude-haiku-4-5") == Price(input=1.0, output=5.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[x", "prices.toml"),
        ('["m"]\ninput = 1\n', "'m' must have input and output"),
        ('["m"]\ninput = "1"\noutput = 2\n', "'m': input must be a number"),
        ('["m"]\ninput = -1\noutput = 2\n', "'m': input must be a number"),
        ("m = 3\n", "'m' must have input and output"),
        ("as_of = 2026\n", "as_of must be a date"),
        ("as_of = 2026-05-31T10:00:00\n", "as_of must be a date"),
        ("source = 1\n", "source must be text"),
    ],
)
def test_invalid_price_file_is_rejected_with_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as caught:
        PriceTable.read(file)
    assert message in str(caught.value)


def test_missing_price_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        PriceTable.read(tmp_path / "none.toml")
