"""Where upstream keys that are stored as secrets come from."""

from typing import Protocol


class KeySource(Protocol):
    """Looks up keys that are stored as secrets."""

    def key(self, name: str) -> str | None:
        """The current key of that name, from memory; None if there is none."""
        ...


class NoKeys:
    """A source without keys."""

    def key(self, name: str) -> str | None:
        return None
