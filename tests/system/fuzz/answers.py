"""The parser of what upstreams answer: no crash, no answer out of half of one, and the same whatever the cuts."""

import httpx

from app.upstream.http.response_body import Answer
from app.upstream.http.response_parser import AnswerParser
from tests.system.fuzz.draw import Draw

STARTS = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\n", b"HTTP/1.1 204 \r\n", b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 404 X\r\n",
    b"HTTP/1.1 103 Early\r\n", b"HTTP/1.1 101 X\r\n", b"",
)  # fmt: skip
FRAMES = (
    b"content-length: 3\r\n\r\n", b"content-length: 0\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n", b"\r\n",
    b"connection: close\r\ncontent-length: 3\r\n\r\n", b"x: y\n\n", b"",
)  # fmt: skip
PARTS = (
    b"3\r\nabc\r\n", b"3 ;x=y\r\nabc\r\n", b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"abc", b"x: ", b"\0", b"\r", b"\r\n",
    b"content-length: 3\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
)  # fmt: skip


class _NoSource:
    def resume(self) -> None: ...

    def give_up(self, answer: Answer) -> None: ...


def check(data: bytes) -> None:
    """Make bytes of parts and of anything, and read them whole and cut: both must come to the same."""
    draw = Draw(data)
    bodiless = draw.below(4) == 3
    more = [draw.pick(PARTS) if draw.below(8) else draw.bytes(12) for _ in range(draw.below(8))]
    raw = b"".join([draw.pick(STARTS), draw.pick(FRAMES), *more])
    whole, cut = _read([raw], bodiless), _read(draw.cut(raw), bodiless)
    if whole != cut:
        raise AssertionError(f"the cuts made a difference: {whole} {cut}")


def _read(pieces: list[bytes], bodiless: bool) -> tuple[int, int, bool, bool]:
    """Status, bytes of the body, whether that is all of it, and whether the bytes are no answer."""
    parser, answer = AnswerParser(), Answer(_NoSource())
    parser.expect(answer, bodiless=bodiless)
    try:
        for piece in pieces:
            if answer.ended:
                break
            parser.feed(piece)
    except httpx.RemoteProtocolError:
        return answer.status_code, answer.size, answer.ended, True
    return answer.status_code, answer.size, answer.ended or parser.ends_with_connection(), False
