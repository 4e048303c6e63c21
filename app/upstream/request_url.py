"""The URL of a request to an upstream."""

import re
from functools import lru_cache
from urllib.parse import quote

import httpx

from app.config import UpstreamSpec
from app.errors import InvalidRequestError, UnknownModelError
from app.settings import UpstreamApi

_OF_A_DEPLOYMENT = frozenset(
    {"/chat/completions", "/completions", "/embeddings", "/images/generations", "/images/edits", "/audio/speech",
     "/audio/transcriptions", "/audio/translations"}
)  # fmt: skip
_UNSAFE = re.compile(r"[^\x21-\x7e\x80-\xff]")
_AZURE_V1 = "/openai/v1"


def by_deployment(spec: UpstreamSpec) -> bool:
    """Whether this is Azure's older API, which has the model in the URL."""
    return spec.api is UpstreamApi.AZURE and not spec.base_url.endswith(_AZURE_V1)


def url_of(spec: UpstreamSpec, path: str, query: str, model: str | None) -> str:
    """The URL for ``path`` (the part after ``/v1``), with ``query`` unchanged.

    Raises UnknownModelError for a model name that would change the path.
    """
    base = spec.base_url
    if by_deployment(spec):
        base = base.removesuffix("/openai") + "/openai"
        if model is not None and path in _OF_A_DEPLOYMENT:
            if model in (".", ".."):
                raise UnknownModelError(f"No deployment is called {model!r}.", param="model")
            base += f"/deployments/{quote(model, safe='')}"
    if spec.api_version is not None and "api-version=" not in query:
        query = f"api-version={spec.api_version}" + (f"&{query}" if query else "")
    return f"{base}{path}" + (f"?{query}" if query else "")


@lru_cache(maxsize=256)
def parsed(url: str) -> tuple[httpx.URL, bytes]:
    """The URL without credentials, and its path and query byte for byte (``url`` has one character for each byte).

    Raises InvalidRequestError; only the client's part of the URL can be wrong.
    """
    slash = url.find("/", url.index("://") + 3)
    target = url[slash:] if slash >= 0 else "/"
    try:
        if _UNSAFE.search(target):
            raise httpx.InvalidURL("path and query are not printable")
        return httpx.URL(url).copy_with(userinfo=b""), target.encode("latin-1")
    except (httpx.InvalidURL, UnicodeEncodeError):
        raise InvalidRequestError("The request's path or query is not a valid URL.") from None
