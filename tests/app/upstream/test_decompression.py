"""Compressed replies: decompressed completely, or aborted early if they are decompression bombs."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable

import brotli
import httpx
import pytest
import zstandard

from app.errors import UpstreamConnectError
from app.upstream import decoded
from tests.support.gateways.in_process_gateway import TRUE, bench

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
async def test_compressed_body_is_decompressed(encoding: str, step: int) -> None:
    text = TRUE.encode() * 50
    response = packed(PACKERS[encoding](text), encoding, step=step)
    assert b"".join([piece async for piece in decoded(response)]) == text


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize(
    ("encoding", "padding"), [("gzip", b""), ("gzip", bytes(300)), ("deflate, gzip", b""), ("zstd", b"")]
)
async def test_every_member_is_decompressed(encoding: str, padding: bytes, step: int) -> None:
    """gzip has one or more members (RFC 1952, section 2.2), which writers may pad with zeros, and zstd one or more
    frames (RFC 8878, section 3)."""
    pack = PACKERS[encoding.rpartition(" ")[2]]
    parts = [TRUE.encode() * 50, b"", b"It is so."]
    if "deflate" in encoding:
        parts = [zlib.compress(b"".join(parts))[at : at + 9] for at in range(0, 400, 9)]
    data = b"".join(pack(part) + padding for part in parts)
    read = b"".join([piece async for piece in decoded(packed(data, encoding, step=step))])
    assert read == TRUE.encode() * 50 + b"It is so."


@every_encoding
@pytest.mark.parametrize("step", [1, 100_000])
async def test_data_after_the_end_is_rejected(encoding: str, step: int) -> None:
    """What isn't read isn't lost silently."""
    whole = PACKERS[encoding](TRUE.encode())
    for rest in (b"no member", raw_deflate(b"so"), zlib.compress(b"so"), b"\x1f"):
        with pytest.raises(UpstreamConnectError, match="compress"):
            _ = [piece async for piece in decoded(packed(whole + rest, encoding, step=step))]


async def test_encodings_are_undone_in_reverse_order() -> None:
    response = packed(gzip.compress(brotli.compress(TRUE.encode())), "br, gzip")
    assert b"".join([piece async for piece in decoded(response)]) == TRUE.encode()


@every_encoding
async def test_decompression_bomb_is_unpacked_in_pieces(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(16 * MIB))
    sizes = [len(piece) async for piece in decoded(packed(bomb, encoding))]
    assert sum(sizes) == 16 * MIB
    assert max(sizes) <= LARGEST_PIECE


@every_encoding
async def test_reply_beyond_the_decompressed_limit_is_rejected(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(16 * MIB))
    at = await bench(lambda _: packed(bomb, encoding), settings={"max_reply_bytes": MIB})
    with pytest.raises(UpstreamConnectError, match="exceeds the limit"):
        await at.ask()


@every_encoding
async def test_truncated_or_corrupt_compression_is_rejected(encoding: str) -> None:
    whole = PACKERS[encoding](TRUE.encode() * 50)
    for data in (whole[: len(whole) // 2], b"\xff" + whole[1:], b"no such thing"):
        with pytest.raises(UpstreamConnectError, match="compress"):
            _ = [piece async for piece in decoded(packed(data, encoding))]


async def test_unknown_encoding_is_rejected_without_its_name() -> None:
    """The upstream chooses the name, and the client receives the message."""
    for encoding in ("lzma", "gzip, gzip, gzip", "drink-bleach-now"):
        with pytest.raises(UpstreamConnectError, match="unsupported Content-Encoding") as refused:
            _ = [piece async for piece in decoded(packed(b"x", encoding))]
        assert encoding not in str(refused.value)


async def test_empty_reply_needs_no_decompression() -> None:
    assert [piece async for piece in decoded(packed(b"", "gzip"))] == []


@every_encoding
async def test_decompression_yields_to_other_tasks(encoding: str) -> None:
    turns, over = 0, False

    async def others() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(others())
        async for _ in decoded(packed(PACKERS[encoding](b"\n" * 4 * MIB), encoding)):
            pass
        over = True
    assert turns >= 16
