"""Sign-in with an OpenID Connect provider: the authorization code flow with PKCE.

Authlib builds the requests, and its dependency joserfc verifies ID tokens. The extra ``oidc`` installs both.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from time import monotonic
from typing import Any

import httpx
import orjson
from pydantic import BaseModel, HttpUrl, TypeAdapter, ValidationError

from app.errors import SignInError
from app.identity.roles import Role
from app.settings import Settings, SettingsError

CALLBACK, SIGNED_OUT = "/dashboard/sign-in/oidc/callback", "/dashboard/sign-in"
FLOW_LIFETIME = timedelta(minutes=10)
_URL = TypeAdapter(HttpUrl)
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The accepted signature algorithms, which are all asymmetric. If ``none`` or a symmetric algorithm were accepted,
anyone could forge a token."""
_LEEWAY_S = 60
_METADATA_FOR_S = 3_600.0
_KEYS_AGAIN_S = 10.0
"""The minimum time between two downloads of the provider's keys that are triggered by unknown key ids."""
_ANSWER_S = 10.0
_LARGEST_ANSWER = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedInUser:
    """The person who signed in at the provider. The role comes from their claims, and is None if the claims give no
    role."""

    issuer: str
    subject: str
    name: str
    role: Role | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedSignIn:
    """The result of a sign-in: the user, the page to show, and the id of the session that the sign-in replaces."""

    user: SignedInUser
    next: str
    session: str | None


class _Metadata(BaseModel):
    issuer: str
    authorization_endpoint: HttpUrl
    token_endpoint: HttpUrl
    jwks_uri: HttpUrl
    end_session_endpoint: Any = None
    """The provider's sign-out URL. It is validated only when it is used, so that an invalid URL doesn't prevent
    sign-ins."""


def open_oidc(settings: Settings, key: bytes) -> "OidcProvider | None":
    """Create the provider that the settings describe, or return None if they describe none. ``key`` signs the state of
    sign-ins. Raises SettingsError if a setting is missing or invalid, or if the extra ``oidc`` isn't installed."""
    if settings.oidc_issuer is None:
        return None
    for name in ("oidc_client_id", "oidc_client_secret", "public_url"):
        if getattr(settings, name) is None:
            raise SettingsError(f"GROUNDLANE_{name.upper()}: required with GROUNDLANE_OIDC_ISSUER")
    if find_spec("authlib") is None:
        raise SettingsError("GROUNDLANE_OIDC_ISSUER requires the extra oidc: pip install 'groundlane[oidc]'")
    return OidcProvider(settings, key, roles=parse_roles(settings.oidc_roles or ""))


def parse_roles(text: str) -> Mapping[str, Role]:
    """Parse ``group=role`` entries, separated by commas. Raises SettingsError."""
    found = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        group, _, role = entry.rpartition("=")
        if not group.strip() or role.strip() not in list(Role):
            raise SettingsError(f"GROUNDLANE_OIDC_ROLES: {entry!r}: expected group=viewer, group=editor or group=admin")
        found[group.strip()] = Role(role.strip())
    return found


class OidcProvider:
    """An OpenID Connect provider. Its metadata and keys are read when they are first needed. The keys are read again
    when the provider rotates them."""

    def __init__(self, settings: Settings, key: bytes, *, roles: Mapping[str, Role]) -> None:
        self._issuer = str(settings.oidc_issuer)
        self._client_id = settings.oidc_client_id or ""
        self._client_secret = settings.oidc_client_secret.get_secret_value() if settings.oidc_client_secret else ""
        self._public_url = str(settings.public_url).rstrip("/")
        self._redirect_uri = self._public_url + CALLBACK
        self._scopes, self._claim, self._roles = settings.oidc_scopes, settings.oidc_role_claim, roles
        self._key = hmac.digest(key, b"oidc", "sha256")
        self._metadata: tuple[float, _Metadata] | None = None
        self._keys: tuple[float, Any] | None = None

    async def begin(self, next: str, *, session: str | None = None) -> tuple[str, str]:
        """Start a sign-in. Return the provider's URL and the value of a cookie that ``finish`` needs. ``next`` is the
        page to show after signing in, and ``session`` is the id of the browser's current session. Raises SignInError.
        """
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        metadata = await self._read_metadata()
        flow = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")}
        ends = int((datetime.now(UTC) + FLOW_LIFETIME).timestamp())
        url: str = prepare_grant_uri(
            str(metadata.authorization_endpoint),
            self._client_id,
            "code",
            redirect_uri=self._redirect_uri,
            scope=self._scopes,
            state=flow["state"],
            nonce=flow["nonce"],
            code_challenge=create_s256_code_challenge(flow["verifier"]),
            code_challenge_method="S256",
        )
        return url, self._seal({**flow, "next": next, "session": session, "ends": ends})

    async def finish(self, query: Mapping[str, str], cookie: str) -> CompletedSignIn:
        """Complete the sign-in with the parameters of the provider's redirect. Raises SignInError."""
        flow = self._unseal(cookie)
        if not hmac.compare_digest(query.get("state", "").encode(), flow["state"].encode()):
            raise SignInError("This sign-in was started in another window or has expired. Try again.")
        if query.get("iss", self._issuer) != self._issuer:
            raise SignInError("The response came from a different provider.")
        if "error" in query:
            raise SignInError(f"The provider refused to sign you in: {query['error'][:100]}.")
        if not query.get("code"):
            raise SignInError("The provider's response contains no authorization code. Try again.")
        token = await self._exchange(query["code"], flow["verifier"])
        claims = await self._verify(token, flow["nonce"])
        return CompletedSignIn(user=self._user(claims), next=flow["next"], session=flow["session"])

    async def sign_out_url(self) -> str | None:
        """Return the URL of the provider's sign-out page, which ends the session at the provider and then redirects to
        the gateway's sign-in page. Return None if the provider has no such page or can't be reached."""
        try:
            endpoint = _URL.validate_python((await self._read_metadata()).end_session_endpoint)
        except (SignInError, ValidationError):
            return None
        back = {"client_id": self._client_id, "post_logout_redirect_uri": f"{self._public_url}{SIGNED_OUT}"}
        return str(httpx.URL(str(endpoint)).copy_merge_params(back))

    async def _exchange(self, code: str, verifier: str) -> str:
        metadata = await self._read_metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
            "client_id": self._client_id,
            "client_secret": self._client_secret,
        }
        token = (await _ask("POST", str(metadata.token_endpoint), form)).get("id_token")
        if not isinstance(token, str):
            raise SignInError("The provider sent no ID token.")
        return token

    async def _verify(self, token: str, nonce: str) -> Mapping[str, Any]:
        from joserfc import jwt
        from joserfc.errors import JoseError

        keys = await self._read_keys()
        try:
            try:
                decoded = jwt.decode(token, keys, algorithms=_ALGORITHMS)
            except (JoseError, ValueError):
                # The provider may have rotated its keys.
                keys = await self._read_keys(again=True)
                decoded = jwt.decode(token, keys, algorithms=_ALGORITHMS)
            claims = decoded.claims
            jwt.JWTClaimsRegistry(
                leeway=_LEEWAY_S,
                iss={"essential": True, "value": self._issuer},
                sub={"essential": True},
                aud={"essential": True, "value": self._client_id},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            raise SignInError(f"The provider's ID token is invalid: {_said(error)}.") from None
        audience = claims["aud"]
        several = isinstance(audience, list) and len(audience) > 1
        if (several or "azp" in claims) and claims.get("azp") != self._client_id:
            raise SignInError("The provider's ID token is invalid: it was issued to a different client.")
        return dict(claims)

    def _user(self, claims: Mapping[str, Any]) -> SignedInUser:
        groups = claims.get(self._claim)
        named = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        roles = [self._roles[group] for group in (*named, "*") if isinstance(group, str) and group in self._roles]
        email = claims.get("email") if claims.get("email_verified") is True else None
        name = next((text for text in (email, claims.get("preferred_username")) if isinstance(text, str) and text), "")
        return SignedInUser(
            issuer=self._issuer,
            subject=claims["sub"],
            name="".join(filter(str.isprintable, name))[:200] or claims["sub"][:200],
            role=max(roles, key=list(Role).index, default=None),
        )

    # The provider's metadata.

    async def _read_metadata(self) -> _Metadata:
        if self._metadata is not None and monotonic() - self._metadata[0] < _METADATA_FOR_S:
            return self._metadata[1]
        url = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
        try:
            metadata = _Metadata.model_validate(await _ask("GET", url))
        except ValidationError:
            raise SignInError("The provider's configuration is incomplete.") from None
        if metadata.issuer != self._issuer:
            raise SignInError("The provider's issuer differs from GROUNDLANE_OIDC_ISSUER.")
        self._metadata = monotonic(), metadata
        return metadata

    async def _read_keys(self, *, again: bool = False) -> Any:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        now = monotonic()
        if self._keys is not None and now - self._keys[0] < (_KEYS_AGAIN_S if again else _METADATA_FOR_S):
            return self._keys[1]
        found = await _ask("GET", str((await self._read_metadata()).jwks_uri))
        try:
            keys = KeySet.import_key_set(found)  # type: ignore[arg-type]
        except (JoseError, ValueError, KeyError, TypeError):
            raise SignInError("The provider's keys can't be read.") from None
        self._keys = now, keys
        return keys

    # The cookie is signed. Otherwise, an attacker could choose the state and the verifier of another person's sign-in.

    def _seal(self, flow: Mapping[str, Any]) -> str:
        text = base64.urlsafe_b64encode(orjson.dumps(flow)).decode()
        return f"{text}.{hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()}"

    def _unseal(self, cookie: str) -> dict[str, Any]:
        text, _, signature = cookie.partition(".")
        expected = hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        if hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
            flow: dict[str, Any] = orjson.loads(base64.urlsafe_b64decode(text))
            if flow["ends"] > datetime.now(UTC).timestamp():
                return flow
        raise SignInError("This sign-in was started in another window or has expired. Try again.")


async def _ask(method: str, url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Call the provider and return its JSON object. Raises SignInError."""
    try:
        async with httpx.AsyncClient(timeout=_ANSWER_S, follow_redirects=False) as client:
            response = await client.request(method, url, data=form, headers={"accept": "application/json"})
    except httpx.HTTPError:
        raise SignInError("The provider is unreachable. Try again later.") from None
    try:
        body = orjson.loads(response.content[:_LARGEST_ANSWER])
    except orjson.JSONDecodeError:
        body = None
    if not response.is_success or not isinstance(body, dict):
        said = body.get("error") if isinstance(body, dict) else None
        detail = f": {said[:100]}" if isinstance(said, str) else ""
        raise SignInError(f"The provider answered {response.status_code}{detail}.")
    return body


def _said(error: Exception) -> str:
    text = str(getattr(error, "description", "") or error).rstrip(".")
    return text[:200] or type(error).__name__
