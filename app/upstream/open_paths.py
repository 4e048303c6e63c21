"""Which of the paths that nobody governs go upstream: those that write no reply, and those that the operator lists."""

import re
import unicodedata
from fnmatch import fnmatchcase
from urllib.parse import unquote

from app.errors import InvalidRequestError, UngovernedPathError

GOVERNED = frozenset({"chat/completions", "completions", "responses", "messages"})
_OPEN = frozenset(
    {"models", "embeddings", "moderations", "rerank", "files", "uploads", "images", "audio", "vector_stores"}
)
_WRITING_NOTHING = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
_ENCODINGS = 4
"""How often a path may be percent-encoded."""
_VERSIONS = re.compile(r"\A(?:v1/)+")
_NOT_FOUND = 404


class OpenPaths:
    """The open paths. ``listed`` is the setting: globs, separated by commas; each includes the paths below it."""

    def __init__(self, listed: str | None = None) -> None:
        globs = [glob.strip().removeprefix("/").removeprefix("v1/").rstrip("/") for glob in (listed or "").split(",")]
        self._listed = [glob for glob in globs if glob]
        self.everything = any(not glob.strip("*/") for glob in self._listed)
        """Whether every path is open, so that replies can leave unchecked."""

    def check(self, method: str, path: str) -> None:
        """``path`` is what follows ``/v1``, as the client wrote it. No way of writing a path makes it another one.

        Raises InvalidRequestError for a path that an upstream may read as another one, and for other spellings of a
        governed path; UngovernedPathError for a path that is not open.
        """
        plain = _decoded(path)
        segments = [segment.partition(";")[0].strip() for segment in plain.split("/")[1:]]
        if (
            any(segment in (".", "..") for segment in segments)
            or "" in segments[:-1]
            or any(letter < " " or letter in "\\?#" for letter in plain)
        ):
            raise InvalidRequestError(
                "The path has empty segments, dot segments or special characters. Send it in its plain form.",
                param="path",
            )
        folded = unicodedata.normalize("NFKC", "/".join(segments)).casefold().strip("/")
        folded = _VERSIONS.sub("", folded)
        if folded in GOVERNED and (method not in _WRITING_NOTHING or path != f"/{folded}"):
            raise InvalidRequestError(f"No such path. Did you mean /v1/{folded}?", param="path", status=_NOT_FOUND)
        if not (_writes_no_reply(method, path) or self._lists(plain.strip("/"))):
            raise UngovernedPathError(plain.strip("/"))

    def _lists(self, path: str) -> bool:
        return any(fnmatchcase(path, glob) or fnmatchcase(path, f"{glob}/*") for glob in self._listed)


def _writes_no_reply(method: str, path: str) -> bool:
    first = path[1:].partition("/")[0]
    # On some servers, POST /v1/models/NAME:generateContent generates text.
    return first in _OPEN and (first != "models" or method in _WRITING_NOTHING)


def _decoded(path: str) -> str:
    """Raises InvalidRequestError if it is percent-encoded too often."""
    for _ in range(_ENCODINGS):
        plain = unquote(path)
        if plain == path:
            return plain
        path = plain
    raise InvalidRequestError("The path is percent-encoded several times. Send it in its plain form.", param="path")
