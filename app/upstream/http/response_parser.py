"""Answers out of bytes: llhttp finds where each part ends, and what it leaves open is decided here."""

import httpx
from httptools import HttpParserError, HttpResponseParser

from app.upstream.http.response_body import Answer

_MOST_INTERIM = 32
"""Interim answers (RFC 9110, section 15.2) before the one that counts. They are of no use to us, and there may be any
number of them."""
_SWITCHING = 101
_FINAL, _LAST_STATUS = 200, 599
"""Of answers: what has another can be passed on to no client."""
_MOST_HEADERS = 256
_MOST_HEADER_BYTES = 64 * 1024
"""Of one request's answer: interim ones and trailers count."""
_HEADER_COST = 4
"""Bytes of a header beside its name and its value."""
_MOST_BARREN = 128 * 1024
"""Bytes between two of a body: a head, the frames of chunks, trailers."""


class AnswerParser:
    """Fills the answers of one connection, one after the other.

    Strict, but for two liberties that some servers take: lines that end without CR, and spaces behind a chunk's size.
    """

    def __init__(self) -> None:
        self.keep_alive = False
        """By what the last answer says, another request may follow."""
        self.barren = 0
        """Bytes since the request, or since the last of the body. 0 before there is a head: there was not one."""
        self._answer: Answer | None = None
        self._bodiless = self._begun = self._grown = False
        self._interim = self._room = 0
        self._parser = self._fresh()

    def expect(self, answer: Answer, *, bodiless: bool) -> None:
        """What comes next is ``answer``. ``bodiless``: it has no body, whatever it says, as it is to a HEAD."""
        self._answer, self._bodiless = answer, bodiless
        self.keep_alive = self._begun = False
        self.barren = self._interim = 0
        self._room = _MOST_HEADER_BYTES

    def feed(self, data: bytes) -> bool:
        """Whether any of the body came. Raises httpx.RemoteProtocolError for what is no answer."""
        self._grown = False
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self.keep_alive = False
            if self._answer is None:
                return self._grown  # all was here: what follows is nobody's
            ours = error.__context__
            if isinstance(ours, httpx.RemoteProtocolError):
                raise ours from None
            raise httpx.RemoteProtocolError(str(error)) from None
        if self._answer is None:
            if self._bodiless:
                self._parser = self._fresh()  # the old one waits for a body
        elif not self._grown:
            self.barren += len(data)
            if self.barren > _MOST_BARREN:
                raise httpx.RemoteProtocolError("a head or a frame has no end")
        return self._grown

    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is the end of the answer. Framed as it may be, it is not."""
        answer = self._answer
        return (
            answer is not None
            and self._begun
            and not any(
                name == "content-length" or (name == "transfer-encoding" and "chunked" in value.lower())
                for name, value in answer.headers
            )
        )

    def _fresh(self) -> HttpResponseParser:
        parser = HttpResponseParser(self)
        parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        return parser

    # What llhttp calls.

    def on_message_begin(self) -> None:
        if self._answer is None:
            raise httpx.RemoteProtocolError("an answer that nobody asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._room -= len(name) + len(value) + _HEADER_COST
        if self._room < 0:
            raise httpx.RemoteProtocolError("the headers are too long")
        if self._answer is not None and not self._begun:
            self._answer.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        answer, status = self._answer, self._parser.get_status_code()
        if answer is None:
            return
        if _FINAL <= status <= _LAST_STATUS:
            if len(answer.headers) > _MOST_HEADERS:
                raise httpx.RemoteProtocolError("too many headers")
            self.keep_alive = self._parser.should_keep_alive()
            self._begun = True
            answer.status_code = status
            if self._bodiless:
                self._end(answer)
        elif 100 <= status < _FINAL and status != _SWITCHING:
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                raise httpx.RemoteProtocolError("too many interim answers")
            answer.headers.clear()
        else:
            raise httpx.RemoteProtocolError(f"status {status} is none of HTTP's")

    def on_body(self, data: bytes) -> None:
        if self._answer is None or not self._begun:
            raise httpx.RemoteProtocolError("a body where there is none")
        self._answer.add(data)
        self._grown = True
        self.barren = 0

    def on_message_complete(self) -> None:
        if self._answer is not None and self._begun:
            self._end(self._answer)

    def _end(self, answer: Answer) -> None:
        answer.ended = True
        self._answer = None
