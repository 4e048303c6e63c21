"""What goes wrong, and what comes of it: the rows of ``docs/faults.md``, which the tests of this folder hold to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a client is told, and what is kept of it.

    ``status``: HTTP's. ``code``: of the error, in the body or (on a stream) in its last frame but one; None: no error.
    ``event``: the status of the request in the event log. ``kind``: what ``groundlane_upstream_errors_total`` counts it
    under; None: not at all.
    """

    status: int
    code: str | None
    event: str
    kind: str | None = None

    @property
    def client(self) -> str:
        return f"{self.status}" if self.code is None else f"{self.status} `{self.code}`"

    @property
    def kept(self) -> str:
        counted = "" if self.kind is None else f', `kind="{self.kind}"`'
        return f"`{self.event}`{counted}"


UNREACHED = Told(status=502, code="upstream_unreachable", event="failed", kind="connect")
LATE = Told(status=504, code="upstream_timeout", event="failed", kind="timeout")
BROKEN = Told(status=200, code="upstream_unreachable", event="incomplete", kind="stream")
SILENT = Told(status=200, code="upstream_timeout", event="incomplete", kind="stream")
FINE = Told(status=200, code=None, event="completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFault:
    """``whole``: to a request for one answer; ``stream``: to one for a stream. ``logged``: there is a line
    ``upstream_failed``. ``hasty``: it takes an upstream's timeouts to show."""

    id: str
    about: str
    whole: Told
    stream: Told
    logged: bool = False
    hasty: bool = False


def _before(id: str, about: str, told: Told = UNREACHED) -> UpstreamFault:
    """A fault before any byte of a reply."""
    return UpstreamFault(id=id, about=about, whole=told, stream=told, logged=True, hasty=told is LATE)


UPSTREAM_FAULTS = (
    _before("reset-before-head", "breaks the connection off before it answers"),
    _before("closed-before-head", "closes the connection before it answers"),
    _before("reset-in-head", "breaks off within the headers"),
    _before("not-http", "speaks no HTTP"),
    _before("endless-header", "sends a header without end"),
    _before("endless-headers", "sends headers without end"),
    _before("endless-interim", "sends `100 Continue` without end"),
    _before("odd-status", "answers with a status that HTTP has not (999)"),
    _before("length-no-number", "sends a `content-length` that is no number"),
    _before("two-lengths", "sends two `content-length` that differ"),
    _before("silent-before-head", "says nothing", LATE),
    _before("silent-in-head", "falls silent within the headers", LATE),
    _before("dripping-head", "sends its headers byte by byte, for longer than a head may take", LATE),
    _before("silent-after-hints", "falls silent after `103 Early Hints`", LATE),
    UpstreamFault(
        id="silent-before-body", about="falls silent after the headers", whole=LATE, stream=SILENT, hasty=True
    ),
    UpstreamFault(id="silent-in-body", about="falls silent within the reply", whole=LATE, stream=SILENT, hasty=True),
    UpstreamFault(id="reset-in-body", about="breaks off within the reply", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="closed-in-body", about="closes within the reply", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="reset-in-chunk", about="breaks off within a chunk", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="bad-chunk", about="frames a chunk wrongly", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="ends-early", about="ends an unfinished reply in good order", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="not-json", about="answers with a page of HTML", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="bad-gzip", about="says gzip and sends none", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="endless-body", about="sends a reply, or an event, without end", whole=UNREACHED, stream=BROKEN),
    UpstreamFault(id="dripping-body", about="sends its reply in pieces of a few bytes", whole=FINE, stream=FINE),
    UpstreamFault(id="bad-utf8", about="sends bytes that are no UTF-8", whole=FINE, stream=FINE),
    UpstreamFault(id="bytes-after-end", about="sends more than the reply", whole=FINE, stream=FINE),
    UpstreamFault(id="never-closes", about="says all and does not end", whole=FINE, stream=FINE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFault:
    """An upstream that no connection comes about with. ``detail``: what the line ``upstream_failed`` says of it."""

    id: str
    about: str
    detail: str


CONNECTION_FAULTS = (
    ConnectionFault(id="refused", about="nobody listens", detail="Connect call failed"),
    ConnectionFault(id="unknown-name", about="its name does not resolve", detail="upstream.invalid"),
    ConnectionFault(id="self-signed", about="its certificate is signed by itself", detail="self-signed certificate"),
    ConnectionFault(id="expired", about="its certificate has expired", detail="certificate has expired"),
    ConnectionFault(id="wrong-host", about="its certificate is another host's", detail="IP address mismatch"),
    ConnectionFault(id="no-tls", about="it speaks no TLS where it should", detail="SSL"),
    ConnectionFault(id="silent-tls", about="it says nothing where it should speak TLS", detail="Timeout"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Any other fault. ``client``, ``seen`` and ``kept`` are for the page; ``test`` is what holds them to be true."""

    id: str
    about: str
    client: str
    seen: str
    kept: str
    test: str
