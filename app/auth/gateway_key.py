"""A gateway key: what it looks like, what is kept of it, and what it allows."""

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from app.errors import KeyLimitError
from judges.types import Chunk

_PREFIX = re.compile(r"gl-[a-z2-7]{8}(?=-)")
_STAND_INS = ("models", "fallbacks")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def new_key() -> str:
    """A key: ``gl-``, eight characters that tell it from others, and a secret of 256 random bits."""
    return f"gl-{''.join(secrets.choice(_ALPHABET) for _ in range(8))}-{secrets.token_urlsafe(32)}"


def is_key(text: str) -> bool:
    """Whether ``text`` has the form of a gateway key; one that was cut off or mistyped later on has it too."""
    return _PREFIX.match(text) is not None


def prefix_of(text: str) -> str:
    """What a key may be called by in public. Empty for what has not the form of one."""
    found = _PREFIX.match(text)
    return found.group() if found else ""


def hash_key(text: str) -> bytes:
    """What is kept of a key.

    A slow hash protects what people choose. A key is 256 random bits: nobody can try them all however fast the hash is,
    and a slow one on every request would only let a stranger keep the gateway busy.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKey:
    """A key in force. ``models`` and ``collections`` are shell globs; empty: any."""

    id: str
    name: str
    prefix: str
    digest: bytes
    models: Sequence[str] = ()
    collections: Sequence[str] = ()
    requests_per_minute: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What the scope of a policy knows it by."""
        return (self.name, self.prefix)

    def check_model(self, model: str | None, *, param: str = "model") -> None:
        """Raises KeyLimitError, which names ``model``, unless the key is for it."""
        if not self.models or (model is not None and _any(self.models, model)):
            return
        if model is None:
            message = f"The key {self.prefix} is limited to certain models, and the request names none."
        else:
            message = f"The key {self.prefix} is not allowed to use the model {model!r:.200}."
        raise KeyLimitError(message, code="model_not_allowed", param=param)

    def check_body(self, body: Mapping[str, Any]) -> None:
        """``check_model`` for every model that ``body`` names: ``model`` itself, and those that some upstreams go on to
        where it is not to be had. Raises KeyLimitError."""
        self.check_model(body.get("model"))
        for name in _STAND_INS if self.models else ():
            listed = body.get(name) or []
            for entry in listed if isinstance(listed, list) else (listed,):
                found = entry.get("model") if isinstance(entry, dict) else entry
                self.check_model(found if isinstance(found, str) else None, param=name)

    def permits(self, document: Chunk, *, unnamed: bool = False) -> bool:
        """Whether the key is for the document's collection; ``unnamed``: or it names none."""
        if not self.collections:
            return True
        return unnamed if document.collection is None else _any(self.collections, document.collection)

    def check_documents(
        self, documents: Sequence[Chunk], path_of: Callable[[int], str], *, unnamed: bool = False
    ) -> None:
        """Raises KeyLimitError for the first document whose collection the key is not for, or that names none, unless
        those may be ``unnamed``.

        ``path_of`` says where in the request the document at a position stands.
        """
        for index, document in enumerate(documents if self.collections else ()):
            if not self.permits(document, unnamed=unnamed):
                path = path_of(index)
                told = "names no collection" if document.collection is None else f"is of {document.collection!r:.200}"
                raise KeyLimitError(
                    f"The key {self.prefix} is limited to certain collections, and {path} {told}.",
                    code="collection_not_allowed",
                    param=path,
                )


def _any(globs: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
