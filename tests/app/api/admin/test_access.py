"""Access to the admin API, and the format of errors there and elsewhere."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.db.database import Database, DatabaseUnavailableError
from app.db.schema import upgrade

pytestmark = pytest.mark.anyio


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """This doesn't depend on the kind of database."""
    upgrade(sqlite_url)
    return sqlite_url


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic the-admin-token", "the-admin-token"]
)
@pytest.mark.parametrize(
    "path", ["policies", "policies/templates", "events", "requests", "requests/export", "policies/x"]
)
async def test_nothing_is_shown_without_the_token(client: httpx.AsyncClient, header: str | None, path: str) -> None:
    del client.headers["Authorization"]
    headers = {} if header is None else {"Authorization": header}
    answer = await client.get(f"/admin/v1/{path}", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


async def test_authorization_scheme_is_case_insensitive(client: httpx.AsyncClient) -> None:
    answer = await client.get("/admin/v1/policies", headers={"Authorization": "bearer the-admin-token"})
    assert answer.status_code == 200


async def test_token_is_checked_before_the_body_is_read(client: httpx.AsyncClient) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"{"

    headers = {"Authorization": "Bearer wrong", "Content-Type": "application/json"}
    assert (await client.post("/admin/v1/policies", content=body(), headers=headers)).status_code == 401
    assert read == 0


async def test_oversized_body_is_rejected(client: httpx.AsyncClient) -> None:
    answer = await client.post("/admin/v1/policies", content=b" " * (1024 * 1024 + 1))
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


async def test_unexpected_error_reveals_no_details(client: httpx.AsyncClient) -> None:
    answer = await client.get("/admin/v1/broken")
    assert (answer.status_code, answer.json()["title"]) == (500, "Internal server error")
    assert answer.headers["content-type"] == "application/problem+json"
    elsewhere = await client.get("/v1/broken")
    assert (elsewhere.status_code, elsewhere.json()["error"]["type"]) == (500, "server_error")
    assert "secret" not in answer.text + elsewhere.text
    assert "Traceback" not in answer.text + elsewhere.text


async def test_errors_outside_the_admin_api_have_openai_format(client: httpx.AsyncClient) -> None:
    missing = await client.get("/v1/missing")
    assert missing.status_code == 404
    assert missing.json() == {
        "error": {"message": "Not Found", "type": "invalid_request_error", "param": None, "code": None}
    }
    bad = await client.get("/v1/numbers", params={"number": "x"})
    assert bad.status_code == 400
    assert bad.json()["error"]["param"] == "query.number"
    assert bad.json()["error"]["type"] == "invalid_request_error"


async def test_framework_errors_are_problem_json(client: httpx.AsyncClient) -> None:
    missing = await client.get("/admin/v1/missing")
    assert (missing.status_code, missing.json()["title"]) == (404, "Not Found")
    wrong = await client.delete("/admin/v1/policies")
    assert (wrong.status_code, wrong.json()["title"]) == (405, "Method Not Allowed")
    assert wrong.headers["allow"]


async def test_unavailable_database_is_reported(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Database) -> None:
        raise DatabaseUnavailableError("password of the server")

    monkeypatch.setattr(Database, "read", fail)
    for path in ("policies", "events", "events/export", "requests/x"):
        answer = await client.get(f"/admin/v1/{path}")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "password" not in answer.text
