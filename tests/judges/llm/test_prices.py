from pathlib import Path

import pytest

from judges.llm.prices import Price, PriceTable


def test_the_longest_name_that_matches_gives_the_price() -> None:
    table = PriceTable()
    assert table.price("gpt-4o-mini-2024-07-18") == Price(input=0.15, output=0.60)
    assert table.price("openai/gpt-4o-mini") == Price(input=0.15, output=0.60)
    assert table.price("mystery-7b") is None
    assert table.cost("gpt-4o-mini", 1_000_000, 500_000) == pytest.approx(0.45)
    assert table.cost("mystery-7b", 1, 1) is None


def test_a_file_of_prices_goes_before_those_shipped(tmp_path: Path) -> None:
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
    ],
)
def test_a_bad_file_of_prices_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as caught:
        PriceTable.read(file)
    assert message in str(caught.value)


def test_a_missing_file_of_prices_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        PriceTable.read(tmp_path / "none.toml")
