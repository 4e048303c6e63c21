"""Replies that an upstream compressed: unpacked whole, or given up while a bomb is small."""

import gzip
import zlib
from collections.abc import AsyncIterator, Callable

import brotli
import httpx
import pytest
import zstandard

from app.errors import UpstreamConnectError
from app.upstream import decoded
from tests.support.in_process_gateway import TRUE, bench

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
LARGEST_PIECE = 4 * MIB


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate, ": raw_deflate,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}
every_encoding = pytest.mark.parametrize("encoding", PACKERS)


def packed(data: bytes, encoding: str, *, step: int = 100_000) -> httpx.Response:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(data), step):
            yield data[at : at + step]

    return httpx.Response(
        200, headers={"content-encoding": encoding, "content-type": "application/json"}, content=pieces()
    )


@every_encoding
@pytest.mark.parametrize("step", [1, 7, 100_000])
async def test_what_was_packed_is_unpacked(encoding: str, step: int) -> None:
    text = TRUE.encode() * 50
    response = packed(PACKERS[encoding](text), encoding, step=step)
    assert b"".join([piece async for piece in decoded(response)]) == text


async def test_encodings_are_undone_in_turn() -> None:
    response = packed(gzip.compress(brotli.compress(TRUE.encode())), "br, gzip")
    assert b"".join([piece async for piece in decoded(response)]) == TRUE.encode()


@every_encoding
async def test_a_bomb_is_unpacked_in_pieces(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(16 * MIB))
    sizes = [len(piece) async for piece in decoded(packed(bomb, encoding))]
    assert sum(sizes) == 16 * MIB
    assert max(sizes) <= LARGEST_PIECE


@every_encoding
async def test_a_reply_that_unpacks_beyond_the_limit_is_refused(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(16 * MIB))
    at = await bench(lambda _: packed(bomb, encoding), settings={"max_reply_bytes": MIB})
    with pytest.raises(UpstreamConnectError, match="longer than"):
        await at.ask()


@every_encoding
async def test_what_is_cut_off_or_damaged_is_no_reply(encoding: str) -> None:
    whole = PACKERS[encoding](TRUE.encode() * 50)
    for data in (whole[: len(whole) // 2], b"\xff" + whole[1:], b"no such thing"):
        with pytest.raises(UpstreamConnectError, match="compressed"):
            _ = [piece async for piece in decoded(packed(data, encoding))]


async def test_an_unknown_encoding_is_refused_by_name() -> None:
    for encoding in ("lzma", "gzip, gzip, gzip"):
        with pytest.raises(UpstreamConnectError, match=encoding):
            _ = [piece async for piece in decoded(packed(b"x", encoding))]


async def test_an_empty_reply_needs_no_packing() -> None:
    assert [piece async for piece in decoded(packed(b"", "gzip"))] == []
