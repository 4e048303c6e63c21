"""The upstream's bytes for each fault of the matrix."""

import json
from collections.abc import Sequence

from tests.support.apis.scripted_answers import joined, streamed, whole
from tests.system.faults.support.wire import Act, Drip, Endless, Step

TRUE = "The warranty covers 24 months from the date of purchase."
MORE = "Batteries are covered for 6 months."
TEXT = f"{TRUE} {MORE}"
DOCUMENTS = [{"id": "d1", "text": TEXT, "relevance_score": 0.9, "age_days": 1}]
BODY = json.dumps(whole(TEXT)).encode()
FRAMES = streamed(TEXT)


def head(*, stream: bool, length: int | None = None, more: bytes = b"") -> bytes:
    """A valid head: of a chunked stream, or of a body of ``length`` bytes."""
    kind = b"text/event-stream" if stream else b"application/json"
    framing = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b%b\r\n\r\n" % (kind, more, framing)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def good(*, stream: bool) -> bytes:
    """A whole, valid reply."""
    return (
        head(stream=True) + joined([*map(chunk, FRAMES), LAST])
        if stream
        else head(stream=False, length=len(BODY)) + BODY
    )


def half(*, stream: bool) -> bytes:
    """The first half of a reply: in a stream, its first sentence and part of the next."""
    if stream:
        return head(stream=True) + joined([chunk(frame) for frame in FRAMES[:-4]])
    return head(stream=False, length=len(BODY)) + BODY[: len(BODY) // 2]


_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n"
_HTML = b"<html><body>Bad gateway</body></html>"


def script(id: str, *, stream: bool) -> Sequence[Step]:
    """The script of the fault with this id."""
    if id in _EARLY:
        return _EARLY[id]
    start = head(stream=stream)
    first = start + chunk(FRAMES[0] if stream else BODY[:20])
    page = head(stream=False, length=len(_HTML)).replace(b"application/json", b"text/html") + _HTML
    piece = b"data: " + b" " * 65536 if stream else b" " * 65536
    late: dict[str, Sequence[Step]] = {
        "silent-before-body": (start, Act.STALL),
        "silent-in-body": (half(stream=stream), Act.STALL),
        "reset-in-body": (half(stream=stream), Act.RESET),
        "closed-in-body": (half(stream=stream),),
        "reset-in-chunk": (first, b"400\r\n" + FRAMES[1][:20], Act.RESET),
        "bad-chunk": (first, Act.PAUSE, b"zz\r\n", Act.STALL),
        "ends-early": (half(stream=True) + LAST if stream else start + chunk(BODY[:60]) + LAST,),
        "not-json": (page,),
        "bad-gzip": (head(stream=stream, more=b"content-encoding: gzip\r\n") + chunk(BODY) + LAST,),
        "endless-body": (start + chunk(FRAMES[0] if stream else b"{"), Endless(chunk(piece))),
        "dripping-body": (Drip(good(stream=stream), size=9),),
        "bad-utf8": (good(stream=stream).replace(b"24", b"\xff\xfe"),),
        "bytes-after-end": (good(stream=stream) + head(stream=False, length=2) + b"{}", Act.STALL),
        "never-closes": (good(stream=True).removesuffix(LAST), Act.STALL) if stream else (good(stream=False),),
    }
    return late[id]


_EARLY: dict[str, Sequence[Step]] = {
    "reset-before-head": (Act.RESET,),
    "closed-before-head": (),
    "reset-in-head": (b"HTTP/1.1 200 OK\r\ncontent-ty", Act.RESET),
    "not-http": (b"SSH-2.0-OpenSSH_9.6\r\n", Act.STALL),
    "endless-header": (b"HTTP/1.1 200 OK\r\nx-a: ", Endless(b"a" * 65536)),
    "endless-headers": (b"HTTP/1.1 200 OK\r\n", Endless(b"x-a: b\r\n" * 8192)),
    "endless-interim": (Endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 1024),),
    "odd-status": (b"HTTP/1.1 999 Denied\r\ncontent-length: 0\r\n\r\n",),
    "length-no-number": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: many\r\n\r\n", BODY),
    "two-lengths": (head(stream=False, length=len(BODY), more=b"content-length: 5\r\n"), BODY),
    "silent-before-head": (Act.STALL,),
    "silent-in-head": (b"HTTP/1.1 200 OK\r\n", Act.STALL),
    "dripping-head": (Drip(b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * 8000, pause_s=0.05),),
    "silent-after-hints": (_HINTS, Act.STALL),
}
