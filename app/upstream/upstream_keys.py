"""Where the keys come from that neither the settings nor the configuration hold."""

from typing import Protocol


class KeySource(Protocol):
    """Looks up keys that are kept as secrets."""

    def key(self, name: str) -> str | None:
        """The key of that name as it is now, from memory; None where there is none."""
        ...


class NoKeys:
    """None is kept."""

    def key(self, name: str) -> str | None:
        return None
