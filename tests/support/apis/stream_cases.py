"""Reads the stream cases in ``cases/stream``."""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "system" / "e2e" / "cases" / "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCase:
    """One case. ``chunks`` are the upstream's writes; ``documents`` are the texts of the request's documents."""

    id: str
    about: str
    status: int
    headers: dict[str, str]
    chunks: tuple[bytes, ...]
    request: dict[str, Any]
    expect: str
    documents: tuple[str, ...] = ()
    driver: dict[str, Any] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


def load(case_id: str) -> StreamCase:
    """Return the case with this id."""
    raw = json.loads((FOLDER / f"{case_id}.json").read_text(encoding="utf-8"))
    return StreamCase(
        id=raw["id"],
        about=raw["about"],
        status=raw["status"],
        headers=raw["headers"],
        chunks=tuple(expand(raw["chunks"])),
        request=raw["request"],
        expect=raw["expect"],
        documents=tuple(raw.get("documents", ())),
        driver=raw.get("driver", {}),
    )


def case_ids() -> list[str]:
    """Return the ids of all cases, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def expand(entries: Sequence[Any], number: int | None = None) -> Iterator[bytes]:
    """Yield the upstream's writes for ``entries``; ``cases/stream/README.md`` describes their forms."""
    for entry in entries:
        match entry:
            case str():
                text = entry if number is None else entry.replace("{n}", str(number))
                yield text.encode()
            case {"b64": data}:
                yield base64.b64decode(data)
            case {"times": times, "of": of}:
                for current in range(1, times + 1):
                    yield from expand(of, current)
            case {"cut": size, "of": of}:
                joined = b"".join(expand(of, number))
                for start in range(0, len(joined), size):
                    yield joined[start : start + size]
            case _:
                raise ValueError(f"no such chunk entry: {entry!r}")
