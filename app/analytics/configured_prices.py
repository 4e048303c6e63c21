"""The prices of model calls. The operator's own prices override the built-in price table."""

from pathlib import Path

from app.settings import Settings, SettingsError
from judges.llm import PriceTable


def open_prices(settings: Settings) -> PriceTable:
    """Load the price table. ``PriceTable.cost_of(model, prompt_tokens, completion_tokens)`` returns the cost of a call
    in US dollars, or None if the model's price is unknown. Raises SettingsError for an invalid price file."""
    try:
        return PriceTable.read(Path(settings.prices)) if settings.prices else PriceTable()
    except ValueError as error:
        raise SettingsError(f"GROUNDLANE_PRICES: {error}") from None
