"""Gateway keys: their format, their hash, and their limits."""

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qsl

from app.errors import KeyLimitError
from judges.types import Chunk

_PREFIX = re.compile(r"gl-[a-z2-7]{8}(?=-)")
_MODEL_FIELD = re.compile(
    r"(?:[\w-]+[_-])?(?:models?(?:[_-](?:id|name|override|deployment))?|engine|deployment(?:[_-](?:id|name))?"
    r"|fallbacks?(?:[_-]models?)?)",
    re.IGNORECASE | re.ASCII,
)
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def new_key() -> str:
    """Create a key: ``gl-``, eight characters that identify it, and a secret of 256 random bits."""
    return f"gl-{''.join(secrets.choice(_ALPHABET) for _ in range(8))}-{secrets.token_urlsafe(32)}"


def is_model_field(name: str) -> bool:
    """Whether an upstream might read the model from a field, query parameter or header with this name."""
    return _MODEL_FIELD.fullmatch(name.strip()) is not None


def is_key(text: str) -> bool:
    """Whether ``text`` has the format of a gateway key, even if its secret is truncated or mistyped."""
    return _PREFIX.match(text) is not None


def prefix_of(text: str) -> str:
    """Return the public part of a key, which identifies the key. Return "" if ``text`` isn't a key."""
    found = _PREFIX.match(text)
    return found.group() if found else ""


def hash_key(text: str) -> bytes:
    """Compute the hash that is stored for a key.

    Slow hashes protect weak passwords. A key has 256 random bits, so it can't be guessed even if the hash is fast. A
    slow hash on every request would make denial of service easy.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKey:
    """An active key. ``models`` and ``collections`` are shell globs; an empty list allows any."""

    id: str
    name: str
    prefix: str
    digest: bytes
    models: Sequence[str] = ()
    collections: Sequence[str] = ()
    requests_per_minute: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a policy's scope can match."""
        return (self.name, self.prefix)

    def check_model(self, model: str | None, *, param: str = "model") -> None:
        """Check that the key allows ``model``. Raises KeyLimitError."""
        if not self.models or (model is not None and _any(self.models, model)):
            return
        if model is None:
            message = f"The key {self.prefix} is limited to certain models, but the request doesn't name one."
        else:
            message = f"The key {self.prefix} is not allowed to use the model {model!r:.200}."
        raise KeyLimitError(message, code="model_not_allowed", param=param)

    def check_body(self, body: Mapping[str, Any]) -> None:
        """Check every model that ``body`` names in ``model``, in other fields that some upstreams read a model from, or
        in its tools. Raises KeyLimitError."""
        if not self.models:
            return
        model = body.get("model")
        self.check_model(model if isinstance(model, str) else None)
        self.check_other_models(body)

    def check_other_models(self, body: Mapping[str, Any]) -> None:
        """Like ``check_body``, but ``body`` doesn't have to name a model."""
        for name, value in body.items() if self.models else ():
            if name == "extra_body" and isinstance(value, dict):
                self.check_other_models(value)
            elif name == "tools" or is_model_field(name):
                for entry in value if isinstance(value, list) else (value,) if value else ():
                    found = entry.get("model") if isinstance(entry, dict) else entry
                    if name != "tools" or found is not None:
                        self.check_model(found if isinstance(found, str) else None, param=name)

    def check_query(self, query: str) -> None:
        """Check every model that a URL's query string names. Raises KeyLimitError."""
        for name, value in parse_qsl(query, keep_blank_values=True) if self.models else ():
            if is_model_field(name.removesuffix("[]")):
                self.check_model(value, param=name)

    def check_headers(self, headers: Sequence[tuple[str, str]]) -> None:
        """Check every model that a header names. Some proxies let clients choose a model by header. Raises
        KeyLimitError."""
        for name, value in headers if self.models else ():
            if is_model_field(name):
                self.check_model(value, param=name)

    def check_collection(self, collection: str, path: str) -> None:
        """Check that the key allows ``collection``. ``path`` is the collection's path in the request. Raises
        KeyLimitError."""
        if self.collections and not _any(self.collections, collection):
            raise self._collection_error(path, f"{path} is in the collection {collection!r:.200}")

    def check_stored_documents(self, path: str) -> None:
        """Check that the key may use ``path`` (the part after ``/v1``). Raises KeyLimitError if the key is limited to
        certain collections and the path gives access to documents that an upstream stores. The collections of those
        documents are unknown."""
        first, _, rest = path.lstrip("/").partition("/")
        if self.collections and (
            first == "vector_stores" or (first == "files" and rest.rstrip("/").endswith("content"))
        ):
            raise self._collection_error("path", "this path gives access to documents of any collection")

    def _collection_error(self, path: str, told: str) -> KeyLimitError:
        return KeyLimitError(
            f"The key {self.prefix} is limited to certain collections, but {told}.",
            code="collection_not_allowed",
            param=path,
        )

    def permits(self, document: Chunk, *, unnamed: bool = False) -> bool:
        """Whether the key allows the document's collection. With ``unnamed``, documents without a collection are
        allowed too."""
        if not self.collections:
            return True
        return unnamed if document.collection is None else _any(self.collections, document.collection)

    def check_documents(
        self, documents: Sequence[Chunk], path_of: Callable[[int], str], *, unnamed: bool = False
    ) -> None:
        """Check that the key permits all ``documents``. ``path_of`` maps a document's index to its path in the request.
        ``unnamed`` has the same meaning as in ``permits``.

        Raises KeyLimitError for the first document that the key doesn't permit.
        """
        for index, document in enumerate(documents if self.collections else ()):
            if not self.permits(document, unnamed=unnamed):
                path = path_of(index)
                name = document.collection
                told = "has no collection" if name is None else f"is in the collection {name!r:.200}"
                raise self._collection_error(path, f"{path} {told}")


def _any(globs: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
