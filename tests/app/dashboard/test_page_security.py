"""Access to pages, security headers, CSRF protection and error pages."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest
from fastapi.routing import APIRoute

from app.dashboard import session_cookie
from app.dashboard.router import PARTS
from app.dashboard.static_files import static_url
from app.dashboard.templating import SECTIONS
from app.db.database import DatabaseUnavailableError
from tests.support.gateways.browser import csrf_of, sign_in
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway

PAGES = [section.path for section in SECTIONS]
OPEN = {"/sign-in", "/sign-in/oidc", "/sign-in/oidc/callback", "/static/{version}/{name}", "/shared/{token}"}


Visit = Callable[..., httpx.Client]


@pytest.fixture
def visit() -> Iterator[Visit]:
    """Creates clients of a gateway's dashboard with the given cookies; they are closed at the end."""
    with ExitStack() as stack:

        def made(gateway: Gateway, cookies: httpx.Cookies | None = None) -> httpx.Client:
            base_url = f"http://127.0.0.1:{gateway.port}"
            return stack.enter_context(httpx.Client(base_url=base_url, cookies=cookies, timeout=20))

        yield made


@pytest.fixture
def stranger(gateway: Gateway, visit: Visit) -> httpx.Client:
    return visit(gateway)


@pytest.mark.parametrize("path", PAGES)
def test_pages_have_no_inline_script_or_style_and_send_security_headers(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert (policy["frame-ancestors"], policy["base-uri"], policy["form-action"]) == ("'none'", "'none'", "'self'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert " style=" not in answer.text
    assert "<style" not in answer.text
    assert "<script>" not in answer.text
    assert "://" not in answer.text.replace("http://127.0.0.1", "")


def test_pages_redirect_to_sign_in_without_a_session(stranger: httpx.Client) -> None:
    routes = [route for part in PARTS for route in part.routes if isinstance(route, APIRoute)]
    assert len(routes) > len(PAGES)
    for route in routes:
        if route.path in OPEN:
            continue
        for method in route.methods:
            answer = stranger.request(method, "/dashboard" + route.path.translate({ord("{"): None, ord("}"): None}))
            assert (answer.status_code, answer.headers["location"][:18]) == (303, "/dashboard/sign-in"), route.path


def test_script_without_a_session_gets_401_instead_of_a_redirect(stranger: httpx.Client) -> None:
    answer = stranger.get("/dashboard/requests", headers={"sec-fetch-mode": "cors"})
    assert answer.status_code == 401


def test_signing_in_redirects_to_the_requested_page(stranger: httpx.Client) -> None:
    wanted = stranger.get("/dashboard/requests?agent=hr").headers["location"]
    form = stranger.get(wanted).text
    data = {"csrf": csrf_of(form), "token": ADMIN_TOKEN, "next": "/dashboard/requests?agent=hr"}
    answer = stranger.post("/dashboard/sign-in", data=data)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/requests?agent=hr")
    cookie = next(value for value in answer.headers.get_list("set-cookie") if value.startswith(session_cookie.COOKIE))
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/dashboard" in cookie
    assert "Secure" not in cookie
    assert ADMIN_TOKEN not in cookie
    assert stranger.get("/dashboard/").status_code == 200


def test_cookie_is_secure_behind_an_https_proxy(stranger: httpx.Client) -> None:
    answer = stranger.get("/dashboard/sign-in", headers={"x-forwarded-proto": "https"})
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("next", ["https://elsewhere.example/", "//elsewhere.example", "/dashboard/\\e", "/dashboardx"])
def test_signing_in_never_redirects_to_another_site(next: str) -> None:
    assert session_cookie.safe_next(next) == "/dashboard/"


def test_wrong_token_is_refused_and_not_repeated(stranger: httpx.Client) -> None:
    form = stranger.get("/dashboard/sign-in").text
    answer = stranger.post("/dashboard/sign-in", data={"csrf": csrf_of(form), "token": "guess-1"})
    assert answer.status_code == 401
    assert "This admin token is invalid, revoked or expired." in answer.text
    assert "guess-1" not in answer.text
    assert session_cookie.COOKIE not in stranger.cookies


def test_forms_without_a_csrf_token_or_from_another_site_are_refused(
    client: httpx.Client, gateway: Gateway, visit: Visit, stranger: httpx.Client
) -> None:
    bare = visit(gateway, client.cookies)
    assert bare.post("/dashboard/sign-out").status_code == 403
    assert bare.post("/dashboard/sign-out", data={"csrf": "0" * 64}).status_code == 403
    assert client.post("/dashboard/sign-out", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.post("/dashboard/sign-out", content=iter([b"a"])).status_code == 411
    assert stranger.post("/dashboard/sign-in", data={"token": ADMIN_TOKEN}).status_code == 403
    assert client.get("/dashboard/").status_code == 200


def test_signing_out_ends_the_session_everywhere(gateway: Gateway, visit: Visit) -> None:
    with sign_in(gateway) as client:
        again = visit(gateway, httpx.Cookies(client.cookies))
        assert again.get("/dashboard/").status_code == 200
        answer = client.post("/dashboard/sign-out")
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/sign-in")
    assert again.get("/dashboard/").status_code == 303


def test_cookie_that_is_not_a_session_leads_to_sign_in(gateway: Gateway, visit: Visit) -> None:
    with sign_in(gateway) as client:
        cookie = client.cookies[session_cookie.COOKIE]
    for value in (cookie[:-1], f"{cookie}x", cookie.swapcase(), "", "a.b.c", "é"):
        headers = {"cookie": f"{session_cookie.COOKIE}={value}".encode()}
        assert visit(gateway).get("/dashboard/", headers=headers).status_code == 303


def test_session_ends_after_its_lifetime(start_gateway: Callable[..., Gateway], visit: Visit) -> None:
    short = start_gateway(session_lifetime_s=0.001)
    stranger = visit(short)
    form = stranger.get("/dashboard/sign-in").text
    assert stranger.post("/dashboard/sign-in", data={"csrf": csrf_of(form), "token": ADMIN_TOKEN}).status_code == 303
    assert stranger.get("/dashboard/").status_code == 303


def test_signing_in_starts_another_session(gateway: Gateway, visit: Visit) -> None:
    with sign_in(gateway) as client:
        first = visit(gateway, httpx.Cookies(client.cookies))
        form = client.get("/dashboard/system").text
        data = {"csrf": csrf_of(form), "token": ADMIN_TOKEN}
        assert client.post("/dashboard/sign-in", data=data).status_code == 303
        assert first.get("/dashboard/").status_code == 303
        assert client.get("/dashboard/").status_code == 200


def test_new_admin_token_ends_the_sessions_of_the_old_one(start_gateway: Callable[..., Gateway], visit: Visit) -> None:
    first = start_gateway()
    with sign_in(first) as client:
        kept = client.cookies
    url = f"sqlite+aiosqlite:///{first.database}"
    same, other = (
        start_gateway(database_url=url),
        start_gateway(database_url=url, admin_token="another-admin-token"),
    )
    assert [visit(each, kept).get("/dashboard/").status_code for each in (same, other)] == [200, 303]


def test_sign_in_attempts_are_throttled(start_gateway: Callable[..., Gateway], visit: Visit) -> None:
    client = visit(start_gateway())
    csrf = csrf_of(client.get("/dashboard/sign-in").text)
    answers = [client.post("/dashboard/sign-in", data={"csrf": csrf, "token": "guess"}) for _ in range(11)]
    assert [answer.status_code for answer in answers] == [401] * session_cookie.ATTEMPTS_PER_MINUTE + [429]
    assert client.post("/dashboard/sign-in", data={"csrf": csrf, "token": ADMIN_TOKEN}).status_code == 429


def test_dashboard_can_be_disabled(start_gateway: Callable[..., Gateway], visit: Visit) -> None:
    stranger = visit(start_gateway(dashboard=False))
    assert stranger.get("/dashboard/").status_code == 404
    for path in ("/", "/docs", "/redoc"):
        assert stranger.get(path, headers={"accept": "text/html"}).status_code == 404


@pytest.mark.parametrize("accept", ["text/html,application/xhtml+xml,*/*;q=0.8", "*/*"])
def test_root_leads_to_the_dashboard(stranger: httpx.Client, accept: str) -> None:
    led = stranger.get("/", headers={"accept": accept})
    assert (led.status_code, led.headers["location"]) == (307, "/dashboard/")


def test_root_leads_a_browser_to_a_page(client: httpx.Client, stranger: httpx.Client) -> None:
    for path in ("/", "/dashboard", "/dashboard/"):
        assert "<title>Overview" in client.get(path, follow_redirects=True).text
        assert "<title>Sign in" in stranger.get(path, follow_redirects=True).text


def test_static_files_are_immutable_only_under_their_version(client: httpx.Client) -> None:
    answer = client.get(static_url("style.css"))
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    assert client.get("/dashboard/static/older/style.css").headers["cache-control"] == "no-store"
    assert client.get("/dashboard/static/older/none.css").status_code == 404


def test_unknown_page_is_an_error_page(client: httpx.Client) -> None:
    answer = client.get("/dashboard/nothing/here")
    assert answer.status_code == 404
    assert "Page not found." in answer.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
def test_unsupported_method_is_an_error_page(client: httpx.Client, method: str) -> None:
    token = {"x-csrf-token": csrf_of(client.get("/dashboard/keys").text), "content-length": "0"}
    answer = client.request(method, "/dashboard/requests", headers=token)
    assert answer.status_code == 405
    assert f"{method} is not allowed for this page." in answer.text


def test_theme_is_remembered(client: httpx.Client) -> None:
    answer = client.post("/dashboard/theme", data={"theme": "dark", "next": "/dashboard/keys"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/keys")
    assert 'data-theme="dark"' in client.get("/dashboard/keys").text
    client.post("/dashboard/theme", data={"theme": "<script>"})
    assert "data-theme=" not in client.get("/dashboard/keys").text


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        (DatabaseUnavailableError("unable to open sqlite file"), 503, "The database is unavailable."),
        (RuntimeError("a secret of ours"), 500, "Something went wrong. The gateway&#39;s log has the details."),
    ],
)
def test_errors_are_shown_on_a_page_without_details(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int, said: str
) -> None:
    async def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(session_cookie.Sessions, "find", fail)
    answer = client.get("/dashboard/system")
    assert answer.status_code == status
    assert said in answer.text
    assert str(fault) not in answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
