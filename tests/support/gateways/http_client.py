"""A client that sees every byte: plain HTTP/1.1 over a socket, with control over when it reads and disconnects."""

import json
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse
from types import TracebackType
from typing import Any, Self

from tests.support.apis.reply_reader import Reading, read_stream

READ_TIMEOUT_S = 20.0


class Call:
    """A request in progress. Nothing is read until the caller asks for it."""

    def __init__(
        self,
        port: int,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        receive_buffer: int | None = None,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(timeout_s)
        try:
            sock.connect(("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        self._sock = sock
        self._connection.sock = sock
        # A server may reject a body before it has read all of it. Its answer can still be read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.request(method, path, body, dict(headers))
        self._response: HTTPResponse | None = None
        self._raw = bytearray()

    @property
    def raw(self) -> bytes:
        """The raw body so far."""
        return bytes(self._raw)

    @property
    def response(self) -> HTTPResponse:
        """The head of the response. Waits until it has arrived."""
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    @property
    def status(self) -> int:
        return self.response.status

    def header(self, name: str) -> str | None:
        return self.response.getheader(name)

    @property
    def headers(self) -> list[tuple[str, str]]:
        return self.response.getheaders()

    @property
    def request_id(self) -> str:
        value = self.header("x-groundlane-request-id")
        if value is None:
            raise AssertionError(f"no x-groundlane-request-id in {self.headers}")
        return value

    def read_some(self, most: int = 65536) -> bytes:
        """Wait for at least one byte, and return the data received; return b"" at the end."""
        data = self.response.read1(most)
        self._raw += data
        return data

    def read_until(self, needle: bytes) -> bytes:
        """Read until ``needle`` arrives, and return everything so far."""
        while needle not in self._raw:
            if not self.read_some():
                raise AssertionError(f"the answer ended without {needle!r}: {self._raw[-1000:]!r}")
        return self.raw

    def read_all(self) -> bytes:
        while self.read_some():
            pass
        return self.raw

    def json(self) -> Any:
        return json.loads(self.read_all())

    def reading(self) -> Reading:
        """Read the whole stream and return it parsed."""
        return read_stream(self.read_all())

    def abort(self) -> None:
        """Disconnect like a killed client: with a reset, not an orderly close."""
        with suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._connection.close()
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
