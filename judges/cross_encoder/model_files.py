"""Verifies the checksums of a model's files, and counts the available cores."""

import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from judges.protocols import JudgeUnavailableError

CONFIG: Final = "config.json"
"""The file that describes a transformers model."""
_CHECKSUMS: Final = "SHA256SUMS"
_HUB_ID: Final = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")


def verify_checksums(folder: Path, *, needed: Collection[str] = ()) -> None:
    """Verify the files listed in ``SHA256SUMS``, which must include all of ``needed``. If ``needed`` is empty,
    ``SHA256SUMS`` is optional.

    Raises JudgeUnavailableError if a file does not match or the folder does not exist.
    """
    if not folder.is_dir():
        raise JudgeUnavailableError(f"no such folder: {folder}")
    sums = folder / _CHECKSUMS
    lines = sums.read_text(encoding="ascii").splitlines() if sums.is_file() else []
    digests = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if missing := sorted(set(needed) - digests.keys()):
        raise JudgeUnavailableError(f"{folder}: {_CHECKSUMS} does not list {', '.join(missing)}")
    for name, digest in digests.items():
        if sha256_of(folder / name) != digest:
            raise JudgeUnavailableError(f"{folder / name} is damaged: its SHA-256 differs from {_CHECKSUMS}")


def is_folder(model: str) -> bool:
    """Return whether ``model`` is a folder rather than an id on the Hugging Face Hub."""
    return Path(model).is_dir()


def check_folder(model: str, *, needed: str = "") -> None:
    """If ``model`` is a path, raise JudgeUnavailableError unless it is a folder that contains the file ``needed``."""
    if not is_folder(model) and not _HUB_ID.fullmatch(model):
        raise JudgeUnavailableError(f"no such folder: {model}")
    if needed and is_folder(model) and not (Path(model) / needed).is_file():
        raise JudgeUnavailableError(f"{model} has no file {needed}: copy all files of the model to the folder")


def sha256_of(file: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
