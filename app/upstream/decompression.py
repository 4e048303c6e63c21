"""Decompresses replies in pieces of limited size, so that decompression bombs are detected early.

Only ``gzip`` and ``deflate`` are requested. Other encodings are supported because some servers use them anyway.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Protocol

import brotli
import zstandard

from app.errors import UpstreamConnectError

_PIECE = 32 * 1024
"""The number of bytes to decompress at a time. A reader counts the bytes and stops at its limit. Between pieces, other
tasks can run."""
_ZLIB_SLICE = 16 * 1024
"""The number of compressed bytes to pass to zlib at a time. It is limited because zlib copies the remaining bytes after
each gzip member."""
_GZIP = b"\x1f\x8b"
_ZSTD_SLICE = 64
"""The number of compressed bytes to pass to zstd at a time. zstd has no output limit, and four bytes can become 128
KiB."""
_ZSTD_WINDOW = 8 * 1024 * 1024
"""The maximum window size in RFC 9659."""


class _Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]: ...

    @property
    def ended(self) -> bool:
        """Whether the compressed data is complete."""
        ...


class _Zlib:
    """Decompresses gzip with any number of members, zlib, and raw deflate. Some servers send raw deflate as
    ``deflate``."""

    def __init__(self) -> None:
        self._start = b""
        self._inflater: zlib._Decompress | None = None
        self._is_gzip = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _ZLIB_SLICE):
            rest, self._start = self._start + data[at : at + _ZLIB_SLICE], b""
            while rest:
                if self._inflater is None or self._inflater.eof:
                    rest = rest.lstrip(b"\0") if self._inflater is not None else rest  # members may be padded
                    if len(rest) < 2:
                        self._start = rest
                        break
                    self._inflater = self._next(rest)
                piece = self._inflater.decompress(rest, _PIECE)
                while piece:
                    yield piece
                    piece = self._inflater.decompress(self._inflater.unconsumed_tail, _PIECE)
                rest = self._inflater.unused_data

    def _next(self, data: bytes) -> "zlib._Decompress":
        """Return the decompressor for ``data``. After the end of the compressed data, only another gzip member may
        follow. Raises zlib.error."""
        if self._inflater is None:
            self._is_gzip = data.startswith(_GZIP)
        elif not (self._is_gzip and data.startswith(_GZIP)):
            raise zlib.error("unexpected data after the end of the compressed data")
        return zlib.decompressobj(zlib.MAX_WBITS | 32 if _has_header(data) else -zlib.MAX_WBITS)

    @property
    def ended(self) -> bool:
        return self._inflater is not None and self._inflater.eof and not self._start


def _has_header(data: bytes) -> bool:
    return data.startswith(_GZIP) or (data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0)


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
    """Decompresses one or more frames."""

    def __init__(self) -> None:
        self._context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._frame = self._context.decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _ZSTD_SLICE):
            rest = data[at : at + _ZSTD_SLICE]
            while rest:
                if self._frame.eof:
                    self._frame = self._context.decompressobj()
                yield self._frame.decompress(rest)
                rest = self._frame.unused_data

    @property
    def ended(self) -> bool:
        return self._frame.eof


_DECODERS: Mapping[str, Callable[[], _Decoder]] = {
    "gzip": _Zlib,
    "x-gzip": _Zlib,
    "deflate": _Zlib,
    "br": _Brotli,
    "zstd": _Zstd,
}


async def decompressed(source: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Yield the decoded bytes of ``source``, in pieces of limited size.

    Raises UpstreamConnectError.
    """
    decoders = _decoders(encoding)
    begun = False
    try:
        async for data in source:
            begun = begun or bool(data)
            if not decoders:
                yield data
                continue
            for piece in _through(decoders, data):
                for at in range(0, len(piece), _PIECE):
                    yield piece[at : at + _PIECE]
                    await asyncio.sleep(0)
    except (zlib.error, brotli.error, zstandard.ZstdError):
        raise UpstreamConnectError(
            "The compression of the upstream's reply doesn't match its Content-Encoding."
        ) from None
    if begun and not all(decoder.ended for decoder in decoders):
        raise UpstreamConnectError("The upstream's compressed reply is incomplete.")


def _decoders(encoding: str) -> Sequence[_Decoder]:
    """Return the decoders for ``encoding``, starting with the encoding that was applied last."""
    names = [name for name in (part.strip().lower() for part in encoding.split(",")) if name not in ("", "identity")]
    if len(names) > 2 or any(name not in _DECODERS for name in names):
        # The message doesn't contain the name of the encoding, because the upstream chose it.
        raise UpstreamConnectError(
            "The upstream's reply has an unsupported Content-Encoding. At most two of these encodings are "
            f"supported: {', '.join(_DECODERS)}."
        )
    return [_DECODERS[name]() for name in reversed(names)]


def _through(decoders: Sequence[_Decoder], data: bytes) -> Iterator[bytes]:
    first, *others = decoders
    for piece in first.feed(data):
        if others:
            yield from _through(others, piece)
        else:
            yield piece
