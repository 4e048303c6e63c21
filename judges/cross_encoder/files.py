"""A model's folder: its files by their checksums, and the cores to run it on."""

import hashlib
import os
from pathlib import Path
from typing import Final

from judges.base import JudgeUnavailableError

_CHECKSUMS: Final = "SHA256SUMS"


def verify(folder: Path) -> None:
    """Check the files that ``SHA256SUMS`` names, if there is one. Raises JudgeUnavailableError for no such folder, and
    for a file that is not what its checksum says."""
    if not folder.is_dir():
        raise JudgeUnavailableError(f"no such folder: {folder}")
    sums = folder / _CHECKSUMS
    for line in sums.read_text(encoding="ascii").splitlines() if sums.is_file() else ():
        digest, _, name = line.partition("  ")
        if digest_of(folder / name) != digest:
            raise JudgeUnavailableError(f"{folder / name} is damaged: its SHA-256 is not the one in {_CHECKSUMS}")


def digest_of(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
