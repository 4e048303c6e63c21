"""A model on loopback with scripted answers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways.json_server import QuietHandler, served
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import ScriptedUpstream


class Llm:
    """``answer`` returns the model's text for the prompts, or None for an error; ``prompts`` are those received."""

    def __init__(self, answer: Callable[[str], str | None]) -> None:
        self.answer = answer
        self.prompts: list[str] = []

    def reply(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        prompt = "\n".join(message["content"] for message in body["messages"])
        self.prompts.append(prompt)
        said = self.answer(prompt)
        if said is None:
            return 500, {"error": {"message": "down", "type": "server_error"}}
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 500, "completion_tokens": 10, "total_tokens": 510}
        return 200, {
            "id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage,
        }  # fmt: skip


@contextmanager
def serving(llm: Llm) -> Iterator[str]:
    """Serve ``llm``; the URL for its clients."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.respond_json(*llm.reply(json.loads(self.body())))

    with served(Handler) as url:
        yield f"{url}/v1"


@contextmanager
def gateway_with(llm: Llm, folder: Path, **settings: Any) -> Iterator[Gateway]:
    """A gateway whose LLM judge is ``llm``, as the upstream ``referee``; other models go to the scripted upstream."""
    upstream = ScriptedUpstream().start()
    with serving(llm) as url, pytest.MonkeyPatch.context() as patch:
        file = folder / "groundlane.toml"
        file.write_text(
            f'[[upstreams]]\nname = "main"\nbase_url = "{upstream.base_url}"\nmodels = ["m"]\n'
            f'[[upstreams]]\nname = "referee"\nbase_url = "{url}"\nmodels = ["none"]\napi_key_env = "REFEREE_KEY"\n'
        )
        patch.setenv("REFEREE_KEY", "sk-referee")
        gateway = Gateway(folder, config=str(file), llm_judge_model="referee/gpt-4o-mini", **settings).start()
        gateway.upstream.close()
        gateway.upstream = upstream
        try:
            yield gateway
        finally:
            gateway.close()
