"""Request bodies: decompressed and limited in size."""

import zlib
from collections.abc import Mapping

from starlette.requests import Request

from app.errors import InvalidRequestError

_TOO_LARGE = 413
_UNSUPPORTED = 415
_INFLATE = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


async def read_body(request: Request, *, limit: int, headers: Mapping[str, str] | None = None) -> bytes:
    """The request's body, decompressed. Raises InvalidRequestError if it is too large or its encoding isn't supported.

    ``headers`` are the request's own, if the caller has parsed them already.
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
        async for data in request.stream():
            # One byte over the limit is enough to know; a decompression bomb is never unpacked.
            body += inflater.decompress(data, limit + 1 - len(body)) if inflater else data
            if len(body) > limit:
                raise _too_large(limit)
    except zlib.error:
        raise InvalidRequestError(f"The request body is not valid {encoding}.") from None
    if inflater is not None and not inflater.eof:
        raise InvalidRequestError(f"The request body is not valid {encoding}: it ends too early.")
    return bytes(body)


def _too_large(limit: int) -> InvalidRequestError:
    return InvalidRequestError(f"The request body exceeds {limit} bytes.", param="body", status=_TOO_LARGE)
