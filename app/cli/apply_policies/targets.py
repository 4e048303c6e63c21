"""The places where policies can be changed: the database, or a running gateway through its admin API."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import httpx

from app.cli.apply_policies.changes import ExistingPolicy
from app.errors import AdminError
from app.policy_admin.policy_document import PolicyDraft, parse_document, warnings_of
from app.policy_admin.policy_store import PolicyStore
from policies.policy_warnings import GatewayFacts, RuleWarning

_PAGE = 500
_FIELDS = tuple(field.name for field in fields(PolicyDraft))


class TargetError(Exception):
    """The gateway is unreachable or rejected the request. The message is one line."""


class StoreTarget:
    """The policies in the database. ``facts`` describes the gateways that use the database. Raises the errors of
    PolicyStore."""

    def __init__(self, store: PolicyStore, facts: GatewayFacts) -> None:
        self._store, self._facts = store, facts

    async def list(self) -> Sequence[ExistingPolicy]:
        found: list[ExistingPolicy] = []
        while True:
            after = found[-1].draft.name if found else None
            page = await self._store.list(after=after, limit=_PAGE)
            found.extend(ExistingPolicy(id=policy.id, version=policy.version, draft=policy.draft()) for policy in page)
            if len(page) < _PAGE:
                return found

    async def create(self, draft: PolicyDraft) -> None:
        await self._store.create(draft)

    async def replace(self, present: ExistingPolicy, draft: PolicyDraft) -> None:
        await self._store.replace(present.id, draft, expected=present.version)

    async def delete(self, present: ExistingPolicy) -> None:
        await self._store.delete(present.id, expected=present.version)

    async def warnings(self, draft: PolicyDraft) -> Sequence[RuleWarning]:
        return warnings_of(draft, self._facts)


class GatewayTarget:
    """The policies of a running gateway. ``client`` must have the base URL and admin token set. Raises TargetError."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def list(self) -> Sequence[ExistingPolicy]:
        found: list[ExistingPolicy] = []
        cursor: str | None = None
        while True:
            page = await self._ask("GET", "", params={"limit": _PAGE} | ({"cursor": cursor} if cursor else {}))
            if not (isinstance(page, dict) and "items" in page):
                raise self._stranger()
            found.extend(_present(item) for item in page["items"])
            if (cursor := page.get("next_cursor")) is None:
                return found

    async def create(self, draft: PolicyDraft) -> None:
        await self._ask("POST", "", json=asdict(draft))

    async def replace(self, present: ExistingPolicy, draft: PolicyDraft) -> None:
        await self._ask("PUT", f"/{present.id}", json=asdict(draft), headers=_seen(present))

    async def delete(self, present: ExistingPolicy) -> None:
        await self._ask("DELETE", f"/{present.id}", headers=_seen(present))

    async def warnings(self, draft: PolicyDraft) -> Sequence[RuleWarning]:
        """Ask the gateway for warnings about ``draft``. If the gateway is too old to support this, return no
        warnings."""
        answer = await self._ask("POST", "/validate", json=asdict(draft), missing={"warnings": []})
        try:
            return [RuleWarning(loc=tuple(one["loc"]), msg=one["msg"]) for one in answer["warnings"]]
        except (KeyError, TypeError):
            raise self._stranger() from None

    async def _ask(self, method: str, path: str, missing: Any = None, **options: Any) -> Any:
        """Send a request and return the response body. If the gateway doesn't know the path and ``missing`` is given,
        return ``missing``."""
        try:
            response = await self._client.request(method, f"/admin/v1/policies{path}", **options)
            if missing is not None and response.status_code in (404, 405):
                return missing
            body = response.json() if response.content else None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TargetError(f"{self._client.base_url}: {str(error) or type(error).__name__}") from None
        except ValueError:
            raise self._stranger() from None
        if response.is_success:
            return body
        detail = body.get("detail") if isinstance(body, dict) else None
        raise TargetError(f"{self._client.base_url}: {detail or f'HTTP status {response.status_code}'}")

    def _stranger(self) -> TargetError:
        return TargetError(f"{self._client.base_url}: not a Groundlane gateway")


def _present(item: Any) -> ExistingPolicy:
    try:
        draft = parse_document({name: item[name] for name in _FIELDS if name in item})
        return ExistingPolicy(id=item["id"], version=item["version"], draft=draft)
    except (AdminError, KeyError, TypeError) as error:
        raise TargetError(f"the gateway has a policy that this version of groundlane cannot read: {error}") from None


def _seen(present: ExistingPolicy) -> dict[str, str]:
    return {"If-Match": f'"{present.version}"'}
