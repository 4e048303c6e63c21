"""Decides which ungoverned paths are forwarded: paths that don't generate replies, and paths that the operator
lists."""

import re
import unicodedata
from fnmatch import fnmatchcase
from urllib.parse import unquote

from app.errors import InvalidRequestError, MethodNotAllowedError, UngovernedPathError

GOVERNED = frozenset({"chat/completions", "completions", "responses", "messages"})
_OPEN = frozenset({"models", "files", "uploads", "vector_stores"})
"""Resources whose paths are always open, including the paths below them."""
_OPEN_ALONE = frozenset(
    {
        "embeddings", "moderations", "rerank", "images/generations", "images/edits", "images/variations",
        "audio/speech", "audio/transcriptions", "audio/translations", "audio/voices",
    }
)  # fmt: skip
_WRITING_NOTHING = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
_ENCODINGS = 4
"""The maximum number of times that a path may be percent-encoded."""
_VERSIONS = re.compile(r"\A(?:v1/)+")
_NOT_FOUND = 404


class OpenPaths:
    """The ungoverned paths that are forwarded. ``listed`` is the value of the setting ``passthrough``, which contains
    comma-separated globs. Each glob includes the paths below it."""

    def __init__(self, listed: str | None = None) -> None:
        globs = [glob.strip().removeprefix("/").removeprefix("v1/").rstrip("/") for glob in (listed or "").split(",")]
        self._listed = [glob for glob in globs if glob]
        self.everything = any(not glob.strip("*/") for glob in self._listed)
        """Whether every path is open, which means that replies may be sent unchecked."""

    def check(self, method: str, path: str) -> None:
        """Check that a path may be forwarded. ``path`` is the part of the URL path after ``/v1``, as the client wrote
        it. Raises InvalidRequestError for a path that an upstream may normalize to a different path, and for a
        different spelling of a governed path. Raises MethodNotAllowedError for a method other than POST on a governed
        path. Raises UngovernedPathError for a path that is not open."""
        plain = _decoded(path)
        segments = [segment.partition(";")[0].strip() for segment in plain.split("/")[1:]]
        if (
            any(segment in (".", "..") for segment in segments)
            or "" in segments[:-1]
            or any(letter < " " or letter in "\\?#" for letter in plain)
        ):
            raise InvalidRequestError(
                "The path has empty segments, dot segments or special characters. Send the path without them.",
                param="path",
            )
        folded = unicodedata.normalize("NFKC", "/".join(segments)).casefold().strip("/")
        folded = _VERSIONS.sub("", folded)
        listed = self._lists(plain.strip("/"))
        if folded in GOVERNED and path.rstrip("/") == f"/{folded}" and not (listed and method in _WRITING_NOTHING):
            raise MethodNotAllowedError(f"{method} is not allowed on /v1/{folded}. Send a POST request.", allow="POST")
        if folded in GOVERNED and path != f"/{folded}":
            raise InvalidRequestError(f"No such path. Did you mean /v1/{folded}?", param="path", status=_NOT_FOUND)
        if not (_writes_no_reply(method, path) or listed):
            raise UngovernedPathError(plain.strip("/"))

    def _lists(self, path: str) -> bool:
        return any(fnmatchcase(path, glob) or fnmatchcase(path, f"{glob}/*") for glob in self._listed)


def _writes_no_reply(method: str, path: str) -> bool:
    first = path[1:].partition("/")[0]
    # On some servers, POST /v1/models/NAME:generateContent generates text.
    below = first in _OPEN and (first != "models" or method in _WRITING_NOTHING)
    return below or path[1:] in _OPEN_ALONE


def _decoded(path: str) -> str:
    """Return the path without percent-encoding. Raises InvalidRequestError if the path is percent-encoded too many
    times."""
    for _ in range(_ENCODINGS):
        plain = unquote(path)
        if plain == path:
            return plain
        path = plain
    raise InvalidRequestError("The path is percent-encoded several times. Encode it at most once.", param="path")
