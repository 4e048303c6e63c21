import json
from base64 import urlsafe_b64decode
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from judges.cross_encoder.services.google_token import GoogleToken
from judges.cross_encoder.services.pair_service import ServiceRequest
from judges.protocols import JudgeUnavailableError

pytestmark = pytest.mark.anyio

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def account(key: Any = KEY, **fields: Any) -> str:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return json.dumps({"type": "service_account", "client_email": "judge@acme", "private_key": pem, **fields})


class Exchange:
    """The token endpoint."""

    def __init__(self, expires_in: float = 3600) -> None:
        self.requests: list[ServiceRequest] = []
        self.expires_in = expires_in

    async def __call__(self, request: ServiceRequest) -> Any:
        self.requests.append(request)
        return {"access_token": f"token-{len(self.requests)}", "expires_in": self.expires_in, "token_type": "Bearer"}


def part(text: str) -> Any:
    return json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))


async def test_service_account_token_is_cached_until_it_expires() -> None:
    fetch, token = Exchange(), GoogleToken("judge")
    key = account(token_uri="https://tokens.example.com/token")
    assert [await token.get(key, fetch) for _ in range(3)] == ["token-1"] * 3
    (request,) = fetch.requests
    assert request.url == "https://tokens.example.com/token"
    sent = parse_qs(request.body.decode())
    assert sent["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    head, claims, signature = sent["assertion"][0].split(".")
    assert part(head) == {"alg": "RS256", "typ": "JWT"}
    found = part(claims)
    assert (found["iss"], found["aud"]) == ("judge@acme", "https://tokens.example.com/token")
    assert found["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert found["exp"] - found["iat"] == 3600
    signed = urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    KEY.public_key().verify(signed, f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())


async def test_token_is_renewed_before_it_expires_and_for_another_key() -> None:
    fetch, token = Exchange(expires_in=100), GoogleToken("judge")
    assert [await token.get(account(), fetch) for _ in range(2)] == ["token-1", "token-2"]
    fetch.expires_in = 3600
    await token.get(account(), fetch)
    assert await token.get(account(client_email="other@acme"), fetch) == "token-4"


async def test_access_token_is_used_as_it_is() -> None:
    fetch = Exchange()
    assert await GoogleToken("judge").get(" ya29.token\n", fetch) == "ya29.token"
    assert fetch.requests == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("{", "not a service account key: expected JSON with client_email and private_key"),
        ('{"client_email": "a"}', "not a service account key"),
        (account(private_key="secret"), "private key cannot be read"),
        (account(ec.generate_private_key(ec.SECP256R1())), "not an RSA key"),
    ],
)
async def test_unusable_key_error_says_what_is_expected_without_repeating_it(key: str, message: str) -> None:
    with pytest.raises(JudgeUnavailableError, match=message) as fault:
        await GoogleToken("judge").get(key, Exchange())
    assert "secret" not in str(fault.value)


async def test_answer_without_a_token_is_an_error() -> None:
    async def fetch(_request: ServiceRequest) -> Any:
        return {"error": "invalid_grant"}

    with pytest.raises(JudgeUnavailableError, match="returned no access token"):
        await GoogleToken("judge").get(account(), fetch)
