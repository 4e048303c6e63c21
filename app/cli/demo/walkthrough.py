"""Four requests that show what the gateway does. They are sent over HTTP, just as a client would send them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from app.cli.demo.content import Content, Scene
from app.cli.demo.upstream import ScriptedUpstream
from app.cli.terminal import Screen

_SPACE = re.compile(r"\s+")


class WalkthroughError(Exception):
    """The gateway's response was unexpected."""


@dataclass(slots=True, kw_only=True)
class SceneResult:
    """The reply to a scene's request."""

    status: int
    text: str = ""
    finish_reason: str | None = None
    grounding: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] = field(default_factory=dict)
    upstream_called: bool = False

    @property
    def claims(self) -> list[Mapping[str, Any]]:
        """All claims in the reply, including those in withheld sentences."""
        return list(self.grounding.get("claims", ()))


class Walkthrough:
    """Sends the scenes to ``base_url`` and shows each reply next to the answer from ``upstream``. Writes each request
    body to ``folder``, so that the printed curl commands work."""

    def __init__(
        self,
        *,
        base_url: str,
        admin_token: str,
        content: Content,
        upstream: ScriptedUpstream,
        folder: Path,
        screen: Screen,
    ) -> None:
        self._base_url = base_url
        self._content = content
        self._upstream = upstream
        self._folder = folder
        self._screen = screen
        self._admin = {"authorization": f"Bearer {admin_token}"}

    def run(self) -> dict[str, SceneResult]:
        """Create the demo's policies and run every scene. Raises WalkthroughError or httpx.HTTPError."""
        with httpx.Client(base_url=self._base_url, timeout=60.0) as client:
            self._create_policies(client)
            return {
                scene.key: self._play(client, number, scene)
                for number, scene in enumerate(self._content.scenes, start=1)
            }

    def _create_policies(self, client: httpx.Client) -> None:
        listed = client.get("/admin/v1/policies", params={"limit": 200}, headers=self._admin)
        _expect(listed, 200)
        known = {policy["name"] for policy in listed.json()["items"]}
        for policy in self._content.policies:
            if policy.name not in known:
                body = policy.model_dump(mode="json")
                _expect(client.post("/admin/v1/policies", json=body, headers=self._admin), 201)

    def _play(self, client: httpx.Client, number: int, scene: Scene) -> SceneResult:
        screen = self._screen
        body = self._content.request(scene)
        screen.title(f"{number}  {scene.title}")
        screen.paragraph(scene.shows)
        screen.line()
        screen.field("asked", scene.question)
        for document in body["documents"]:
            screen.field("given", f'{document["source"]} ({document["age_days"]} days old): "{document["text"]}"')
        screen.field("script", self._upstream.answer(body["messages"]))
        screen.line()
        calls = self._upstream.calls
        result = self._stream(client, body) if scene.stream else self._post(client, body)
        result.upstream_called = self._upstream.calls > calls
        self._show_end(result)
        file = self._folder / f"{scene.key}.json"
        file.write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2) + b"\n")
        screen.command(f"curl -sN {self._base_url}/v1/chat/completions -H 'content-type: application/json' -d @{file}")
        return result

    def _post(self, client: httpx.Client, body: dict[str, Any]) -> SceneResult:
        response = client.post("/v1/chat/completions", json=body)
        reply = response.json()
        if response.is_error:
            return SceneResult(status=response.status_code, error=reply["error"])
        (choice,) = reply["choices"]
        result = SceneResult(
            status=response.status_code,
            text=choice["message"]["content"],
            finish_reason=choice["finish_reason"],
            grounding=reply.get("grounding", {}),
        )
        self._screen.field("reply", result.text)
        for claim in result.claims:
            self._screen.claim(claim)
        return result

    def _stream(self, client: httpx.Client, body: dict[str, Any]) -> SceneResult:
        """Show each sentence as it arrives, with its verdict."""
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            result = SceneResult(status=response.status_code)
            if response.is_error:
                response.read()
                result.error = response.json()["error"]
                return result
            pending = ""
            for chunk in _chunks(response):
                grounding = chunk.get("grounding") or {}
                for choice in chunk["choices"]:
                    pending += choice["delta"].get("content") or ""
                    result.finish_reason = choice.get("finish_reason") or result.finish_reason
                if "verdict" in grounding:
                    result.grounding = grounding
                elif grounding:
                    result.text += self._show_sentence(pending)
                    pending = ""
                    for claim in grounding.get("claims", ()):
                        self._screen.claim(claim)
            result.text += self._show_sentence(pending)
        for claim in result.claims:
            if not claim.get("delivered", True):
                self._screen.field("withheld", "(sentence not delivered)")
                self._screen.claim(claim)
        return result

    def _show_sentence(self, text: str) -> str:
        if text.strip():
            self._screen.field("reply", _SPACE.sub(" ", text.strip()))
        return text

    def _show_end(self, result: SceneResult) -> None:
        if result.error:
            self._screen.verdict("block", f"HTTP {result.status} {result.error.get('code')}")
            self._screen.field("reason", str(result.error.get("message")))
            self._screen.field("upstream", "called" if result.upstream_called else "not called, no tokens used")
            return
        grounding = result.grounding
        action = str(grounding.get("action"))
        trust = grounding.get("trust_score")
        parts = [action, str(grounding.get("verdict")), str(grounding.get("summary"))]
        if isinstance(trust, int | float):
            parts.append(f"trust {trust:.0%}")
        self._screen.verdict(action, f"HTTP {result.status} · " + " · ".join(parts))
        for decision in grounding.get("decisions", ()):
            if decision.get("action") != "allow":
                self._screen.field("reason", str(decision.get("reason")))


def _chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
            yield orjson.loads(data)


def _expect(response: httpx.Response, status: int) -> None:
    if response.status_code != status:
        path = response.request.url.path
        raise WalkthroughError(
            f"{response.request.method} {path} returned HTTP {response.status_code}: {response.text}"
        )
