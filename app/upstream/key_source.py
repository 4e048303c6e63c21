"""The source of upstream keys that are stored as secrets."""

from typing import Protocol


class KeySource(Protocol):
    """Looks up keys that are stored as secrets."""

    def key(self, name: str) -> str | None:
        """Return the current key with the name ``name`` from memory, or None if there is none."""
        ...


class NoKeys:
    """A source without keys."""

    def key(self, name: str) -> str | None:
        return None
