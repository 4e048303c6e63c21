"""Answers out of bytes: however these are cut, what comes of them is the same, and no bytes do harm."""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.upstream.http.response_body import Answer
from app.upstream.http.response_parser import AnswerParser


@dataclass(frozen=True, slots=True)
class Read:
    """What came of an answer. ``broken``: why it is none; ``rest``: whether another request may follow."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    ended: bool
    broken: bool
    keep_alive: bool


class _NoSource:
    def resume(self) -> None: ...

    def give_up(self, answer: Answer) -> None: ...


def read(pieces: Sequence[bytes], *, bodiless: bool = False, closes: bool = False) -> Read:
    """Feed ``pieces`` as a connection does. ``closes``: then comes the connection's end."""
    parser, broken = AnswerParser(), False
    answer = Answer(_NoSource())
    parser.expect(answer, bodiless=bodiless)
    body = b""
    try:
        for piece in pieces:
            if answer.ended:
                break  # on a connection that nobody has asked anything
            parser.feed(piece)
        else:
            answer.ended = answer.ended or (closes and parser.ends_with_connection())
        body = now(answer.read()) if answer.size else b""
    except httpx.RemoteProtocolError:
        broken = True
    return Read(answer.status_code, tuple(answer.headers), body, answer.ended, broken, parser.keep_alive)


def now(read: Coroutine[None, None, bytes]) -> bytes:
    """What is there without waiting."""
    try:
        read.send(None)
    except StopIteration as done:
        return bytes(done.value)
    raise AssertionError("there was nothing")


HEAD = b"HTTP/1.1 200 OK\r\n"


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start]


_NAMES = st.sampled_from(["x-a", "X-B", "content-type", "Via"])
_VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=12)
_PLACES = st.lists(st.integers(0, 4_000), max_size=12)


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, Read, bool]:
    """The bytes of a good answer, what is to come of them, and whether it ends with the connection."""
    status = draw(st.sampled_from([200, 201, 204, 304, 404, 418, 503, 599]))
    headers = draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=4))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=5))
    framing = "none" if status in (204, 304) else draw(st.sampled_from(["length", "chunked", "close"]))
    body = b"" if framing == "none" else b"".join(pieces)
    sent = {"length": b"".join(pieces), "close": body, "none": b""}.get(framing)
    if framing == "length":
        headers = [*headers, ("Content-Length", str(len(body)))]
    elif framing == "chunked":
        headers = [*headers, ("transfer-encoding", "Chunked")]
        trailer = draw(st.sampled_from([b"", b"x-trailer: 1\r\n"]))
        sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"])) * draw(st.integers(1, 32))
    line_end = draw(st.sampled_from(["\r\n", "\n"]))
    lines = [f"HTTP/1.1 {status} Reason", *(f"{name}: {value}" for name, value in headers), "", ""]
    wanted = Read(
        status=status,
        headers=tuple((name.lower(), value) for name, value in headers),
        body=body,
        ended=True,
        broken=False,
        keep_alive=framing != "close",
    )
    return interim + line_end.join(lines).encode() + (sent or b""), wanted, framing == "close"


@given(answers(), _PLACES)
def test_however_an_answer_is_cut_the_same_comes_of_it(answer: tuple[bytes, Read, bool], places: list[int]) -> None:
    data, wanted, closes = answer
    assert read(cut(data, places), closes=closes) == wanted
    assert read([data[at : at + 1] for at in range(len(data))], closes=closes) == wanted


@given(answers(), _PLACES, st.integers(1, 4_000))
def test_an_answer_that_is_cut_short_is_never_a_whole_one(
    answer: tuple[bytes, Read, bool], places: list[int], missing: int
) -> None:
    data, _, closes = answer
    if not closes:
        short = data[: -(missing % len(data)) or -1]
        assert not read(cut(short, places), closes=True).ended


_PARTS = [
    *(HEAD, b"HTTP/1.1 101 X\r\n", b"HTTP/1.0 204 \r\n", b"\r\n", b"\n", b"\0", b"x: y", b"content-length: 3"),
    *(b"transfer-encoding: chunked\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n"),
]


@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from(_PARTS)), max_size=12), _PLACES, st.booleans())
def test_no_bytes_do_harm_and_their_cuts_make_no_difference(
    parts: list[bytes], places: list[int], bodiless: bool
) -> None:
    data = b"".join(parts)
    whole, pieces = (read(cuts, bodiless=bodiless, closes=True) for cuts in ([data], cut(data, places)))
    assert (whole.status, whole.ended, whole.body) == (pieces.status, pieces.ended, pieces.body)
    assert whole.ended or whole.broken == pieces.broken


@pytest.mark.parametrize(
    ("data", "bodiless", "body", "keep_alive"),
    [
        (HEAD + b"content-length: 0\r\n\r\n", False, b"", True),
        (HEAD + b"content-length: 5\r\n\r\n", True, b"", True),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", True, b"", True),
        (HEAD + b"\r\n", True, b"", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False, b"", True),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", False, b"", True),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", False, b"ok", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", False, b"ok", True),
        (HEAD + b"connection: close\r\ncontent-length: 2\r\n\r\nok", False, b"ok", False),
        (HEAD + b"upgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\nok", False, b"ok", True),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n2 ;a=b\r\nok\r\n0\r\n\r\n", False, b"ok", True),
    ],
)
def test_where_an_answer_ends_and_whether_another_may_follow(
    data: bytes, bodiless: bool, body: bytes, keep_alive: bool
) -> None:
    got = read([data], bodiless=bodiless)
    assert (got.ended, got.body, got.keep_alive) == (True, body, keep_alive)


@pytest.mark.parametrize(
    "more", [b"HTTP/1.1 200 OK\r\n\r\n", b"garbage", b"\0", HEAD * 2], ids=["answer", "garbage", "null", "two"]
)
@pytest.mark.parametrize(("length", "bodiless"), [(2, False), (2, True), (0, True)])
def test_what_follows_an_answer_ends_its_connection_and_harms_it_not(more: bytes, length: int, bodiless: bool) -> None:
    body = b"" if bodiless else b"ok"
    data = HEAD + b"content-length: %d\r\n\r\n" % length + body
    got = read([data + more], bodiless=bodiless)
    assert (got.status, got.ended, got.body) == (200, True, body)
    assert (got.broken, got.keep_alive) == (False, False)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 099 Low\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 600 High\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 150 Interim\r\ncontent-length: 2\r\n\r\nok",
        HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        HEAD + b"content-length: -2\r\n\r\n",
        HEAD + b"x-a: b\0c\r\n\r\n",
        HEAD + b"x-a: b\rc\r\n\r\n",
        HEAD + b"x-a: b\r\n folded\r\n\r\n",
        HEAD + b"x a: b\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 33,
        HEAD + b"x-a: b\r\n" * 257 + b"content-length: 0\r\n\r\n",
        HEAD + b"x-a: %b\r\n\r\n" % (b"a" * 65_536),
    ],
)
def test_what_is_no_answer_is_a_protocol_error(data: bytes) -> None:
    got = read([data])
    assert (got.broken, got.ended) == (True, False)


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (HEAD + b"x-a: ", b"a" * 8_192),
        (b"HTTP/1.1 200 ", b"a" * 8_192),
        (HEAD, b"x-a: b\r\n" * 1_000),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n2;a=", b"a" * 8_192),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x-a: b\r\n" * 1_000),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx-a: ", b"a" * 8_192),
    ],
    ids=["header", "reason", "headers", "extension", "trailers", "trailer"],
)
def test_what_has_no_end_is_given_up_while_it_is_small(start: bytes, more: bytes) -> None:
    pieces = [start, *[more] * 20]
    assert read(pieces).broken


def test_interim_answers_leave_nothing_behind() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    got = read([hints * 32 + HEAD + b"x-a: 1\r\ncontent-length: 2\r\n\r\nok"])
    assert (got.headers, got.body) == ((("x-a", "1"), ("content-length", "2")), b"ok")


def test_a_trailer_is_no_header() -> None:
    got = read([HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nset-x: 1\r\n\r\n"])
    assert got.headers == (("transfer-encoding", "chunked"),)
