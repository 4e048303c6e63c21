"""Calls every operation of a running gateway with its example request.

``python -m tests.support.apis.api_calls`` writes the responses into the examples.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from app.api import openapi
from app.auth.secrets import new_secret_key
from app.db.database import Database
from app.identity import Role, Users
from app.identity.oidc import SignedInUser
from tests.support.apis import completions_api, messages_api, responses_api
from tests.support.apis.scripted_answers import answer
from tests.support.gateways.browser import sign_in
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway, eventually
from tests.support.gateways.mock_upstream import DEADLINE_S, json_reply

TEXT = "Permanent staff receive 25 days of annual leave."
_REPLIES = {
    "create_chat_completion": answer(TEXT, stream=False),
    "create_completion": json_reply(completions_api.whole(TEXT)),
    "create_response": json_reply(responses_api.response(responses_api.message(TEXT))),
    "create_message": json_reply(messages_api.whole(messages_api.text(TEXT))),
}
ORDER = (
    *("create_policy", "validate_policy", "get_policy", "replace_policy", "patch_policy", "list_versions"),
    *("roll_back_policy", "get_status", "list_policies", "list_templates", "get_schema"),
    *("create_chat_completion", "create_completion", "create_response", "create_message"),
    *("start_run", "record_retrieval", "record_grounding", "complete_run", "get_run", "check_grounding"),
    *("simulate_unsaved", "simulate_saved", "list_requests", "get_request", "list_events"),
    *("export_events", "export_requests", "export_claims", "create_mark", "list_marks", "get_quality"),
    *("get_stats", "get_calibration", "create_key", "list_keys", "get_key", "change_key", "revoke_key"),
    *("get_caller", "create_token", "list_tokens", "get_token", "revoke_token"),
    *("list_users", "assign_role", "list_sessions", "end_session"),
    *("create_budget", "list_budgets", "get_budget", "change_budget", "delete_budget"),
    *("put_secret", "list_secrets", "delete_secret", "list_upstreams", "list_audit", "delete_policy"),
    *("create_destination", "list_destinations", "replace_destination", "check_destination", "create_alert"),
    *("list_alerts", "get_alert", "replace_alert", "list_firings", "delete_alert", "delete_destination"),
    *("get_review", "put_label", "export_labels", "delete_label"),
    *("count_facets", "create_view", "list_views", "get_view", "change_view", "delete_view"),
    *("share_request", "list_shares", "revoke_share"),
    *("alive", "ready", "metrics"),
)
"""Operations in an order in which each one finds what it needs."""
_QUERIES = {"get_stats": {"bucket": "day", "by": "agent"}}
_IDS = {
    "create_policy": ("policy_id", "id"),
    "start_run": ("run_id", "run_id"),
    "create_key": ("key_id", "id"),
    "create_token": ("token_id", "id"),
    "create_budget": ("budget_id", "id"),
    "create_destination": ("destination_id", "id"),
    "create_alert": ("alert_id", "id"),
    "create_view": ("view_id", "id"),
    "share_request": ("share_id", "id"),
}


@dataclass
class ApiCalls:
    """Calls operations. ``schema`` is the gateway's OpenAPI description. ``ids`` has the values of path parameters."""

    gateway: Gateway
    schema: Mapping[str, Any]
    examples: Mapping[str, Any]
    ids: dict[str, str] = field(default_factory=lambda: {"name": "openai"})

    def operations(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield each operation with its method and path."""
        for path, methods in self.schema["paths"].items():
            for method, operation in methods.items():
                yield method, path, operation

    def all(self) -> dict[str, httpx.Response]:
        """Call the operations in ``ORDER``, then all others. Return the responses by operation."""
        named = {operation["operationId"]: (method, path) for method, path, operation in self.operations()}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{self.gateway.port}",
            headers={"authorization": f"Bearer {ADMIN_TOKEN}"},
            timeout=DEADLINE_S,
        ) as client:
            return {name: self._call(client, name, *named[name]) for name in (*ORDER, *(named.keys() - set(ORDER)))}

    def _call(self, client: httpx.Client, name: str, method: str, path: str) -> httpx.Response:
        if name in _REPLIES:
            self.gateway.upstream.script(_REPLIES[name])
        if name == "list_users":
            self.ids["user_id"] = add_user(self.gateway.database)
        if name == "list_sessions":
            with sign_in(self.gateway):
                self.ids["session_id"] = client.get(path).json()["items"][0]["id"]
        body = self.examples.get(name, {}).get("request")
        if name == "get_review":
            self.ids["seq"] = "0"
        if name == "create_mark":
            body = {**body, "request_id": self.ids["request_id"]}
        response = client.request(method, path.format(**self.ids), json=body, params=_QUERIES.get(name))
        assert response.is_success, f"{name}: {response.status_code}: {response.text}"
        if name in _IDS:
            variable, key = _IDS[name]
            self.ids[variable] = response.json()[key]
        if name == "create_chat_completion":
            self.ids["request_id"] = response.headers["x-groundlane-request-id"]
            self.gateway.trace(self.ids["request_id"])
        if name == "check_grounding":
            eventually(lambda: self.gateway.admin.get("/requests").json()["items"][4:] or None, "events in the log")
        return response


def add_user(database: Path) -> str:
    """Store a user, as if they had signed in with a provider. Return the id."""

    async def run() -> str:
        opened = Database(f"sqlite+aiosqlite:///{database}")
        who = SignedInUser(issuer="https://login.example.com", subject="1", name="anna@example.com", role=Role.EDITOR)
        try:
            return (await Users(opened).signed_in(who)).id
        finally:
            await opened.aclose()

    with ThreadPoolExecutor(1) as thread:  # The caller's thread may already have an event loop.
        return thread.submit(lambda: asyncio.run(run())).result()


def _brief(value: Any) -> Any:
    """Shorten ``value`` for use as an example: keep at most two items of a list and five lines of text, and remove
    anything specific to this machine."""
    match value:
        case list():
            return [_brief(each) for each in value[:2]]
        case dict():
            return {key: _OF_THE_MACHINE.get(key, _brief(each)) for key, each in value.items()}
        case str():
            return "".join(value.splitlines(keepends=True)[:5])
    return value


_OF_THE_MACHINE = {
    "host": "gateway-1",
    "pid": 1,
    "base_url": "https://api.openai.com/v1",
    "key": "gl-…",
    "token": "gla-…",
}
_SHORT_SCHEMA = {"type": "object", "properties": {"min_citations": {"type": "integer", "default": 1}}}


def main() -> None:
    path = Path(openapi.__file__).with_name("examples.json")
    examples = json.loads(path.read_text("utf-8"))
    with TemporaryDirectory() as folder:
        gateway = Gateway(Path(folder), secret_key=new_secret_key()).start()
        schema = httpx.get(f"http://127.0.0.1:{gateway.port}/openapi.json").json()
        replies = ApiCalls(gateway, schema, examples).all()
        gateway.close()
    for name, reply in replies.items():
        if reply.status_code != HTTPStatus.NO_CONTENT:
            is_json = reply.headers["content-type"] == "application/json"
            examples.setdefault(name, {})["reply"] = _brief(reply.json() if is_json else reply.text)
    examples["get_schema"]["reply"] = dict.fromkeys(("grounding", "retrieval"), _SHORT_SCHEMA)
    path.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
