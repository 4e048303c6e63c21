"""The files in ``static/``: scripts, styles and the icon, read once at import."""

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    body: bytes
    media_type: str


def _load() -> dict[str, StaticFile]:
    folder = files("app.dashboard").joinpath("static")
    loaded = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_file() and not file.name.startswith("."):
            media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            if media_type.startswith("text/"):
                media_type += "; charset=utf-8"
            loaded[file.name] = StaticFile(body=file.read_bytes(), media_type=media_type)
    return loaded


STATIC_FILES: Mapping[str, StaticFile] = _load()
STATIC_VERSION = hashlib.sha256(b"".join(file.body for file in STATIC_FILES.values())).hexdigest()[:12]
"""A hash of all files, which is part of every file's URL. Browsers can therefore cache files forever, even though
scripts import each other by relative path."""


def static_url(name: str) -> str:
    """Return the URL of a file in ``static/``. Raises KeyError if there is no such file."""
    if name not in STATIC_FILES:
        raise KeyError(name)
    return f"/dashboard/static/{STATIC_VERSION}/{name}"
