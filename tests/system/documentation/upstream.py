"""The model behind the documentation's gateway: the demo's, with three APIs and configurable answers."""

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.cli.demo.content import load_content
from app.cli.demo.upstream import ScriptedUpstream

_USAGE = {"input_tokens": 50, "output_tokens": 20}


class Upstream(ScriptedUpstream):
    """``said``: the answer to every request; None for the demo's answers."""

    def __init__(self) -> None:
        super().__init__(load_content().answers, delay_s=0)
        self.said: str | None = None
        self.app.routes.append(Route("/v1/responses", self._respond, methods=["POST"]))
        self.app.routes.append(Route("/v1/messages", self._message, methods=["POST"]))

    def answer(self, messages: Any) -> str:
        return super().answer(messages) if self.said is None else self.said

    async def _respond(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        text = self.answer([{"role": "user", "content": body["input"]}])
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        item = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
        whole = {"id": "resp_1", "object": "response", "created_at": 1790000000, "status": "completed"}
        options: dict[str, Any] = {
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "tools": [],
            "tool_choice": "auto",
        }
        return JSONResponse(
            {**whole, **options, "model": body["model"], "parallel_tool_calls": True, "output": [item], "usage": _USAGE}
        )

    async def _message(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        content = [{"type": "text", "text": self.answer(body["messages"])}]
        end = {"stop_reason": "end_turn", "stop_sequence": None, "usage": _USAGE}
        return JSONResponse(
            {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content, **end}
        )
