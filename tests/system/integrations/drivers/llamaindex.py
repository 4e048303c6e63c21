"""A LlamaIndex query engine with the post-processor, and the evaluator of its responses."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from groundlane import GroundlaneError
from groundlane.integrations import UngroundedError
from groundlane.integrations.llamaindex import (
    GroundednessChecker,
    GroundednessEvaluator,
    RetrievalPolicyPostprocessor,
    documents_of,
)
from llama_index.core.base.response.schema import AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


class Returns(BaseRetriever):
    """A retriever with scripted results."""

    def __init__(self, nodes: list[NodeWithScore]) -> None:
        super().__init__()
        self._nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._nodes


def nodes(given: Sequence[Mapping[str, Any]]) -> list[NodeWithScore]:
    return [
        NodeWithScore(
            node=TextNode(id_=f"n{index}", text=item["text"], metadata=item.get("metadata", {})),
            score=item.get("score"),
        )
        for index, item in enumerate(given)
    ]


def retrieve(base_url: str, agent: str, given: Sequence[Mapping[str, Any]], **options: Any) -> dict[str, Any]:
    """The texts that reach the response of an engine with the post-processor."""
    processor = RetrievalPolicyPostprocessor(agent=agent, base_url=base_url, **options)
    engine = RetrieverQueryEngine.from_args(
        Returns(nodes(given)), llm=MockLLM(), node_postprocessors=[processor], response_mode="compact"
    )
    try:
        response = engine.query("What does it cost?")
    except GroundlaneError as error:
        return {"error": type(error).__name__, "message": str(error), "param": getattr(error, "param", None)}
    return {"texts": [node.get_content() for node in response.source_nodes]}


class Says(CustomLLM):
    """A model with scripted replies, which it streams letter by letter."""

    text: str

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        return CompletionResponse(text=self.text)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponseGen:
        for end in range(1, len(self.text) + 1):
            yield CompletionResponse(text=self.text[:end], delta=self.text[end - 1])


def checked(
    text: str, given: Sequence[Mapping[str, Any]], how: str, query: str | None = None, **options: Any
) -> dict[str, Any]:
    """The result of an engine whose model answers ``text``: ``query``, ``aquery``, ``stream``, ``astream``. The
    checker is given ``query``."""
    checker = GroundednessChecker(**options)
    engine = RetrieverQueryEngine.from_args(Returns(nodes(given)), llm=Says(text=text), streaming="stream" in how)

    async def ask() -> tuple[Any, list[str]]:
        response = await checker.acheck(await engine.aquery("What does it cost?"), query=query)
        if how == "aquery":
            return response, [str(response)]
        return response, [piece async for piece in response.async_response_gen()]

    try:
        if how in ("aquery", "astream"):
            response, pieces = asyncio.run(ask())
        else:
            response = checker(engine.query("What does it cost?"), query=query)
            pieces = [str(response)] if how == "query" else list(response.response_gen)
    except UngroundedError as error:
        return {"ungrounded": error.verdict.name}
    verdict = response.metadata["grounding"]
    return {
        "pieces": pieces,
        "kind": type(response).__name__,
        "verdict": verdict.name,
        "blocked": verdict.blocked,
        "sources": len(response.source_nodes),
    }


def described(text: str, given: Sequence[Mapping[str, Any]], how: str, **options: Any) -> dict[str, Any]:
    """Check a response whose metadata repeats its text, ``whole`` or as a stream that was ``read`` before or not.
    Return everything that is delivered."""
    checker = GroundednessChecker(**options)
    found = nodes(given)
    metadata = {"n0": found[0].metadata, "selector_result": text}
    if how == "whole":
        response: Any = Response(response=text, source_nodes=found, metadata=metadata)
    else:
        response = StreamingResponse(response_gen=iter([text]), source_nodes=found, metadata=metadata)
        if how == "read":
            str(response)
    checked = checker(response)
    before = sorted(checked.metadata)
    said = str(checked)
    checked.metadata.pop("grounding")
    return {"text": said, "before": before, "metadata": checked.metadata}


def delivered(begun: str, rest: Sequence[str], texts: Sequence[str], **options: Any) -> list[Any]:
    """Check an asynchronous stream of which ``begun`` was already read. Return the pieces that are delivered, and the
    rest that isn't read."""
    source = iter(rest)

    async def pieces() -> Any:
        for piece in source:
            yield piece

    async def read() -> list[str]:
        response = AsyncStreamingResponse(
            response_gen=pieces(), source_nodes=nodes([{"text": text} for text in texts]), response_txt=begun
        )
        checked = await GroundednessChecker(**options).acheck(response)
        return [piece async for piece in checked.async_response_gen()]

    return [asyncio.run(read()), list(source)]


def evaluate(
    base_url: str, text: str, given: Sequence[Mapping[str, Any]], how: str, query: str | None = "q", **options: Any
) -> dict[str, Any]:
    """Evaluate a response to ``query``, or text against contexts."""
    evaluator = GroundednessEvaluator(base_url=base_url, **options)
    response = Response(response=text, source_nodes=nodes(given))
    try:
        if how == "contexts":
            result = evaluator.evaluate(query=query, response=text, contexts=[item["text"] for item in given])
        elif how == "async":
            result = asyncio.run(evaluator.aevaluate_response(query=query, response=response))
        else:
            result = evaluator.evaluate_response(query=query, response=response)
    except GroundlaneError as error:
        return {"error": type(error).__name__}
    return dict(result.model_dump())


def documents() -> list[dict[str, Any]]:
    return documents_of(
        nodes(
            [
                {"text": "Known.", "score": 0.5, "metadata": {"file_name": "a.md", "last_modified_date": "2024-05-01"}},
                {"text": "A distance.", "score": 1.5},
            ]
        )
    )
