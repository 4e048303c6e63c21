"""A simulation of given requests."""

from dataclasses import replace

import pytest

from app.config import UpstreamSpec
from app.policy_simulation.live_requests import LiveRequest, simulate_live
from policies.policy_selection import PolicyEngine
from policies.types import Scope
from tests.support.gateways.in_process_gateway import DOCUMENTS, FALSE, bench, policy, said

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("model", "changed"), [("fast", ["block"]), ("slow", [])])
async def test_model_scope_matches_the_names_at_the_upstreams(model: str, changed: list[str]) -> None:
    upstream = UpstreamSpec(name="main", base_url="http://main.test/v1", alias={"fast": "real-1"})
    at = await bench(said(""), upstreams=[upstream])
    strict = replace(policy(contradiction_action="block", min_citations=0), scope=Scope(models=("real-*",)))
    body = {"model": model, "messages": [{"role": "user", "content": "How much leave?"}], "documents": DOCUMENTS}
    tally = await simulate_live(at.gateway, PolicyEngine([]), strict, [LiveRequest(body=body, reply=FALSE)], show=1)
    assert [item.after.action for item in tally.items] == changed
    assert at.forwarded == []
