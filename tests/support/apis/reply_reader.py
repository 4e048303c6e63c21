"""Reads the gateway's stream as a client does: strictly by the grammar of server-sent events, then by OpenAI's
format."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import httpx2
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk

_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(slots=True, kw_only=True)
class Frame:
    """A block of lines that ended with a blank line."""

    data: bytes | None
    event: str | None = None
    comments: int = 0
    fields: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Reading:
    """A stream, as read by the client."""

    raw: bytes
    frames: list[Frame]
    terminated: bool
    """Whether the last frame ended with its blank line."""

    @property
    def payloads(self) -> list[Any]:
        """The JSON of every data frame except [DONE]."""
        return [json.loads(frame.data) for frame in self.frames if frame.data and frame.data != b"[DONE]"]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The chunks that aren't errors."""
        return [payload for payload in self.payloads if "error" not in payload]

    @property
    def errors(self) -> list[Any]:
        return [payload["error"] for payload in self.payloads if "error" in payload]

    @property
    def done(self) -> int:
        return sum(frame.data == b"[DONE]" for frame in self.frames)

    @property
    def ends_with_done(self) -> bool:
        data = [frame.data for frame in self.frames if frame.data is not None]
        return bool(data) and data[-1] == b"[DONE]"

    @property
    def empty_frames(self) -> int:
        """The number of frames that an SDK may read as an event without content: empty data, or fields without data."""
        return sum(frame.data == b"" or (frame.data is None and bool(frame.fields)) for frame in self.frames)

    def choices(self, index: int = 0) -> list[dict[str, Any]]:
        """Return the pieces of one choice, in order."""
        return [choice for chunk in self.chunks for choice in chunk["choices"] if choice["index"] == index]

    def deltas(self, index: int = 0) -> list[dict[str, Any]]:
        return [choice.get("delta") or {} for choice in self.choices(index)]

    def text(self, index: int = 0, name: str = "content") -> str:
        """Return the joined text of one choice. Typed parts count only if they are of type text."""
        return "".join(_text(delta.get(name)) for delta in self.deltas(index))

    def finishes(self, index: int = 0) -> list[str]:
        """Return every finish reason that ends one choice (an empty string doesn't)."""
        return [choice["finish_reason"] for choice in self.choices(index) if choice.get("finish_reason")]

    @property
    def usages(self) -> list[dict[str, Any]]:
        """The chunks that carry usage."""
        return [chunk for chunk in self.chunks if chunk.get("usage")]

    def tokens(self, index: int = 0) -> list[str]:
        """Return the tokens of all log-probabilities of one choice."""
        return [
            entry["token"]
            for choice in self.choices(index)
            for entry in (choice.get("logprobs") or {}).get("content") or ()
        ]

    def tool_calls(self, index: int = 0) -> list[dict[str, Any]]:
        return [call for delta in self.deltas(index) for call in delta.get("tool_calls") or ()]

    @property
    def grounding(self) -> dict[str, Any]:
        """The summary: the last ``grounding`` object in the stream that has a verdict."""
        found = [chunk["grounding"] for chunk in self.chunks if "verdict" in chunk.get("grounding", {})]
        if not found:
            raise AssertionError(f"no grounding summary in {self.raw[-2000:]!r}")
        summary: dict[str, Any] = found[-1]
        return summary

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The claims that arrived with the text, without those in the summary."""
        return [
            claim
            for chunk in self.chunks
            if "verdict" not in chunk.get("grounding", {})
            for claim in chunk.get("grounding", {}).get("claims", ())
        ]

    def annotations(self, index: int = 0) -> list[dict[str, Any]]:
        return [entry for delta in self.deltas(index) for entry in delta.get("annotations") or ()]

    def where(self, text: str, index: int = 0) -> int:
        """Return the number of the first chunk after which ``text`` is complete."""
        joined = ""
        for number, chunk in enumerate(self.chunks):
            for choice in chunk["choices"]:
                if choice["index"] == index:
                    joined += _text((choice.get("delta") or {}).get("content"))
            if text in joined:
                return number
        raise AssertionError(f"{text!r} is not in {joined!r}")


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if part.get("type") == "text")
    return content or ""


def read_stream(raw: bytes) -> Reading:
    """Parse the bytes of a stream according to the grammar. Reject unfinished frames."""
    frames: list[Frame] = []
    block: list[bytes] = []
    lines = _LINE_END.split(raw)
    for line in lines[:-1]:
        if line:
            block.append(line)
        elif block:
            frames.append(_frame(block))
            block = []
    rest = [*block, lines[-1]] if lines[-1] else block
    terminated = not rest or all(line.startswith(b":") for line in rest)
    if not terminated:
        frames.append(_frame(rest))
    return Reading(raw=raw, frames=frames, terminated=terminated)


def _frame(lines: list[bytes]) -> Frame:
    frame = Frame(data=None)
    data: list[bytes] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not name and colon:
            frame.comments += 1
            continue
        value = value.removeprefix(b" ")
        frame.fields.append(name.decode())
        if name == b"data":
            data.append(value)
        elif name == b"event":
            frame.event = value.decode()
    if "data" in frame.fields:
        frame.data = b"\n".join(data)
    return frame


def read_with_sdk(raw: bytes) -> list[ChatCompletionChunk]:
    """Read the same bytes with the official SDK. Raises the SDK's exceptions."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=raw)

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer)) as http_client,
        OpenAI(api_key="sk-test", base_url="http://gateway.test/v1", http_client=http_client, max_retries=0) as client,
    ):
        stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Q"}], stream=True)
        return list(stream)
