"""Reads request bodies: decompresses them and limits their size."""

import zlib
from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request

from app.errors import InvalidRequestError

_TOO_LARGE = 413
_UNSUPPORTED = 415
_INFLATE = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_SLICE = 16 * 1024
"""The number of compressed bytes to pass to zlib at a time. It is limited, because zlib copies the remaining bytes
after each gzip member."""


async def read_body(request: Request, *, limit: int, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the decompressed request body. Raises InvalidRequestError if the body is too large or its encoding isn't
    supported.

    Pass ``headers`` if they are already parsed.
    """
    headers = request.headers if headers is None else headers
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", *_INFLATE):
        raise InvalidRequestError(
            f"Content-Encoding {encoding!r} is not supported; use gzip, deflate or none.", status=_UNSUPPORTED
        )
    inflater = zlib.decompressobj(_INFLATE[encoding]) if encoding in _INFLATE else None
    body = bytearray()
    try:
        more = True
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            data, more = message.get("body", b""), message.get("more_body", False)
            if inflater is None:
                body += data
            else:
                inflater = _inflate(inflater, data, body, encoding=encoding, limit=limit)
            if len(body) > limit:
                raise _too_large(limit)
    except zlib.error:
        raise InvalidRequestError(f"The request body is not valid {encoding}.") from None
    if inflater is not None and not inflater.eof:
        raise InvalidRequestError(f"The request body is not valid {encoding}: unexpected end of data.")
    return bytes(body)


def _inflate(
    inflater: "zlib._Decompress", data: bytes, body: bytearray, *, encoding: str, limit: int
) -> "zlib._Decompress":
    """Append the decompressed ``data`` to ``body``. Return the decompressor for the data that follows, which is a new
    one if another gzip member has begun. Raises zlib.error for invalid data, or for any other data after the end.
    """
    for at in range(0, len(data), _SLICE):
        rest = data[at : at + _SLICE]
        while rest and len(body) <= limit:
            if inflater.eof:
                rest = rest.lstrip(b"\0")  # members may be padded
                if encoding != "gzip":
                    raise zlib.error("unexpected data after the end")
                inflater = zlib.decompressobj(_INFLATE[encoding]) if rest else inflater
            # Decompress at most one byte over the limit, so that a decompression bomb is never unpacked.
            body += inflater.decompress(rest, limit + 1 - len(body))
            rest = inflater.unused_data if rest else b""
    return inflater


def _too_large(limit: int) -> InvalidRequestError:
    return InvalidRequestError(f"The request body exceeds {limit} bytes.", param="body", status=_TOO_LARGE)
