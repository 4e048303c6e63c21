"""Parses citations that the upstream itself reports as OpenAI annotations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NAMES = ("url", "file_id", "filename", "title")
_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An upstream's own citation object.

    ``names`` are its names for the document, most reliable first. ``place`` is a position in the reply, within the text
    that the annotation is about; None if the annotation gives no position. ``marker`` represents the annotation in the
    list of citations.
    """

    marker: str
    names: Sequence[str]
    place: int | None


def read_annotation(annotation: Mapping[str, Any]) -> Annotation | None:
    """Parse an OpenAI ``url_citation`` or ``file_citation``; return None for any other object. Chat Completions nests
    the citation under its type; the Responses API does not."""
    kind = annotation.get("type")
    if not isinstance(kind, str) or not kind.endswith(("url_citation", "file_citation")):
        return None
    nested = annotation.get(kind)
    body = nested if isinstance(nested, Mapping) else annotation
    names = [name for key in _NAMES if isinstance(name := body.get(key), str) and name]
    if not names:
        return None
    place = _position(body.get("start_index"))
    # ``index`` is the position after the cited text. Some upstreams put a file's number there, starting at 0.
    index = _position(body.get("index")) if place is None else None
    marker = next((name for name in names if not _SPACE.search(name)), kind)
    return Annotation(marker=marker, names=names, place=index - 1 if index else place)


def _position(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
