"""Finds the gateway key in a request's headers and looks it up."""

import re
from collections.abc import Callable, Sequence

from app.auth.gateway_key import GatewayKey
from app.auth.key_store import KeyStore
from app.errors import WrongKeyError

_KEY_HEADER = b"x-groundlane-key"
_BEARERS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", _KEY_HEADER})
# Also matches admin tokens (gla-…). They aren't gateway keys, but they must not reach an upstream either.
_KEY = re.compile(rb"(?<![A-Za-z0-9_-])gla?-[a-z2-7]{8}-[A-Za-z0-9_-]*")

RawHeaders = Sequence[tuple[bytes, bytes]]


def check_api_key(headers: RawHeaders, query: bytes, keys: KeyStore, *, required: bool) -> GatewayKey | None:
    """Return the request's gateway key, or None if it has no key and doesn't need one. Raises WrongKeyError.

    Tokens in other formats are meant for the upstream. They are accepted unless a gateway key is ``required``.
    """
    if _KEY.search(query):
        raise WrongKeyError("Send the gateway key in a header, not in the URL: URLs end up in logs.")
    sent = [(name, value) for name, value in headers if name in _BEARERS and value.strip()]
    found = {key for _, value in sent for key in _KEY.findall(value)}
    if not found:
        if not (required or any(name == _KEY_HEADER for name, _ in sent)):
            return None
        if not sent:
            raise WrongKeyError("Missing gateway key: send it as 'Authorization: Bearer <key>'.")
        raise WrongKeyError("This API key is not a gateway key. Gateway keys begin with gl-.")
    if len(found) > 1:
        raise WrongKeyError("The request has more than one gateway key.")
    text = found.pop().decode("ascii")
    key = keys.find(text)
    if key is None:
        if text.startswith("gla-"):
            raise WrongKeyError(f"{text[:12]} is an admin token, not a gateway key.")
        raise WrongKeyError(f"The gateway key {text[:11]} is unknown or revoked.")
    return key


def without_api_keys(headers: RawHeaders, *, is_admin: Callable[[str], bool]) -> RawHeaders:
    """Remove gateway keys and admin tokens from the headers, so that none can reach an upstream. ``is_admin``
    recognizes the bootstrap admin token, which can have any format."""

    def is_secret(name: bytes, value: bytes) -> bool:
        if name == _KEY_HEADER or _KEY.search(value):
            return True
        return name in _BEARERS and any(is_admin(word.decode("latin-1")) for word in (value, *value.split()))

    return [(name, value) for name, value in headers if not is_secret(name, value)]
