"""Calls every path of a running gateway with valid and invalid requests, made from its OpenAPI description. Fails on
internal errors, on statuses, headers and bodies that aren't described, and if a call works without the token.

    python -m tests.system.security.schema .venv/bin/schemathesis --max-examples 200

The first argument is the command of Schemathesis, which is not among the project's dependencies; the others are its own
options. The same calls are made in each run.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.auth.secrets import new_secret_key
from tests.support.apis import completions_api as text_harness
from tests.support.apis import messages_api as messages_harness
from tests.support.apis import responses_api as responses_harness
from tests.support.gateways.in_process_gateway import said, whole
from tests.support.gateways.json_server import QuietHandler, served
from tests.support.gateways.server_process import gateway

TOKEN = "admin-token-for-tests-only"
TEXT = "Permanent staff receive 25 days of annual leave."
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "ignored_auth", "use_after_free",
)  # fmt: skip
REPLIES: Mapping[str, tuple[Any, bytes]] = {
    "/v1/chat/completions": (whole(TEXT), said(TEXT)),
    "/v1/completions": (text_harness.whole(TEXT), said(TEXT)),
    "/v1/responses": (responses_harness.response(responses_harness.message(TEXT)), responses_harness.said(TEXT)),
    "/v1/messages": (
        messages_harness.whole(messages_harness.text(TEXT)),
        messages_harness.streamed(messages_harness.text(TEXT)),
    ),
}


class Upstream(QuietHandler):
    """Gives the same answer to every request, in the requested format."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.body())
        reply, stream = REPLIES[self.path.partition("?")[0]]
        if body.get("stream"):
            self.respond(200, stream, content_type="text/event-stream")
        else:
            self.respond_json(200, reply)


@contextmanager
def upstream() -> Iterator[str]:
    with served(Upstream) as url:
        yield url


def main(command: str, options: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder, upstream() as url:
        settings = {"admin_token": TOKEN, "secret_key": new_secret_key(), "store_text": "full"}
        with gateway(Path(folder), url, **settings) as process:
            call = [
                str(Path(shutil.which(command) or command).absolute()), "run", f"{process.url}/openapi.json",
                "--header", f"Authorization: Bearer {TOKEN}", "--checks", ",".join(CHECKS),
                "--generation-deterministic", "--seed", "1", "--no-color", "--request-timeout", "60",
                "--suppress-health-check", "all", "--warnings", "off", *options,
            ]  # fmt: skip
            code = subprocess.run(call, cwd=folder, check=False).returncode
            crashes = [line for line in process.lines if "unexpected_error" in line or "Traceback" in line]
    for line in crashes[:20]:
        print(line)
    return code or bool(crashes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
