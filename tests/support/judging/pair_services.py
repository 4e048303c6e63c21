"""Servers that implement the documented protocols of the cloud checks and of OpenAI-compatible servers, either in
process or on a port."""

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx

from tests.support.judging.stub_models import opinion

Reply = httpx.Response | Exception | None


def supported(evidence: str, claim: str) -> bool:
    return opinion(evidence, claim) == "entailment"


@dataclass
class ServiceStandin:
    """Answers as documented. ``script`` replaces the next answers; None stands for the documented answer."""

    key: str = "the-key"
    script: list[Reply] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.handle)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.script.pop(0) if self.script else None
        if isinstance(reply, Exception):
            raise reply
        if reply is not None:
            return reply
        if not self.knows_key(request):
            return httpx.Response(401)
        return httpx.Response(200, json=self.answer(json.loads(request.content)))

    def knows_key(self, request: httpx.Request) -> bool:
        raise NotImplementedError

    def answer(self, body: Any) -> Any:
        raise NotImplementedError


class Vectara(ServiceStandin):
    def knows_key(self, request: httpx.Request) -> bool:
        return request.headers.get("x-api-key") == self.key and request.url.path == "/v2/evaluate_factual_consistency"

    def answer(self, body: Any) -> Any:
        good = supported(" ".join(body["source_texts"]), body["generated_text"])
        score = 0.93 if good else 0.06
        return {"score": score, "p_consistent": score, "p_inconsistent": 1 - score}


class Azure(ServiceStandin):
    def knows_key(self, request: httpx.Request) -> bool:
        right = request.url.path == "/contentsafety/text:detectGroundedness" and "api-version" in request.url.params
        return right and request.headers.get("ocp-apim-subscription-key") == self.key

    def answer(self, body: Any) -> Any:
        assert body.keys() == {"domain", "task", "text", "groundingSources", "reasoning"}
        if supported(" ".join(body["groundingSources"]), body["text"]):
            return {"ungroundedDetected": False, "ungroundedPercentage": 0, "ungroundedDetails": []}
        details = [{"text": body["text"], "offset": {"utf8": 0}, "length": {"utf8": len(body["text"])}}]
        return {"ungroundedDetected": True, "ungroundedPercentage": 1, "ungroundedDetails": details}


class Vertex(ServiceStandin):
    def knows_key(self, request: httpx.Request) -> bool:
        config = "/v1/projects/acme/locations/global/groundingConfigs/default_grounding_config:check"
        right = request.url.path == config and request.headers.get("x-goog-user-project") == "acme"
        return right and request.headers.get("authorization") == f"Bearer {self.key}"

    def answer(self, body: Any) -> Any:
        claim = body["answerCandidate"]
        facts = [fact["factText"] for fact in body["facts"]]
        cited = [place for place, fact in enumerate(facts) if supported(fact, claim)]
        score = 0.97 if cited else 0.03
        return {
            "supportScore": score,
            "citedChunks": [{"chunkText": facts[place], "source": str(place)} for place in cited],
            "claims": [
                {
                    "startPos": 0,
                    "endPos": len(claim.encode()),
                    "claimText": claim,
                    "groundingCheckRequired": True,
                    "score": score,
                    **({"citationIndices": list(range(len(cited)))} if cited else {}),
                }
            ],
        }


class Bedrock(ServiceStandin):
    def knows_key(self, request: httpx.Request) -> bool:
        given = request.headers.get("authorization", "")
        return given == f"Bearer {self.key}" or given.startswith(f"AWS4-HMAC-SHA256 Credential={self.key}/")

    def answer(self, body: Any) -> Any:
        texts = {block["text"]["qualifiers"][0]: block["text"]["text"] for block in body["content"]}
        score = 0.91 if supported(texts["grounding_source"], texts["guard_content"]) else 0.08
        filters = [
            {"type": "GROUNDING", "threshold": 0.7, "score": score, "action": "NONE" if score > 0.7 else "BLOCKED"},
            {"type": "RELEVANCE", "threshold": 0.5, "score": 0.2, "action": "BLOCKED"},
        ]
        return {
            "action": "GUARDRAIL_INTERVENED",
            "outputs": [{"text": "blocked"}],
            "usage": {"topicPolicyUnits": 0, "contentPolicyUnits": 0, "contextualGroundingPolicyUnits": 2},
            "assessments": [{"contextualGroundingPolicy": {"filters": filters}}],
        }


@dataclass
class Chat(ServiceStandin):
    """A chat completions server. ``read`` returns the evidence and the claim in a request, and ``write`` returns the
    tokens of the answer, each with its alternatives."""

    read: Callable[[Mapping[str, Any]], tuple[str, str]] = lambda body: _by_lines(body["messages"][-1]["content"])
    write: Callable[[bool], Sequence[Mapping[str, float]]] = lambda good: [
        {"Yes": 0.88, " yes": 0.04, "No": 0.05} if good else {"No": 0.9, "Yes": 0.07}
    ]
    logprobs: bool = True

    def knows_key(self, request: httpx.Request) -> bool:
        return request.url.path == "/v1/chat/completions"

    def answer(self, body: Any) -> Any:
        tokens = self.write(supported(*self.read(body)))
        content = [
            {
                "token": max(token, key=lambda text: token[text]),
                "logprob": math.log(max(token.values())),
                "top_logprobs": [{"token": text, "logprob": math.log(chance)} for text, chance in token.items()],
            }
            for token in tokens
        ]
        return {
            "object": "chat.completion",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "".join(one["token"] for one in content)},
                    "logprobs": {"content": content} if self.logprobs else None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 120, "completion_tokens": len(tokens), "total_tokens": 120 + len(tokens)},
        }


def granite_pair(body: Mapping[str, Any]) -> tuple[str, str]:
    """Parse a request as the model's chat template does."""
    config = body["chat_template_kwargs"]["guardian_config"]
    if "criteria_id" in config:
        assert config == {"criteria_id": "groundedness"}
        assert body["chat_template_kwargs"]["think"] is False
        (document,), (answer,) = body["documents"], body["messages"]
        return document["text"], answer["content"]
    assert config == {"risk_name": "groundedness"}
    context, answer = body["messages"]
    assert (context["role"], answer["role"]) == ("context", "assistant")
    return context["content"], answer["content"]


def granite_answer(good: bool) -> Sequence[Mapping[str, float]]:
    risk = {"no": 0.6, " no": 0.2, "yes": 0.1} if good else {"yes": 0.9, "no": 0.05}
    return [{"<score>": 0.99}, {" ": 0.9}, risk, {" </score>": 0.9}]


def lynx_pair(body: Mapping[str, Any]) -> tuple[str, str]:
    before, _, claim = body["messages"][-1]["content"].partition("\nANSWER: ")
    return before.partition("\nDOCUMENT: ")[2], claim


def lynx_answer(good: bool) -> Sequence[Mapping[str, float]]:
    words = ['{"', "RE", 'ASONING": ["The PASS mark"], "', "SCORE", '": "']
    word = [{"PASS": 0.9}] if good else [{"F": 0.75}, {"AIL": 0.99}]
    return [*({text: 0.99} for text in words), *word, {'"}': 0.99}]


@contextmanager
def serving(standin: ServiceStandin) -> Iterator[str]:
    """Serve ``standin`` on a loopback port, and yield its base URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            url = f"http://{self.headers['host']}{self.path}"
            request = httpx.Request("POST", url, headers=list(self.headers.items()), content=content)
            response = asyncio.run(standin.handle(request))
            with suppress(ConnectionError):  # The gateway may have stopped waiting.
                self.send_response(response.status_code)
                for name, value in {**response.headers, "content-length": str(len(response.content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(response.content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _by_lines(text: str) -> tuple[str, str]:
    document, _, claim = text.partition("\nClaim: ")
    return document.removeprefix("Document: "), claim
