"""Sign-in with a provider, over real HTTP: what is accepted, and every kind of bad token that isn't."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from joserfc.jwk import RSAKey
from pydantic import SecretStr

from app.identity import oidc
from app.identity.oidc import open_oidc, parse_roles
from app.identity.roles import Role
from app.settings import Settings, SettingsError
from tests.support.gateways.browser import csrf_of
from tests.support.gateways.browser import sign_in as sign_in_with_token
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.oidc_server import CLIENT_ID, CLIENT_SECRET, OidcServer, symmetric, unsigned

PUBLIC = "https://gateway.example"


@pytest.fixture(scope="module")
def server() -> Iterator[OidcServer]:
    server = OidcServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, server: OidcServer) -> Iterator[Gateway]:
    settings = {
        "oidc_issuer": server.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_roles": "support=editor, leads=admin",
        "public_url": PUBLIC,
    }
    gateway = Gateway(tmp_path_factory.mktemp("oidc"), **settings).start()
    yield gateway
    gateway.close()


@pytest.fixture(autouse=True)
def as_new(server: OidcServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.claims = {"sub": "u-1", "email": "anna@example.com", "email_verified": True}
    server.claims["groups"] = ["support"]
    server.spoil, server.metadata = None, {}
    monkeypatch.setattr(oidc, "_KEYS_AGAIN_S", 0.0)
    monkeypatch.setattr("app.dashboard.session_cookie.ATTEMPTS_PER_MINUTE", 1_000)


@contextmanager
def browser(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=30) as client:
        yield client


def begin(client: httpx.Client, next: str = "/dashboard/policies") -> str:
    answer = client.get("/dashboard/sign-in/oidc", params={"next": next})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def back(client: httpx.Client, url: str) -> httpx.Response:
    """Follow the provider's redirect to the public URL, which leads to the gateway."""
    assert url.startswith(f"{PUBLIC}/dashboard/sign-in/oidc/callback?")
    parts = urlsplit(url)
    return client.get(f"{parts.path}?{parts.query}")


def sign_in(client: httpx.Client, server: OidcServer) -> httpx.Response:
    return back(client, server.authorize(begin(client)))


def refusal(answer: httpx.Response) -> str:
    assert answer.status_code == 403, answer.text
    assert "groundlane_session" not in answer.cookies
    found = re.search(r'class="empty-title">.*?</p>\s*<p>(.*?)</p>', answer.text, re.DOTALL)
    assert found is not None, answer.text
    return found.group(1)


def test_sign_in_maps_the_group_to_a_role_and_the_name_to_the_audit_log(gateway: Gateway, server: OidcServer) -> None:
    with browser(gateway) as client:
        assert 'href="/dashboard/sign-in/oidc?next=' in client.get("/dashboard/sign-in").text
        answer = sign_in(client, server)
        assert (answer.status_code, 'content="0; url=/dashboard/policies"' in answer.text) == (200, True)
        cookie = next(value for value in answer.headers.get_list("set-cookie") if "groundlane_session=" in value)
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert client.get("/dashboard/policies/new").status_code == 200
        assert client.get("/dashboard/access").status_code == 403
        csrf = csrf_of(client.get("/dashboard/system").text)
        form = {"csrf": csrf, "theme": "light"}
        assert client.post("/dashboard/theme", data=form).status_code == 303
        (user,) = gateway.admin.get("/users").json()["items"]
        assert (user["name"], user["claimed_role"]) == ("anna@example.com", "editor")
        sessions = {each["actor"] for each in gateway.admin.get("/sessions").json()["items"]}
        assert "user:anna@example.com" in sessions
        made = gateway.admin.get("/audit", params={"action": "user.create"}).json()["items"]
        assert made[0]["actor"] == "user:anna@example.com"


def test_signing_in_again_ends_the_previous_session(gateway: Gateway, server: OidcServer) -> None:
    with browser(gateway) as client:
        sign_in(client, server)
        first = client.cookies["groundlane_session"]
        url = server.authorize(begin(client))
        del client.cookies["groundlane_session"]  # it is SameSite=Strict, and the redirect comes from the provider
        back(client, url)
        assert client.cookies["groundlane_session"] != first
        assert client.get("/dashboard/").status_code == 200
    with browser(gateway) as other:
        other.cookies.set("groundlane_session", first)
        assert other.get("/dashboard/").status_code == 303


def test_changed_role_takes_effect_at_the_next_request(gateway: Gateway, server: OidcServer) -> None:
    with browser(gateway) as client:
        sign_in(client, server)
        (user,) = gateway.admin.get("/users").json()["items"]
        path = f"/users/{user['id']}"
        for role, page, status in (
            ("admin", "access", 200), ("viewer", "policies/new", 403), ("none", "", 303), (None, "policies/new", 200),
        ):  # fmt: skip
            gateway.admin.patch(path, json={"assigned_role": role}).raise_for_status()
            assert client.get(f"/dashboard/{page}").status_code == status, role


@pytest.mark.parametrize("groups", [None, [], ["sales"], "sales", 7, {"support": True}])
def test_users_without_a_role_are_rejected(gateway: Gateway, server: OidcServer, groups: Any) -> None:
    server.claims |= {"sub": "u-2", "groups": groups}
    with browser(gateway) as client:
        assert "has no role on this gateway" in refusal(sign_in(client, server))
        assert client.get("/dashboard/").status_code == 303


def test_highest_role_applies_and_an_unverified_address_is_no_name(gateway: Gateway, server: OidcServer) -> None:
    server.claims = {
        "sub": "u-3",
        "email": "boss@example.com",
        "email_verified": False,
        "preferred_username": "lea",
        "groups": ["support", "leads"],
    }
    with browser(gateway) as client:
        sign_in(client, server)
        assert client.get("/dashboard/access").status_code == 200
    users = gateway.admin.get("/users").json()["items"]
    assert ("lea", "admin") in {(each["name"], each["claimed_role"]) for each in users}


Spoil = Callable[[dict[str, Any], dict[str, Any]], Any]


def _claim(**changes: Any) -> Spoil:
    def spoil(_header: dict[str, Any], claims: dict[str, Any]) -> None:
        claims.update(changes)

    return spoil


def _without(name: str) -> Spoil:
    def spoil(_header: dict[str, Any], claims: dict[str, Any]) -> None:
        del claims[name]

    return spoil


def _symmetric(header: dict[str, Any], _claims: dict[str, Any]) -> Any:
    header["alg"] = "HS256"
    return symmetric(CLIENT_SECRET)


_BAD: dict[str, Spoil] = {
    "another issuer": _claim(iss="https://elsewhere.example"),
    "another audience": _claim(aud="another-client"),
    "several audiences without azp": _claim(aud=[CLIENT_ID, "another-client"]),
    "another azp": _claim(azp="another-client"),
    "expired": _claim(exp=1_000),
    "issued in the future": _claim(iat=99_999_999_999),
    "another nonce": _claim(nonce="replayed"),
    "no nonce": _without("nonce"),
    "no expiry": _without("exp"),
    "no subject": _without("sub"),
    "no issuer": _without("iss"),
    "another key": lambda _header, _claims: RSAKey.generate_key(2048),
    "unsigned": unsigned,
    "symmetric": _symmetric,
    "no token": lambda _header, _claims: "not.a.token",
}


@pytest.mark.parametrize("kind", _BAD)
def test_invalid_token_is_rejected(gateway: Gateway, server: OidcServer, kind: str) -> None:
    server.spoil = _BAD[kind]
    with browser(gateway) as client:
        assert "ID token is invalid" in refusal(sign_in(client, server))
        assert client.get("/dashboard/").status_code == 303


def test_rotated_keys_are_reloaded(gateway: Gateway, server: OidcServer) -> None:
    with browser(gateway) as client:
        assert sign_in(client, server).status_code == 200
        before = server.key_downloads
        server.rotate()
        assert sign_in(client, server).status_code == 200
        assert sign_in(client, server).status_code == 200
        assert server.key_downloads == before + 1


def test_state_and_code_work_once_in_the_same_browser(gateway: Gateway, server: OidcServer) -> None:
    with browser(gateway) as victim, browser(gateway) as attacker:
        url = server.authorize(begin(attacker))
        assert "another window" in refusal(back(victim, url))
        begin(victim)
        assert "another window" in refusal(back(victim, url))
        mine = server.authorize(begin(victim))
        assert back(victim, mine).status_code == 200
        assert "another window" in refusal(back(victim, mine))
        began = begin(victim)
        stolen = server.authorize(began).replace("code=code-", "code=made-up-")
        assert "invalid_grant" in refusal(back(victim, stolen))


def test_sign_in_cookie_cannot_be_forged(gateway: Gateway, server: OidcServer) -> None:
    with browser(gateway) as client:
        url = server.authorize(begin(client))
        text, _, signature = client.cookies["groundlane_sign_in"].partition(".")
        parts = urlsplit(url)
        for forged in (f"{text[:-4]}AAAA.{signature}", f"{text}.", text, "é.é", ""):
            client.cookies.clear()
            answer = client.get(
                f"{parts.path}?{parts.query}", headers={"cookie": f"groundlane_sign_in={forged}".encode()}
            )
            assert "another window" in refusal(answer)


def test_signing_in_redirects_only_to_our_own_pages(gateway: Gateway, server: OidcServer) -> None:
    with browser(gateway) as client:
        answer = back(client, server.authorize(begin(client, next="https://evil.example/")))
        assert 'content="0; url=/dashboard/"' in answer.text


@pytest.mark.parametrize("announced", [None, "javascript:alert(1)", "data:text/html,x", "/logout", 7])
def test_signing_out_stays_here_without_a_page_of_the_provider(
    gateway: Gateway, server: OidcServer, monkeypatch: pytest.MonkeyPatch, announced: Any
) -> None:
    monkeypatch.setattr(oidc, "_METADATA_FOR_S", 0.0)
    server.metadata = {"end_session_endpoint": announced}
    with browser(gateway) as client:
        sign_in(client, server)
        csrf = csrf_of(client.get("/dashboard/system").text)
        answer = client.post("/dashboard/sign-out", data={"csrf": csrf})
        assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/sign-in")
        assert client.get("/dashboard/system").status_code == 303


def test_signing_out_ends_the_session_and_leads_to_the_page_of_the_provider(
    gateway: Gateway, server: OidcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_METADATA_FOR_S", 0.0)
    server.metadata = {"end_session_endpoint": f"{server.issuer}/logout?realm=staff&x=%22%3E"}
    with browser(gateway) as client:
        sign_in(client, server)
        csrf = csrf_of(client.get("/dashboard/system").text)
        answer = client.post("/dashboard/sign-out", data={"csrf": csrf})
        assert answer.status_code == 200
        links = re.findall(r'(?:href="|content="0; url=)([^"]*logout[^"]*)"', answer.text)
        assert len(links) == 2
        for link in links:
            url = urlsplit(unescape(link))
            assert f"{url.scheme}://{url.netloc}{url.path}" == f"{server.issuer}/logout"
            assert dict(parse_qsl(url.query)) == {
                "realm": "staff",
                "x": '">',
                "client_id": CLIENT_ID,
                "post_logout_redirect_uri": f"{PUBLIC}/dashboard/sign-in",
            }
        assert client.get("/dashboard/system").status_code == 303
    with sign_in_with_token(gateway) as client:
        answer = client.post("/dashboard/sign-out")
        assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/sign-in")


def test_failing_or_lying_provider_is_named(gateway: Gateway, server: OidcServer) -> None:
    with browser(gateway) as client:
        url = server.authorize(begin(client))
        state = url.partition("state=")[2]
        denied = client.get(f"/dashboard/sign-in/oidc/callback?error=access_denied&state={state}")
        assert "access_denied" in refusal(denied)


def test_another_issuer_in_the_configuration_is_rejected(tmp_path: Path, server: OidcServer) -> None:
    server.metadata = {"issuer": "https://elsewhere.example"}
    settings = {"oidc_client_id": CLIENT_ID, "oidc_client_secret": CLIENT_SECRET, "public_url": PUBLIC}
    gateway = Gateway(tmp_path, oidc_issuer=server.issuer, **settings).start()
    try:
        with browser(gateway) as client:
            assert "issuer differs" in refusal(client.get("/dashboard/sign-in/oidc"))
    finally:
        gateway.close()


def test_settings_are_checked_at_startup() -> None:
    with pytest.raises(SettingsError, match="GROUNDLANE_OIDC_CLIENT_ID: required"):
        open_oidc(Settings(_env_file=None, oidc_issuer="https://a.test"), b"key")
    with pytest.raises(SettingsError, match="GROUNDLANE_PUBLIC_URL"):
        open_oidc(
            Settings(
                _env_file=None, oidc_issuer="https://a.test", oidc_client_id="a", oidc_client_secret=SecretStr("b")
            ),
            b"key",
        )
    for text in ("support", "support=owner", "=admin"):
        with pytest.raises(SettingsError, match="GROUNDLANE_OIDC_ROLES"):
            parse_roles(text)
    assert parse_roles("support = editor,*=viewer") == {"support": Role.EDITOR, "*": Role.VIEWER}
