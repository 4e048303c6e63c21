"""The app as a whole: requests from browsers on other origins."""

from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from app.main import create_app
from app.settings import Settings

pytestmark = pytest.mark.anyio
ORIGIN = "https://app.example"


async def preflight(folder: Path, origins: str | None) -> httpx.Response:
    settings = Settings(
        _env_file=None,
        database_url=f"sqlite+aiosqlite:///{folder}/groundlane.db",
        admin_token=SecretStr("admin-token-for-tests-only"),
        judge="none",
        cors_origins=origins,
        upstream_base_url="http://127.0.0.1:9/v1",
    )
    app = create_app(settings)
    headers = {"origin": ORIGIN, "access-control-request-method": "POST"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client,
    ):
        return await client.options("/healthz", headers=headers)


async def test_other_origins_may_not_call_unless_listed(tmp_path: Path) -> None:
    assert "access-control-allow-origin" not in (await preflight(tmp_path, None)).headers
    assert "access-control-allow-origin" not in (await preflight(tmp_path, "https://other.example")).headers


async def test_listed_origin_may_call(tmp_path: Path) -> None:
    answer = await preflight(tmp_path, f"https://other.example, {ORIGIN}")
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
