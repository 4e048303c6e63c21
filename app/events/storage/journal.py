"""Where events wait while the database is away: files of checked lines, fsynced, replayed in time, then emptied.

Every process writes a file of its own and holds a lock on it. The lock goes with the process, however it ends, so that
a file that can be locked belongs to nobody any more, and is adopted by whoever finds it first.

A line is ``<CRC-32 in hex> <length> <payload>``; one that a crash tore fails the check and is left out.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4
from zlib import crc32

import structlog

_log = structlog.stdlib.get_logger(__name__)


class JournalFile:
    """One journal file, open and locked. Its methods block: call them in a thread."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._size = os.fstat(descriptor).st_size
        self._replayed = 0

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> "JournalFile | None":
        """Open and lock ``path``; None where another process has it, or it is gone. Raises OSError."""
        try:
            descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        except FileNotFoundError:
            if create:
                raise
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have removed it between the two calls above.
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
        """Bytes that wait to be replayed."""
        return self._size - self._replayed

    def append(self, payloads: Sequence[bytes]) -> None:
        """Add all of ``payloads`` (no line break in any) and fsync. Raises OSError, and then none of them was added."""
        block = b"".join(b"%08x %d %b\n" % (crc32(payload), len(payload), payload) for payload in payloads)
        with self._lock:
            try:
                written = 0
                while written < len(block):
                    written += os.pwrite(self._descriptor, memoryview(block)[written:], self._size + written)
                os.fsync(self._descriptor)
            except OSError:
                # Half a line left in the middle would spoil the next one.
                os.ftruncate(self._descriptor, self._size)
                raise
            self._size += len(block)

    def read(self, limit: int) -> tuple[list[bytes], int]:
        """Up to ``limit`` payloads that wait, and the mark to give to ``replayed``. Torn lines are left out."""
        payloads: list[bytes] = []
        mark = self._replayed
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(mark)
            while len(payloads) < limit and mark < self._size:
                if not (line := file.readline()):
                    mark = self._size  # somebody cut the file; there is nothing more to read
                    break
                mark += len(line)
                payload = _payload(line)
                if payload is None:
                    _log.warning("journal_line_corrupt", path=str(self.path), bytes=len(line))
                else:
                    payloads.append(payload)
        return payloads, mark

    def replayed(self, mark: int) -> None:
        """All up to ``mark`` is stored elsewhere now; with nothing after it the file is emptied. Raises OSError."""
        with self._lock:
            self._replayed = mark
            if mark >= self._size:
                os.ftruncate(self._descriptor, 0)
                os.fsync(self._descriptor)
                self._size = self._replayed = 0

    def close(self) -> None:
        """Let go of the file, and remove it if it is empty."""
        with self._lock:
            if self._size == 0:
                self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            # A thread that comes late must not write to whatever file gets the number next.
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
    """Nothing was read, so there is nothing to mark."""


class Journal:
    """The journal files of one gateway: this process's own, made on first use, and those that others left behind.

    ``path``: ``<path>.<anything>.jsonl`` are its files. The methods block: call them in a thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: JournalFile | None = None
        self._adopted: list[JournalFile] = []
        self._lock = threading.Lock()

    def append(self, payloads: Sequence[bytes]) -> None:
        """Add all of ``payloads`` and fsync. Raises OSError, and then none of them was added."""
        with self._lock:
            if self._own is None:
                self._own = self._create()
        self._own.append(payloads)

    def reject(self, payloads: Sequence[bytes]) -> None:
        """Set ``payloads`` aside, where they are kept for a person and never replayed. Raises OSError."""
        with self._path.with_name(self._path.name + ".rejected").open("ab") as file:
            file.write(b"".join(payload + b"\n" for payload in payloads))
            file.flush()
            os.fsync(file.fileno())

    def adopt(self) -> None:
        """Take over the files of processes that are gone. Raises OSError."""
        for path in sorted(self._path.parent.glob(f"{self._path.name}.*.jsonl")):
            if any(path == file.path for file in self._files()):
                continue
            if (adopted := JournalFile.open(path)) is not None:
                self._adopted.append(adopted)

    @property
    def waiting(self) -> int:
        """Bytes that wait to be replayed."""
        return sum(file.waiting for file in self._files())

    def replay(self, limit: int) -> tuple[list[bytes], Callable[[], None]]:
        """Up to ``limit`` payloads that wait, and what to call once they are stored. Raises OSError."""
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
