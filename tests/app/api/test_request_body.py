"""Request bodies: sizes, encodings, and malicious ones."""

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


async def test_plain_body_is_joined() -> None:
    assert await read_body(request([b"a", b"b" * 999]), limit=LIMIT) == b"a" + b"b" * 999


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_body_is_decoded_for_any_chunking(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b"x" * 900)
    pieces = [packed[i : i + 3] for i in range(0, len(packed), 3)]
    assert await read_body(request(pieces, content_encoding=encoding), limit=LIMIT) == b"x" * 900


@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_every_member_of_a_gzip_body_is_read(step: int) -> None:
    """RFC 1952, section 2.2: a file consists of one or more members. Writers may pad them with zeros."""
    packed = gzip.compress(b"a" * 300) + gzip.compress(b"") + bytes(9) + gzip.compress(b"b" * 300) + bytes(512)
    pieces = [packed[i : i + step] for i in range(0, len(packed), step)]
    assert await read_body(request(pieces, content_encoding="gzip"), limit=LIMIT) == b"a" * 300 + b"b" * 300


async def test_members_of_a_gzip_body_count_together() -> None:
    assert (await refused([gzip.compress(b"x" * 600) * 2], content_encoding="gzip")).status == 413


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"x") + b"no member"),
        ("gzip", gzip.compress(b"x") + gzip.compress(b"y")[:-1]),
        ("deflate", zlib.compress(b"x") + zlib.compress(b"y")),
        ("deflate", zlib.compress(b"x") + gzip.compress(b"y")),
    ],
    ids=["text", "cut", "zlib", "gzip"],
)
async def test_other_data_after_the_end_is_rejected(encoding: str, packed: bytes, step: int) -> None:
    error = await refused([packed[i : i + step] for i in range(0, len(packed), step)], content_encoding=encoding)
    assert (error.status, f"not valid {encoding}" in error.message) == (400, True)


async def refused(pieces: Sequence[bytes], **headers: str) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        await read_body(request(pieces, **headers), limit=LIMIT)
    return caught.value


async def test_oversized_body_with_a_length_is_rejected_unread() -> None:
    error = await refused([], content_length="1001")
    assert (error.status, error.param) == (413, "body")


async def test_oversized_body_without_a_length_is_rejected() -> None:
    assert (await refused([b"x" * 600, b"x" * 600])).status == 413


async def test_decompression_bomb_is_never_unpacked() -> None:
    assert (await refused([gzip.compress(b"x" * 100_000_000)], content_encoding="gzip")).status == 413


@pytest.mark.parametrize(
    "packed", [b"not gzip", gzip.compress(b"x" * 900, mtime=0)[:-9], b""], ids=["no", "cut", "none"]
)
async def test_corrupt_body_is_named(packed: bytes) -> None:
    error = await refused([packed], content_encoding="gzip")
    assert (error.status, "not valid gzip" in error.message) == (400, True)


async def test_unknown_encoding_is_a_415() -> None:
    assert (await refused([b"x"], content_encoding="br")).status == 415
