"""Forwarding documents: unchanged to an upstream that reads them, without those that a policy dropped."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.config import UpstreamSpec
from tests.support.gateways.in_process_gateway import DOCUMENTS, TRUE, bench, policy, whole

pytestmark = pytest.mark.anyio

READS = UpstreamSpec(name="reads", base_url="http://up.test/v1", accepts_documents=True, alias={"house": "vendor"})
STALE = [{**DOCUMENTS[0], "id": "old", "age_days": 999}]


async def forwarded(documents: Sequence[Any] | None, **fields: Any) -> dict[str, Any]:
    at = await bench(
        whole(TRUE), policy("retrieval", action_on_stale_source="drop", on_all_dropped="warn"), upstreams=[READS]
    )
    await at.unary(documents=documents, **fields)
    (request,) = at.forwarded
    return dict(json.loads(request.content))


async def test_documents_are_forwarded_as_given() -> None:
    given = ["a plain text", {"snippet": TRUE, "x": [1, None]}]
    body = await forwarded(given, model="house", seed=1)
    assert body["documents"] == given
    assert (body["model"], body["seed"]) == ("vendor", 1)
    assert "grounding" not in body


async def test_no_documents_are_made_up() -> None:
    assert "documents" not in await forwarded(None)


@pytest.mark.parametrize("documents", [DOCUMENTS, STALE, [*DOCUMENTS, *STALE]])
async def test_documents_are_not_forwarded_if_the_gateway_writes_the_prompt(documents: list[dict[str, Any]]) -> None:
    body = await forwarded(documents, grounding={"inject": "system"})
    assert "documents" not in body
