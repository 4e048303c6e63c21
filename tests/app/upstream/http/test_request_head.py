"""Requests as they stand on the wire: what is made up, what is taken over, and what is refused."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from app.errors import InvalidRequestError
from app.upstream.http.address import address_of
from app.upstream.http.request_head import written
from app.upstream.http.response import Headers

AT = address_of("http://user:pw@up.test:8080/v1/x%2Fy?a=%e4&b=c,d")


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def _joined(body: bytes | AsyncIterator[bytes]) -> bytes:
    return body if isinstance(body, bytes) else b"".join([piece async for piece in body])


def wire(method: str, headers: Headers, content: bytes | AsyncIterator[bytes] = b"") -> bytes:
    head, body = written(method, AT, headers, content)
    return head + asyncio.run(_joined(body))


def test_a_request_has_its_headers_a_host_and_a_length() -> None:
    assert wire("POST", [("x-a", "1"), ("x-a", "2")], b"{}") == (
        b"POST /v1/x%2Fy?a=%e4&b=c,d HTTP/1.1\r\nx-a: 1\r\nx-a: 2\r\nhost: up.test:8080\r\ncontent-length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize(
    ("method", "length"),
    [("GET", b""), ("HEAD", b""), ("POST", b"content-length: 0\r\n"), ("DELETE", b"content-length: 0\r\n")],
)
def test_a_request_without_a_body_says_so_where_one_could_be(method: str, length: bytes) -> None:
    assert wire(method, []).partition(b"\r\n")[2] == b"host: up.test:8080\r\n" + length + b"\r\n"


def test_a_host_among_the_headers_is_the_host() -> None:
    assert wire("GET", [("host", "other.test")]).count(b"host") == 1


@pytest.mark.parametrize("framing", [("content-length", "7"), ("transfer-encoding", "chunked")])
def test_a_whole_body_has_its_own_length(framing: tuple[str, str]) -> None:
    got = wire("POST", [framing], b"{}")
    assert got.endswith(b"content-length: 2\r\n\r\n{}")
    assert (got.count(b"content-length"), got.count(b"transfer-encoding")) == (1, 0)


@pytest.mark.parametrize("headers", [[], [("transfer-encoding", "gzip")]])
def test_a_body_in_pieces_is_chunked_and_its_empty_pieces_end_nothing(headers: Headers) -> None:
    got = wire("POST", headers, pieces(b"first", b"", b"x" * 16))
    assert got.endswith(b"transfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n")


def test_a_body_in_pieces_may_have_a_length() -> None:
    got = wire("PUT", [("content-length", "7")], pieces(b"abc", b"", b"defg"))
    assert got.endswith(b"content-length: 7\r\n\r\nabcdefg")
    assert b"chunked" not in got


@pytest.mark.parametrize("length", ["6", "8", "many", "-1", "٧", ""])
def test_a_length_that_is_not_the_bodys_is_refused(length: str) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        wire("PUT", [("content-length", length)], pieces(b"abc", b"defg"))


@pytest.mark.parametrize("part", ["\r\nx-evil: 1", "\nx-evil: 1", "\rx-evil: 1", "\0", "\r\n\r\nGET / HTTP/1.1", "ツ"])
def test_no_header_makes_another(part: str) -> None:
    for headers in ([("x-a", f"1{part}")], [(f"x-a{part}", "1")], [("x-a", part), ("x-b", "2")]):
        with pytest.raises(httpx.LocalProtocolError):
            wire("GET", headers)


@pytest.mark.parametrize("method", ["", "GET /other HTTP/1.1\r\nx:", "G\nET", "GÉT"])
def test_a_method_is_a_word(method: str) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        wire(method, [])


@pytest.mark.parametrize("target", ["/a b", "/a\r\nx: y", "/a\0", "/a\x7f", "/ツ", "/" + "a" * 70_000])
def test_a_target_that_cannot_stand_in_a_line_is_the_clients_mistake(target: str) -> None:
    with pytest.raises(InvalidRequestError):
        address_of(f"http://up.test{target}")


def test_bytes_beyond_ascii_go_out_as_they_came() -> None:
    head, _ = written("GET", address_of("http://up.test/\xe4?\xff"), [("x-a", "\xe4\xff")], b"")
    assert head == b"GET /\xe4?\xff HTTP/1.1\r\nx-a: \xe4\xff\r\nhost: up.test\r\n\r\n"


@pytest.mark.parametrize(
    ("url", "tls", "host", "port", "header", "target"),
    [
        ("http://up.test", False, "up.test", 80, "up.test", "/"),
        ("https://up.test/v1", True, "up.test", 443, "up.test", "/v1"),
        ("https://up.test:8443/v1", True, "up.test", 8443, "up.test:8443", "/v1"),
        ("http://[::1]:8000/v1", False, "::1", 8000, "[::1]:8000", "/v1"),
        ("http://bücher.test/v1", False, "xn--bcher-kva.test", 80, "xn--bcher-kva.test", "/v1"),
        ("http://user:pw@up.test/v1", False, "up.test", 80, "up.test", "/v1"),
    ],
)
def test_an_address_is_what_the_url_says(url: str, tls: bool, host: str, port: int, header: str, target: str) -> None:
    got = address_of(url)
    assert (*got.origin, got.host, got.target) == (tls, host, port, header, target)
