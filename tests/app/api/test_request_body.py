"""Request bodies: sizes, encodings, and those that are a trap."""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.api.request_body import read_body
from app.errors import InvalidRequestError

pytestmark = pytest.mark.anyio
LIMIT = 1000


def request(pieces: Sequence[bytes], **headers: str) -> Request:
    async def messages() -> AsyncIterator[Message]:
        for piece in pieces:
            yield {"type": "http.request", "body": piece, "more_body": True}
        yield {"type": "http.request", "body": b"", "more_body": False}

    source = messages()
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": raw}
    return Request(scope, lambda: anext(source))


async def test_a_plain_body_is_joined() -> None:
    assert await read_body(request([b"a", b"b" * 999]), limit=LIMIT) == b"a" + b"b" * 999


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_compressed_body_is_decoded_however_it_is_cut(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b"x" * 900)
    pieces = [packed[i : i + 3] for i in range(0, len(packed), 3)]
    assert await read_body(request(pieces, content_encoding=encoding), limit=LIMIT) == b"x" * 900


async def refused(pieces: Sequence[bytes], **headers: str) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        await read_body(request(pieces, **headers), limit=LIMIT)
    return caught.value


async def test_a_body_over_the_limit_is_refused_unread_where_it_says_so() -> None:
    error = await refused([], content_length="1001")
    assert (error.status, error.param) == (413, "body")


async def test_a_body_over_the_limit_is_refused_where_it_does_not_say_so() -> None:
    assert (await refused([b"x" * 600, b"x" * 600])).status == 413


async def test_a_bomb_is_never_unpacked() -> None:
    assert (await refused([gzip.compress(b"x" * 100_000_000)], content_encoding="gzip")).status == 413


@pytest.mark.parametrize(
    "packed", [b"not gzip", gzip.compress(b"x" * 900, mtime=0)[:-9], b""], ids=["no", "cut", "none"]
)
async def test_a_broken_body_is_named_as_such(packed: bytes) -> None:
    error = await refused([packed], content_encoding="gzip")
    assert (error.status, "not valid gzip" in error.message) == (400, True)


async def test_an_unknown_encoding_is_a_415() -> None:
    assert (await refused([b"x"], content_encoding="br")).status == 415
