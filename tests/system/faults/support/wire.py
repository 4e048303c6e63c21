"""An upstream that does what no server should: it sends scripted bytes and breaks off as scripted."""

import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from threading import Event, Lock, Thread

LIMIT_S = 30.0
"""The time limit for anything that should happen at once."""


class Act(Enum):
    """The steps between and after the bytes of a script."""

    RESET = auto()
    """Break the connection, so that the peer's read fails."""
    STALL = auto()
    """Send nothing more until the peer disconnects."""
    PAUSE = auto()
    """Wait until the sent data must have been read."""
    ASK = auto()
    """Wait for one more request on the same connection."""


@dataclass(frozen=True, slots=True)
class Drip:
    """``data``, in writes of ``size`` bytes, ``pause_s`` apart."""

    data: bytes
    size: int = 1
    pause_s: float = 0.001


@dataclass(frozen=True, slots=True)
class Endless:
    """``data``, over and over, until the peer stops reading."""

    data: bytes


Step = bytes | Act | Drip | Endless


class RawUpstream:
    """A server on a loopback port. ``script``: sent on every connection once a request has arrived completely; after
    the last step the connection is closed. ``tls``: its TLS configuration. ``greeting``: sent at
    once, and nothing more.

    ``asked`` counts the requests; ``gone`` is set when the peer of a stalled or endless answer has left;
    ``settled`` is never set, for pauses.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, greeting: bytes | None = None) -> None:
        self.script: Sequence[Step] = ()
        self.asked = 0
        self.gone, self.settled = Event(), Event()
        self._tls, self._greeting = tls, greeting
        self._closing = Event()
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._accepting = Thread(target=self._accept, name="raw-upstream", daemon=True)
        self._accepting.start()

    def play(self, *script: Step) -> None:
        """Use this script from now on."""
        self.script, self.asked = script, 0
        self.gone.clear()

    def close(self) -> None:
        self._closing.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            for peer in self._open:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
        for thread in (self._accepting, *self._threads):
            thread.join(LIMIT_S)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            thread = Thread(target=self._serve, args=(peer,), name="raw-upstream", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: socket.socket) -> None:
        peer.settimeout(LIMIT_S)
        try:
            if self._greeting is not None:
                self._answer(peer, (self._greeting, Act.STALL))
                return
            if self._tls is not None:
                peer = self._tls.wrap_socket(peer, server_side=True)
            with self._lock:
                self._open.add(peer)
            if _read_request(peer):
                self.asked += 1
                self._answer(peer, self.script)
        except OSError:
            self.gone.set()
        finally:
            with self._lock:
                self._open.discard(peer)
            peer.close()

    def _answer(self, peer: socket.socket, script: Sequence[Step]) -> None:
        for step in script:
            match step:
                case bytes():
                    peer.sendall(step)
                case Drip():
                    _drip(peer, step)
                case Endless():
                    while True:
                        peer.sendall(step.data)
                case Act():
                    if not self._act(peer, step):
                        return

    def _act(self, peer: socket.socket, act: Act) -> bool:
        """Whether more data follows."""
        match act:
            case Act.RESET:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case Act.STALL:
                while peer.recv(65536):
                    pass
                self.gone.set()
                return False
            case Act.PAUSE:
                self.settled.wait(0.1)
                return True
            case Act.ASK:
                asked = _read_request(peer)
                self.asked += asked
                return asked


def _drip(peer: socket.socket, drip: Drip) -> None:
    pause = Event()
    for start in range(0, len(drip.data), drip.size):
        peer.sendall(drip.data[start : start + drip.size])
        pause.wait(drip.pause_s)


def _read_request(peer: socket.socket) -> bool:
    """Read one request, head and body. False: the peer left instead."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := peer.recv(65536)):
            return False
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    while len(body) < length:
        if not (more := peer.recv(65536)):
            return False
        body += more
    return True
