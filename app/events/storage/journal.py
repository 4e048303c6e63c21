"""Stores events in files while the database is unavailable, and replays them later. Files are fsynced, and every line
has a checksum.

Every process writes its own file and holds a lock on it. The lock is released when the process exits. If a process can
lock a file, the file therefore has no owner, and the process adopts it.

A line is ``<CRC-32 in hex> <length> <payload>``. A line that was cut off by a crash fails the check and is skipped.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import structlog

_log = structlog.stdlib.get_logger(__name__)


class JournalFile:
    """An open, locked journal file. All methods block, so call them in a thread."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._size = os.fstat(descriptor).st_size
        self._replayed = 0

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> "JournalFile | None":
        """Open and lock ``path``. Return None if another process has locked it, or if it no longer exists. Raises
        OSError."""
        try:
            descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        except FileNotFoundError:
            if create:
                raise
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(PermissionError):  # The file belongs to another user.
                os.fchmod(descriptor, 0o600)
            # The previous owner may have removed the file between the two calls above.
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return cls(path, descriptor)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    @property
    def waiting(self) -> int:
        """The number of bytes that still have to be replayed."""
        return self._size - self._replayed

    def append(self, payloads: Sequence[bytes]) -> None:
        """Append ``payloads``, which must not contain line breaks, and fsync. If this raises OSError, no payload is
        appended."""
        block = b"".join(b"%08x %d %b\n" % (crc32(payload), len(payload), payload) for payload in payloads)
        with self._lock:
            try:
                written = 0
                while written < len(block):
                    written += os.pwrite(self._descriptor, memoryview(block)[written:], self._size + written)
                os.fsync(self._descriptor)
            except OSError:
                # A partial line would corrupt the next one.
                os.ftruncate(self._descriptor, self._size)
                raise
            self._size += len(block)

    def read(self, limit: int) -> tuple[list[bytes], int]:
        """Return up to ``limit`` pending payloads, and the position to pass to ``replayed``. Corrupt lines are
        skipped."""
        payloads: list[bytes] = []
        mark = self._replayed
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(mark)
            while len(payloads) < limit and mark < self._size:
                if not (line := file.readline()):
                    mark = self._size  # The file was truncated from outside, so there is nothing more to read.
                    break
                mark += len(line)
                payload = _payload(line)
                if payload is None:
                    _log.warning("journal_line_corrupt", path=str(self.path), bytes=len(line))
                else:
                    payloads.append(payload)
        return payloads, mark

    def replayed(self, mark: int) -> None:
        """Record that everything up to ``mark`` is stored. If no payload follows, empty the file. Raises OSError."""
        with self._lock:
            self._replayed = mark
            if mark >= self._size:
                os.ftruncate(self._descriptor, 0)
                os.fsync(self._descriptor)
                self._size = self._replayed = 0

    def close(self) -> None:
        """Close the file, and remove it if it is empty."""
        with self._lock:
            if self._size == 0:
                self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            # A late thread must not write to another file that gets the same descriptor.
            self._descriptor = -1


def _payload(line: bytes) -> bytes | None:
    parts = line.split(b" ", 2)
    if len(parts) != 3 or not line.endswith(b"\n"):
        return None
    checksum, length, payload = parts[0], parts[1], parts[2][:-1]
    if b"%08x" % crc32(payload) != checksum or b"%d" % len(payload) != length:
        return None
    return payload


def _nothing() -> None:
    """Do nothing. No payloads were read, so none can be marked as replayed."""


class Journal:
    """The journal files of one gateway: the process's own file, which is created on first use, and files adopted from
    other processes.

    The files are named ``<path>.*.jsonl``. All methods block, so call them in a thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: JournalFile | None = None
        self._adopted: list[JournalFile] = []
        self._lock = threading.Lock()

    def append(self, payloads: Sequence[bytes]) -> None:
        """Append ``payloads`` and fsync. If this raises OSError, no payload is appended."""
        with self._lock:
            if self._own is None:
                self._own = self._create()
        self._own.append(payloads)

    def reject(self, payloads: Sequence[bytes]) -> None:
        """Store ``payloads`` in ``<path>.rejected`` for inspection. They are never replayed. Raises OSError."""
        with self._path.with_name(self._path.name + ".rejected").open("ab") as file:
            file.write(b"".join(payload + b"\n" for payload in payloads))
            file.flush()
            os.fsync(file.fileno())

    def adopt(self) -> None:
        """Adopt the files of processes that have exited. Raises OSError."""
        for path in sorted(self._path.parent.glob(f"{self._path.name}.*.jsonl")):
            if any(path == file.path for file in self._files()):
                continue
            if (adopted := JournalFile.open(path)) is not None:
                self._adopted.append(adopted)

    @property
    def waiting(self) -> int:
        """The number of bytes that still have to be replayed."""
        return sum(file.waiting for file in self._files())

    def replay(self, limit: int) -> tuple[list[bytes], Callable[[], None]]:
        """Return up to ``limit`` pending payloads, and a function to call once they are stored. Raises OSError."""
        for file in self._files():
            if file.waiting > 0:
                payloads, mark = file.read(limit)
                return payloads, partial(self._replayed, file, mark)
        return [], _nothing

    def _replayed(self, file: JournalFile, mark: int) -> None:
        file.replayed(mark)
        if file.waiting == 0 and file in self._adopted:
            self._adopted.remove(file)
            file.close()

    def close(self) -> None:
        for file in self._files():
            file.close()
        self._own, self._adopted = None, []

    def _files(self) -> list[JournalFile]:
        return [*self._adopted, *([] if self._own is None else [self._own])]

    def _create(self) -> JournalFile:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            path = self._path.with_name(f"{self._path.name}.{os.getpid()}-{uuid4().hex[:8]}.jsonl")
            if (file := JournalFile.open(path, create=True)) is None:
                continue
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            return file
