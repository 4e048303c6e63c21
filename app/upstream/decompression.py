"""Decompresses replies in pieces of limited size, so that decompression bombs are found early.

Only ``gzip`` and ``deflate`` are requested. Other encodings are supported because some servers use them anyway.
"""

import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Protocol, cast

import brotli
import httpx
import zstandard

from app.errors import UpstreamConnectError
from app.upstream.retry import translate

_PIECE = 256 * 1024
"""Bytes decompressed at a time. Readers count them and stop at their limit."""
_ZSTD_SLICE = 64
"""Compressed bytes given to zstd at a time. It has no output limit, and four bytes can become 128 KiB."""
_ZSTD_WINDOW = 8 * 1024 * 1024
"""The maximum in RFC 9659."""


class _Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]: ...

    @property
    def ended(self) -> bool:
        """The compressed data is complete."""
        ...


class _Zlib:
    """gzip, zlib, and raw deflate, which some servers send as ``deflate``."""

    def __init__(self) -> None:
        self._start = b""
        self._inflater: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inflater is None:
            self._start += data
            if len(self._start) < 2:
                return
            data, self._start = self._start, b""
            self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 32 if _has_header(data) else -zlib.MAX_WBITS)
        piece = self._inflater.decompress(data, _PIECE)
        while piece:
            yield piece
            piece = self._inflater.decompress(self._inflater.unconsumed_tail, _PIECE)

    @property
    def ended(self) -> bool:
        return self._inflater is not None and self._inflater.eof


def _has_header(data: bytes) -> bool:
    return data.startswith(b"\x1f\x8b") or (data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0)


class _Brotli:
    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        piece = self._decompressor.process(data, output_buffer_limit=_PIECE)
        while piece:
            yield piece
            piece = b"" if self.ended else self._decompressor.process(b"", output_buffer_limit=_PIECE)

    @property
    def ended(self) -> bool:
        return bool(self._decompressor.is_finished())


class _Zstd:
    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _ZSTD_SLICE):
            if self.ended:
                return
            yield self._decompressor.decompress(data[at : at + _ZSTD_SLICE])

    @property
    def ended(self) -> bool:
        return self._decompressor.eof


_DECODERS: Mapping[str, Callable[[], _Decoder]] = {
    "gzip": _Zlib,
    "x-gzip": _Zlib,
    "deflate": _Zlib,
    "br": _Brotli,
    "zstd": _Zstd,
}


def decoded(response: httpx.Response) -> AsyncIterator[bytes]:
    """The response's bytes, decompressed, in pieces of limited size.

    Raises UpstreamConnectError or UpstreamTimeoutError.
    """
    encoding = response.headers.get("content-encoding")
    return _unpacked(RawBody(response), encoding) if encoding else RawBody(response)


class RawBody:
    """The response's bytes as received. (A class, because a generator would have to be closed.)

    Raises UpstreamConnectError or UpstreamTimeoutError.
    """

    def __init__(self, response: httpx.Response) -> None:
        self._bytes = aiter(cast(httpx.AsyncByteStream, response.stream))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._bytes)
        except httpx.HTTPError as error:
            raise translate(error) from error


async def _unpacked(source: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    decoders = _decoders(encoding)
    begun = False
    try:
        async for data in source:
            begun = begun or bool(data)
            for piece in _through(decoders, data) if decoders else (data,):
                yield piece
    except (zlib.error, brotli.error, zstandard.ZstdError):
        raise UpstreamConnectError("The upstream's reply is not compressed as its Content-Encoding says.") from None
    if begun and not all(decoder.ended for decoder in decoders):
        raise UpstreamConnectError("The upstream's compressed reply ends too early.")


def _decoders(encoding: str) -> Sequence[_Decoder]:
    """The decoders for ``encoding``, from the last applied to the first."""
    names = [name for name in (part.strip().lower() for part in encoding.split(",")) if name not in ("", "identity")]
    if len(names) > 2 or any(name not in _DECODERS for name in names):
        raise UpstreamConnectError(
            f"The upstream's reply is compressed with an unsupported Content-Encoding: {encoding!r:.80}."
        )
    return [_DECODERS[name]() for name in reversed(names)]


def _through(decoders: Sequence[_Decoder], data: bytes) -> Iterator[bytes]:
    first, *others = decoders
    for piece in first.feed(data):
        if others:
            yield from _through(others, piece)
        else:
            yield piece
