"""A small OpenID Connect provider on a loopback port. It signs with its own keys and can be told to misbehave."""

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey

from tests.support.gateways.json_server import QuietHandler, served

CLIENT_ID, CLIENT_SECRET = "groundlane", "secret-of-the-client-for-tests"


class OidcServer:
    """``claims`` are added to each ID token, and ``spoil`` may change its header, its claims and its key.
    ``metadata`` replaces values of the configuration."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {"sub": "u-1", "email": "anna@example.com", "groups": ["support"]}
        self.spoil: Callable[[dict[str, Any], dict[str, Any]], Any] | None = None
        self.metadata: dict[str, Any] = {}
        self.key_downloads = 0
        self._codes: dict[str, dict[str, str]] = {}
        self.rotate()
        handler = type("Handler", (_Handler,), {"provider": self})
        self._serving = served(handler)
        self.issuer = self._serving.__enter__()

    def close(self) -> None:
        self._serving.__exit__(None, None, None)

    def rotate(self) -> None:
        """Sign with a new key from now on."""
        self.key = RSAKey.generate_key(2048, {"kid": f"key-{datetime.now(UTC).timestamp()}"})

    def authorize(self, url: str) -> str:
        """Sign the user in at ``url``. Return the URL that the provider redirects to."""
        asked = dict(parse_qsl(urlsplit(url).query))
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT_ID)
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?code={code}&state={asked['state']}"

    def configuration(self) -> dict[str, Any]:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }
        return found | self.metadata

    def keys(self) -> Any:
        self.key_downloads += 1
        return KeySet([self.key]).as_dict(private=False)

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self._codes.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client"}
        now = int(datetime.now(UTC).timestamp())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims |= self.claims
        header = {"alg": "RS256", "kid": self.key.kid}
        made = self.spoil(header, claims) if self.spoil else None
        if isinstance(made, str):
            return 200, {"id_token": made, "access_token": "a", "token_type": "Bearer"}
        token = jwt.encode(header, claims, made or self.key, algorithms=[header["alg"]])
        return 200, {"id_token": token, "access_token": "a", "token_type": "Bearer"}


class _Handler(QuietHandler):
    provider: OidcServer

    def do_GET(self) -> None:
        found = {"/.well-known/openid-configuration": self.provider.configuration, "/keys": self.provider.keys}
        self.respond_json(200, found[self.path]()) if self.path in found else self.respond_json(404, {})

    def do_POST(self) -> None:
        body = self.body().decode()
        self.respond_json(*self.provider.token({name: values[0] for name, values in parse_qs(body).items()}))


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """Return an ID token with ``alg: none``."""
    parts = ({**header, "alg": "none"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, ""])


def symmetric(text: str) -> OctKey:
    """Return a key that anybody who knows ``text`` can sign with."""
    return OctKey.import_key(text)
