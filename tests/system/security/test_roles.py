"""Every operation of operators declares the role that it requires, and no path leads around it."""

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from app.api import admin
from app.api.admin.common import AdminRoute
from app.api.error_responses import install_error_handlers
from app.dashboard.page_security import DashboardRoute, OpenRoute
from app.dashboard.pages import keys
from app.dashboard.router import PARTS
from app.dashboard.router import router as dashboard_router
from app.identity import Role, required_role
from tests.support.gateways.browser import sign_in
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway

WITHOUT_SESSION = {"/sign-in", "/sign-in/oidc", "/sign-in/oidc/callback", "/static/{version}/{name}", "/shared/{token}"}
"""The pages that need no session. A page that is added here is public: say in its docstring why."""
NO_SECRETS = ("/tokens", "/secrets", "/sessions")


def routes(router: Any) -> Iterator[Any]:
    for route in router.routes:
        yield from routes(route.original_router) if hasattr(route, "original_router") else (route,)


ADMIN = list(routes(admin.router))
PAGES = [route for part in (*PARTS, dashboard_router) for route in routes(part)]


def test_every_operation_of_the_admin_api_declares_a_role() -> None:
    assert len(ADMIN) > 40
    assert [route.path for route in ADMIN if not isinstance(route, AdminRoute)] == []
    undeclared = [f"{route.methods} {route.path}" for route in ADMIN if required_role(route.endpoint) is None]
    assert undeclared == [], "declare the least role below the router's decorator: @requires(Role.VIEWER)"


def test_every_page_declares_a_role_or_is_listed_as_open() -> None:
    assert len(PAGES) > 30
    open_pages = {route.path for route in PAGES if not isinstance(route, DashboardRoute)}
    assert all(isinstance(route, OpenRoute) for route in PAGES)
    assert open_pages == WITHOUT_SESSION
    signed_in = [route for route in PAGES if isinstance(route, DashboardRoute)]
    undeclared = [f"{route.methods} {route.path}" for route in signed_in if required_role(route.endpoint) is None]
    assert undeclared == [], "declare the least role below the router's decorator: @requires(Role.VIEWER)"


_OWN = {"/sign-out", "/theme", "/{path:path}", "/sessions/{session_id}/end"}
"""Changes of nothing but what belongs to the session itself."""


def test_only_editors_change_and_only_admins_handle_credentials() -> None:
    for route in (*ADMIN, *PAGES):
        role = required_role(route.endpoint)
        if role is None or route.path in _OWN:
            continue
        if route.methods - {"GET", "HEAD"}:
            assert role.includes(Role.EDITOR), route.path
        if any(part in route.path for part in NO_SECRETS) and route in ADMIN:
            assert role is Role.ADMIN, route.path
        if "/keys" in route.path and route.methods - {"GET", "HEAD"}:
            assert role is Role.ADMIN, route.path


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("roles")).start()
    yield gateway
    gateway.close()


@pytest.fixture(scope="module")
def tokens(gateway: Gateway) -> dict[str, str]:
    """A token of each role."""
    made = {role: gateway.admin.post("/tokens", json={"name": role, "role": role}) for role in Role}
    return {role: answer.raise_for_status().json()["token"] for role, answer in made.items()}


def as_(gateway: Gateway, token: str) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://127.0.0.1:{gateway.port}", headers={"authorization": f"Bearer {token}"}, timeout=30
    )


def concrete(path: str) -> str:
    return path.replace("{", "").replace("}", "")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.EDITOR])
def test_operations_above_the_role_are_rejected(gateway: Gateway, tokens: dict[str, str], role: Role) -> None:
    above = [route for route in ADMIN if not role.includes(required_role(route.endpoint) or Role.ADMIN)]
    assert len(above) > 5
    with as_(gateway, tokens[role]) as client:
        for route in above:
            for method in route.methods:
                answer = client.request(method, "/admin/v1" + concrete(route.path))
                assert answer.status_code == 403, f"{method} {route.path}"
                assert answer.headers["content-type"] == "application/problem+json"
                assert f"has the role {role}" in answer.json()["detail"]


def spellings(path: str) -> Sequence[str]:
    last = path[-1]
    return (
        f"{path}/",
        f"{path}//",
        f"//{path[1:]}",
        path.upper(),
        f"{path[:-1]}%{ord(last):02x}",
        f"{path}%2f",
        f"{path}/.",
        f"{path}/x/..",
        f"{path};a=b",
        f"{path}%00",
        f"{path}?_method=GET",
    )


@pytest.mark.parametrize("path", ["/admin/v1/keys", "/admin/v1/tokens", "/dashboard/keys"])
def test_path_spelling_cannot_bypass_the_role(gateway: Gateway, tokens: dict[str, str], path: str) -> None:
    body = {"name": "stolen", "role": "admin"} if path.endswith("tokens") else {"name": "stolen"}
    overrides: Sequence[dict[str, str]] = (
        {},
        {"x-http-method-override": "GET"},
        {"x-method-override": "POST"},
        {"x-original-url": "/admin/v1/me"},
        {"x-rewrite-url": "/admin/v1/me"},
        {"x-forwarded-for": "127.0.0.1"},
    )
    page = path.startswith("/dashboard")
    sent: dict[str, Any] = {"data": body} if page else {"json": body}
    with (sign_in if page else as_)(gateway, tokens[Role.EDITOR]) as client:
        for spelling in (path, *spellings(path)):
            for headers in overrides:
                for method in ("POST", "PUT", "PATCH"):
                    answer = client.request(method, spelling, **sent, headers=headers)
                    assert answer.status_code >= (400 if page else 300), (method, spelling, headers)
        for method in ("HEAD", "OPTIONS", "TRACE", "post"):
            answer = client.request(method, path, **sent)
            assert answer.status_code >= 400, method
    everything = gateway.admin.get("/keys").text + gateway.admin.get("/tokens").text
    assert "stolen" not in everything


def test_undeclared_operation_answers_403_to_everybody(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(admin.keys.list_keys, "__required_role__")
    monkeypatch.delattr(keys.show, "__required_role__")
    answer = gateway.admin.get("/keys")
    assert (answer.status_code, "doesn't declare" in answer.text) == (403, True)
    with sign_in(gateway, ADMIN_TOKEN) as client:
        assert client.get("/dashboard/keys").status_code == 403


async def _reached() -> str:
    return "reached"


def test_route_of_another_class_answers_403(gateway: Gateway) -> None:
    app, router = FastAPI(), APIRouter(dependencies=list(admin.router.dependencies))
    router.add_api_route("/forgotten", _reached)
    app.include_router(router)
    install_error_handlers(app)
    answer = TestClient(app).get("/forgotten")
    assert (answer.status_code, "reached" in answer.text) == (403, False)


def test_pages_above_the_role_are_refused(gateway: Gateway, tokens: dict[str, str]) -> None:
    with sign_in(gateway, tokens[Role.VIEWER]) as client:
        for path in ("/", "/requests", "/policies", "/keys", "/system"):
            assert client.get(f"/dashboard{path}").status_code == 200, path
        assert client.get("/dashboard/policies/new").status_code == 403
        made = client.post("/dashboard/keys", data={"name": "stolen"})
        assert made.status_code == 403
        assert "requires the role admin" in made.text


def test_changes_are_audited_with_the_token(gateway: Gateway, tokens: dict[str, str]) -> None:
    with as_(gateway, tokens[Role.EDITOR]) as client:
        policy = {"name": "by the editor", "category": "grounding", "rules": {}}
        assert client.post("/admin/v1/policies", json=policy).status_code == 201
        assert client.get("/admin/v1/me").json() == {"name": "editor", "actor": "token:editor", "role": "editor"}
    newest = gateway.admin.get("/audit").json()["items"][0]
    assert (newest["actor"], newest["action"]) == ("token:editor", "policy.create")


def test_revoked_token_is_rejected_at_once_and_its_session_ends(gateway: Gateway) -> None:
    made = gateway.admin.post("/tokens", json={"name": "leaver", "role": "admin"}).json()
    with as_(gateway, made["token"]) as client, sign_in(gateway, made["token"]) as browser:
        assert client.get("/admin/v1/keys").status_code == 200
        assert gateway.admin.delete(f"/tokens/{made['id']}").status_code == 204
        assert client.get("/admin/v1/keys").status_code == 401
        assert browser.get("/dashboard/").status_code == 303


def test_admin_token_is_not_a_gateway_key_and_never_reaches_the_upstream(
    gateway: Gateway, tokens: dict[str, str]
) -> None:
    seen = len(gateway.upstream.exchanges)
    for header in ("authorization", "x-api-key"):
        with gateway.call({"model": "m", "messages": []}, headers={header: f"Bearer {tokens[Role.ADMIN]}"}) as call:
            call.read_all()
        assert call.status == 401
    assert len(gateway.upstream.exchanges) == seen
