"""Obtains Google Cloud access tokens with a service account's key.

A JSON Web Token signed with the account's private key (RS256) is exchanged for an access token at the account's
``token_uri``. The access token expires after ``expires_in`` seconds.

Source: https://developers.google.com/identity/protocols/oauth2/service-account
"""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from judges.cross_encoder.services.pair_service import Fetch, ServiceRequest
from judges.protocols import JudgeUnavailableError

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_EXCHANGE: Final = "https://oauth2.googleapis.com/token"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFETIME_S: Final = 3600
_EARLY_S: Final = 120.0
"""Tokens are renewed this many seconds before they expire."""


class GoogleToken:
    """Keeps the token for the most recent key. ``name`` is the service's name in messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = asyncio.Lock()
        self._key = ""
        self._token = ""
        self._until = 0.0

    async def get(self, key: str, fetch: Fetch) -> str:
        """Return an access token for ``key``, which is a service account's key in JSON or itself an access token.

        Raises JudgeError.
        """
        if not key.lstrip().startswith("{"):
            return key.strip()
        async with self._lock:
            if key != self._key or monotonic() >= self._until:
                account = self._account(key)
                signed = await asyncio.to_thread(self._signed, account)
                body = urlencode({"grant_type": _GRANT, "assertion": signed}).encode()
                headers = {"Content-Type": "application/x-www-form-urlencoded"}
                url = account.get("token_uri", _EXCHANGE)
                self._keep(key, await fetch(ServiceRequest(url=url, body=body, headers=headers)))
            return self._token

    def _account(self, key: str) -> Mapping[str, Any]:
        try:
            account = json.loads(key)
        except ValueError:
            account = None
        wanted = ("client_email", "private_key")
        if not isinstance(account, dict) or not all(isinstance(account.get(name), str) for name in wanted):
            raise JudgeUnavailableError(
                f"{self._name}: the key is not a service account key: expected JSON with {' and '.join(wanted)}"
            )
        return account

    def _signed(self, account: Mapping[str, Any]) -> str:
        now = int(datetime.now(UTC).timestamp())
        claims = {
            "iss": account["client_email"],
            "scope": _SCOPE,
            "aud": account.get("token_uri", _EXCHANGE),
            "iat": now,
            "exp": now + _LIFETIME_S,
        }
        try:
            private = serialization.load_pem_private_key(account["private_key"].encode(), password=None)
        except (ValueError, TypeError):
            raise JudgeUnavailableError(f"{self._name}: the service account's private key cannot be read") from None
        if not isinstance(private, rsa.RSAPrivateKey):
            raise JudgeUnavailableError(f"{self._name}: the service account's private key is not an RSA key")
        text = ".".join(_encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
        signature = private.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_encoded(signature)}"

    def _keep(self, key: str, answer: Any) -> None:
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise JudgeUnavailableError(f"{self._name}: the token endpoint returned no access token")
        expires = answer.get("expires_in")
        seconds = expires if isinstance(expires, int | float) else _LIFETIME_S
        self._key, self._token, self._until = key, token, monotonic() + seconds - _EARLY_S


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
