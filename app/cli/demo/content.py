"""Loads the demo's content from ``content.toml``: documents, policies, scripted answers and scenes."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DemoDocument(_Part):
    id: str
    title: str
    source: str
    collection: str
    relevance_score: float
    age_days: int
    text: str
    url: str | None = None


class DemoPolicy(_Part):
    name: str
    category: str
    rules: Mapping[str, Any]
    scope: Mapping[str, Sequence[str]] = {}
    priority: int = 0


class ScriptedAnswer(_Part):
    question: str
    answer: str


class Scene(_Part):
    """One request of the walkthrough. ``shows`` explains what the request demonstrates."""

    key: str
    title: str
    shows: str
    agent: str
    question: str
    documents: tuple[str, ...]
    stream: bool


class Content(_Part):
    policies: tuple[DemoPolicy, ...]
    documents: tuple[DemoDocument, ...]
    answers: tuple[ScriptedAnswer, ...]
    scenes: tuple[Scene, ...]

    def request(self, scene: Scene) -> dict[str, Any]:
        """Build the body of the scene's ``POST /v1/chat/completions``."""
        by_id = {document.id: document for document in self.documents}
        return {
            "model": "scripted-1",
            "stream": scene.stream,
            "messages": [{"role": "user", "content": scene.question}],
            "documents": [by_id[id].model_dump(exclude_none=True) for id in scene.documents],
            "grounding": {"agent": scene.agent, "inject": "system"},
        }


def load_content() -> Content:
    return Content.model_validate(tomllib.loads(files("app.cli.demo").joinpath("content.toml").read_text("utf-8")))
