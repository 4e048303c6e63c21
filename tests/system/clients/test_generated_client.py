"""Clients that openapi-python-client and openapi-typescript generate from the gateway's description: they are complete,
and they work."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.support.apis.scripted_answers import answer
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway
from tests.system.clients import processes
from tests.system.clients.javascript import typescript

GENERATOR = os.environ.get("GROUNDLANE_TEST_GENERATOR", "")
TEXT = "Permanent staff receive 25 days of annual leave."
CALLS = """
import sys
from groundlane_client import AuthenticatedClient
from groundlane_client.api.chat import create_chat_completion
from groundlane_client.api.events import get_request, get_stats
from groundlane_client.api.policies import create_policy, list_policies
from groundlane_client.models import ChatCompletion, ChatRequest, PolicyDocument, Problem, Trace

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
policy = create_policy.sync(client=client, body=PolicyDocument.from_dict(
    {"name": "leave", "category": "grounding", "rules": {"min_citations": 0}}
))
assert [each.id for each in list_policies.sync(client=client).items] == [policy.id]
refused = create_policy.sync(client=client, body=PolicyDocument(name="leave", category="grounding"))
assert isinstance(refused, Problem) and refused.status == 409, refused
completion = create_chat_completion.sync(client=client, body=ChatRequest.from_dict({
    "model": "m", "messages": [{"role": "user", "content": "How much leave?"}], "documents": [sys.argv[3]],
}))
assert isinstance(completion, ChatCompletion)
assert (completion.grounding.verdict, completion.grounding.decisions[0].policy_id) == ("supported", policy.id)
print(completion.grounding.request_id)
assert get_stats.sync(client=client).totals.requests >= 0
"""


TYPESCRIPT_CALLS = """
import createClient from "openapi-fetch";
import type { components, paths } from "./gateway.js";

const [url, token, text] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${token}` } });
const rules = { min_citations: 0 };
const policy = await client.POST("/admin/v1/policies", { body: { name: "leave", category: "grounding", rules } });
if (!policy.data) throw new Error(JSON.stringify(policy.error));
const listed: components["schemas"]["PolicyPage"] | undefined = (await client.GET("/admin/v1/policies")).data;
if (listed?.items[0]?.id !== policy.data.id) throw new Error(JSON.stringify(listed));
const refused = await client.POST("/admin/v1/policies", { body: { name: "leave", category: "grounding" } });
if (refused.error?.status !== 409) throw new Error(JSON.stringify(refused.error));
const { data, error } = await client.POST("/v1/chat/completions", {
  body: { model: "m", messages: [{ role: "user", content: "How much leave?" }], documents: [text] },
});
if (typeof data !== "object") throw new Error(JSON.stringify(data ?? error));
if (data.grounding?.decisions?.[0]?.policy_id !== policy.data.id) throw new Error(JSON.stringify(data));
console.log(data.grounding.request_id);
"""


@pytest.mark.node
def test_generated_typescript_client_is_complete_and_makes_calls(tmp_path: Path) -> None:
    typescript.needs("openapi-typescript", "openapi-fetch", "typescript", "@types/node")
    gateway = Gateway(tmp_path).start()
    url = f"http://127.0.0.1:{gateway.port}"
    try:
        gateway.upstream.script(answer(TEXT, stream=False))
        folder = typescript.project(tmp_path / "client")
        # Not from its URL: the generator has a time limit for downloads, which a busy machine exceeds.
        (folder / "openapi.json").write_text(httpx.get(f"{url}/openapi.json").text, "utf-8")
        generator = processes.NODE_HOME / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
        # Otherwise, a request would have to contain every field that has a default.
        options = ["--default-non-nullable=false", "--output", "gateway.d.ts"]
        processes.run(["node", str(generator), "openapi.json", *options], cwd=folder)
        (folder / "calls.ts").write_text(TYPESCRIPT_CALLS, "utf-8")
        typescript.compile_strictly(folder, "calls.ts")
        said = processes.run(["node", "calls.js", url, ADMIN_TOKEN, TEXT], cwd=folder)
        assert gateway.trace(said.strip()).request["verdict"] == "supported"
    finally:
        gateway.close()


@pytest.mark.skipif(not GENERATOR, reason="set GROUNDLANE_TEST_GENERATOR to a Python with openapi-python-client")
def test_generated_python_client_is_complete_and_makes_calls(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path).start()
    url = f"http://127.0.0.1:{gateway.port}"
    try:
        gateway.upstream.script(answer(TEXT, stream=False))
        wanted = ["--url", f"{url}/openapi.json", "--output-path", "client", "--fail-on-warning"]
        generate = [GENERATOR, "-m", "openapi_python_client", "generate", *wanted]
        # The generator formats its output with the ruff that is installed beside it.
        path = os.pathsep.join((str(Path(GENERATOR).parent), os.environ.get("PATH", "")))
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(tmp_path / "client")}
        made = subprocess.run(generate, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
        subprocess.run([GENERATOR, "-m", "compileall", "-q", "client"], cwd=tmp_path, check=True)
        call = [GENERATOR, "-c", CALLS, url, ADMIN_TOKEN, TEXT]
        called = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert called.returncode == 0, called.stderr
        assert gateway.trace(called.stdout.strip()).request["verdict"] == "supported"
    finally:
        gateway.close()
