from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from app.api import admin
from app.api.error_responses import install_error_handlers
from app.auth import KeyStore
from app.auth.admin_token import AdminAuth
from app.auth.secrets import Vault, new_secret_key
from app.auth.token_throttle import WrongTokens
from app.db.database import Database
from app.events.storage.writer import EventWriter
from app.identity import Identity
from app.policy_admin.policy_store import PolicyStore
from judges.llm import PriceTable
from policies.policy_warnings import GatewayFacts

TOKEN = "the-admin-token"


async def at_once(_seconds: float) -> None:
    """Return at once instead of pausing."""


@pytest.fixture
async def resources(
    open_database: Callable[[], AbstractAsyncContextManager[Database]], tmp_path: Path
) -> AsyncIterator[SimpleNamespace]:
    """The resources that the admin API needs."""
    async with open_database() as database:
        store = PolicyStore(database)
        events = EventWriter(database, journal_path=tmp_path / "events", linger_s=0.001)
        await store.refresh()
        await events.start()
        auth = await AdminAuth.open(database, SecretStr(TOKEN))
        yield SimpleNamespace(
            database=database,
            policies=store,
            events=events,
            admin=auth,
            identity=Identity(database, auth, idle=timedelta(hours=1), lifetime=timedelta(hours=2)),
            wrong_tokens=WrongTokens(lambda: None, sleep=at_once),
            keys=KeyStore(database),
            prices=PriceTable(),
            vault=Vault(database, SecretStr(new_secret_key())),
            facts=GatewayFacts(
                serves=lambda model: model != "nobody-7b",
                llm_fault="no model is configured",
                llm_model_fault=lambda model: "no API key is configured for openai",
            ),
        )
        await events.aclose()


@pytest.fixture
def app(resources: SimpleNamespace) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        yield {"resources": resources}

    app = FastAPI(lifespan=lifespan)
    install_error_handlers(app)
    app.include_router(admin.router)

    @app.get("/v1/broken")
    @app.get("/admin/v1/broken")
    async def broken() -> None:
        raise RuntimeError("secret detail")

    @app.get("/v1/numbers")
    async def numbers(number: int) -> int:
        return number

    return app


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client that has the admin token."""
    async with app.router.lifespan_context(app) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await app(scope | {"state": dict(state or {})}, receive, send)

        transport = httpx.ASGITransport(with_state, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as client:
            yield client
