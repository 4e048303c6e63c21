"""What an upstream has answered, as the rest of the gateway sees it."""

from abc import ABC, abstractmethod

Headers = list[tuple[str, str]]
"""Names in lower case, and values; a character for each byte that stands on the wire (latin-1)."""


class Response(ABC):
    """A response whose head is here. Its body is still to be read; whoever has it closes it."""

    __slots__ = ()

    status_code: int
    headers: Headers

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    def header(self, name: str) -> str | None:
        """The header of that name, in lower case; of several, all (RFC 9110, section 5.3)."""
        values = [value for key, value in self.headers if key == name]
        return ", ".join(values) if values else None

    @abstractmethod
    async def read(self) -> bytes:
        """The next bytes of the body, as they came; none at its end. Raises httpx.TransportError."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of it. A body that was not read to its end does not come any more."""
