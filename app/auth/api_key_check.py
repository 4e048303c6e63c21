"""Checks API keys: finds the gateway key in a request's headers and looks it up."""

import re
from collections.abc import Sequence

from app.auth.gateway_key import GatewayKey
from app.auth.key_store import KeyStore
from app.errors import WrongKeyError

_KEY_HEADER = b"x-groundlane-key"
_BEARERS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", _KEY_HEADER})
_KEY = re.compile(rb"(?<![A-Za-z0-9_-])gl-[a-z2-7]{8}-[A-Za-z0-9_-]*")

RawHeaders = Sequence[tuple[bytes, bytes]]


def check_api_key(headers: RawHeaders, query: bytes, keys: KeyStore, *, required: bool) -> GatewayKey | None:
    """Return a request's gateway key, or None if it has no key and needs none. Raises WrongKeyError.

    Tokens in other formats are meant for the upstream, and are accepted unless a gateway key is ``required``.
    """
    if _KEY.search(query):
        raise WrongKeyError("Gateway keys must be sent in a header. Don't put them in the URL, which ends up in logs.")
    sent = [(name, value) for name, value in headers if name in _BEARERS and value.strip()]
    found = {key for _, value in sent for key in _KEY.findall(value)}
    if not found:
        if not (required or any(name == _KEY_HEADER for name, _ in sent)):
            return None
        if not sent:
            raise WrongKeyError("No gateway key: send one as 'Authorization: Bearer <key>'.")
        raise WrongKeyError("The API key is not a gateway key.")
    if len(found) > 1:
        raise WrongKeyError("More than one gateway key was sent.")
    text = found.pop().decode("ascii")
    key = keys.find(text)
    if key is None:
        raise WrongKeyError(f"The gateway key {text[:11]} is unknown or revoked.")
    return key


def without_api_keys(headers: RawHeaders) -> RawHeaders:
    """Remove gateway keys from the headers, so that none can reach an upstream."""
    return [(name, value) for name, value in headers if name != _KEY_HEADER and not _KEY.search(value)]
