"""LlamaIndex: a node postprocessor that applies retrieval policies, a checker for the responses of an engine (including
streams), and a response evaluator. Needs ``llama-index-core``."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, TypeVar

from llama_index.core.base.response.schema import AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.bridge.pydantic import Field, PrivateAttr, SecretStr
from llama_index.core.evaluation import BaseEvaluator, EvaluationResult
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import NodeWithScore, QueryBundle

from groundlane._client import Groundlane
from groundlane.integrations._documents import document
from groundlane.integrations._gate import Gated
from groundlane.integrations._guard import REPLACEMENT, Guard, UngroundedError, Verdict
from groundlane.integrations._retrieval import blocked_documents

__all__ = ["GroundednessChecker", "GroundednessEvaluator", "RetrievalPolicyPostprocessor", "documents_of"]

AnyResponse = TypeVar("AnyResponse", Response, StreamingResponse, AsyncStreamingResponse)


def documents_of(nodes: Iterable[NodeWithScore]) -> list[dict[str, Any]]:
    """Convert retrieved nodes to ``documents`` for the gateway. Nodes without text are left out."""
    return [_document(node) for node in nodes if node.get_content()]


class RetrievalPolicyPostprocessor(BaseNodePostprocessor):
    """Applies the retrieval policies of ``agent`` to the relevance, source, collection and age of each node.

    With ``on_violation="drop"``, nodes that violate a policy are removed. With ``"raise"``, the first violation raises
    PolicyViolationError. In either case, GroundlaneError is raised if the gateway is unreachable. ``base_url`` and
    ``api_key`` default to ``GROUNDLANE_BASE_URL`` and ``GROUNDLANE_API_KEY``.
    """

    agent: str
    on_violation: Literal["drop", "raise"] = "drop"
    base_url: str | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)
    _client: Groundlane = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        key = self.api_key.get_secret_value() if self.api_key is not None else None
        self._client = Groundlane(self.base_url, api_key=key)

    @classmethod
    def class_name(cls) -> str:
        return "RetrievalPolicyPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        refused = blocked_documents(self._client, self.agent, [_document(node) for node in nodes])
        if refused and self.on_violation == "raise":
            raise refused[min(refused)]
        return [node for index, node in enumerate(nodes) if index not in refused]


class GroundednessChecker:
    """Checks the response of an engine against its nodes. ``checker(engine.query(...))`` returns a response of the same
    type, with the ``Verdict`` in ``metadata["grounding"]``. The caller passes the user's question as ``query``, because
    a response doesn't contain it. A blocked text is replaced by ``replacement``. If that is None, UngroundedError is
    raised.

    A streaming response is delivered sentence by sentence, after each sentence is checked. If the guard decides at the
    end, the whole text is delivered then. The verdict is available at the end. The metadata of a blocked response is
    reduced to that of its nodes. The other arguments are passed to ``groundlane.integrations.Guard``.
    """

    def __init__(self, *, replacement: str | None = REPLACEMENT, guard: Guard | None = None, **options: Any) -> None:
        self.replacement = replacement
        self.guard = guard or Guard(**options)

    def __call__(self, response: AnyResponse, *, query: str | None = None) -> AnyResponse:
        """Check ``response``. Raises GroundlaneError if no verdict is available and ``on_error`` is ``closed``. With a
        stream, the error is raised while the stream is being read."""
        if isinstance(response, Response):
            return self._passed(response, self.guard.check(*_given(response), question=query))
        return self._streamed(response, query)

    async def acheck(self, response: AnyResponse, *, query: str | None = None) -> AnyResponse:
        """Like ``__call__``, for asynchronous code."""
        if isinstance(response, Response):
            return self._passed(response, await self.guard.acheck(*_given(response), question=query))
        return self._streamed(response, query)

    def _passed(self, response: Response, verdict: Verdict) -> Response:
        if verdict.blocked and self.replacement is None:
            raise UngroundedError(verdict)
        text = self.replacement if verdict.blocked else response.response
        known = _node_metadata(response) if verdict.blocked else response.metadata or {}
        return replace(response, response=text, metadata={**known, "grounding": verdict})

    def _streamed(self, response: StreamingResponse | AsyncStreamingResponse, query: str | None) -> Any:
        metadata = _node_metadata(response)
        known = documents_of(response.source_nodes)
        gated = Gated(self.guard, lambda: known, replacement=self.replacement or "", question=lambda: query)
        pieces = self._apieces if isinstance(response, AsyncStreamingResponse) else self._pieces
        return replace(response, response_gen=pieces(response, gated, metadata), response_txt=None, metadata=metadata)

    def _pieces(self, given: StreamingResponse, gated: Gated, metadata: dict[str, Any]) -> Iterator[str]:
        for piece in chain(_text_read(given), given.response_gen):
            if said := gated.push(piece):
                yield said
            if gated.blocked:
                break
        if said := gated.finish():
            yield said
        self._end(given, gated, metadata)

    async def _apieces(
        self, given: AsyncStreamingResponse, gated: Gated, metadata: dict[str, Any]
    ) -> AsyncIterator[str]:
        async for piece in _all_text(given):
            if said := await gated.apush(piece):
                yield said
            if gated.blocked:
                break
        if said := await gated.afinish():
            yield said
        self._end(given, gated, metadata)

    def _end(self, given: StreamingResponse | AsyncStreamingResponse, gated: Gated, metadata: dict[str, Any]) -> None:
        verdict = gated.verdict or Verdict(blocked=False, reason="there was no answer")
        metadata.update({} if verdict.blocked else given.metadata or {}, grounding=verdict)
        if verdict.blocked and self.replacement is None:
            raise UngroundedError(verdict)


class GroundednessEvaluator(BaseEvaluator):
    """Evaluates responses. ``passing`` is True if the response is grounded and not blocked. ``score`` is the trust
    score, and ``feedback`` explains each unsupported claim. If no verdict is available and ``on_error`` is ``open``,
    the result has ``invalid_result`` and the reason. With ``closed``, GroundlaneError is raised.

    The arguments are passed to ``groundlane.integrations.Guard``.
    """

    def __init__(self, *, guard: Guard | None = None, **options: Any) -> None:
        self.guard = guard or Guard(**options)

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        pass

    async def aevaluate(
        self,
        query: str | None = None,
        response: str | None = None,
        contexts: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Evaluate ``response``, which answers ``query``, against ``contexts``."""
        if response is None or contexts is None:
            raise ValueError("response and contexts are required")
        given = [document(text) for text in contexts if text]
        return _result(await self.guard.acheck(response, given, question=query), query, response, contexts)

    def evaluate_response(
        self, query: str | None = None, response: Response | None = None, **kwargs: Any
    ) -> EvaluationResult:
        """Evaluate the response of a query engine to ``query`` against its nodes, including their scores and
        metadata."""
        text, nodes = _parts(response)
        verdict = self.guard.check(text, documents_of(nodes), question=query)
        return _result(verdict, query, text, [node.get_content() for node in nodes])

    async def aevaluate_response(
        self, query: str | None = None, response: Response | None = None, **kwargs: Any
    ) -> EvaluationResult:
        """See ``evaluate_response``."""
        text, nodes = _parts(response)
        verdict = await self.guard.acheck(text, documents_of(nodes), question=query)
        return _result(verdict, query, text, [node.get_content() for node in nodes])


def _document(node: NodeWithScore) -> dict[str, Any]:
    return document(node.get_content(), id=node.node_id, score=node.score, metadata=node.metadata)


def _node_metadata(response: Response | StreamingResponse | AsyncStreamingResponse) -> dict[str, Any]:
    """Return the part of the metadata that describes the nodes. The rest may contain text of the model."""
    ids = {node.node_id for node in response.source_nodes}
    return {name: value for name, value in (response.metadata or {}).items() if name in ids}


def _text_read(response: StreamingResponse | AsyncStreamingResponse) -> list[str]:
    """Return the text that has already been read from the stream, which doesn't yield it again."""
    return [response.response_txt] if response.response_txt else []


async def _all_text(response: AsyncStreamingResponse) -> AsyncIterator[str]:
    for text in _text_read(response):
        yield text
    async for text in response.response_gen:
        yield text


def _given(response: Response) -> tuple[str, list[dict[str, Any]]]:
    return response.response or "", documents_of(response.source_nodes)


def _parts(response: Response | None) -> tuple[str, Sequence[NodeWithScore]]:
    if response is None:
        raise ValueError("response is required")
    return str(response), response.source_nodes


def _result(verdict: Verdict, query: str | None, response: str, contexts: Sequence[str]) -> EvaluationResult:
    unknown = verdict.name == "not_checked"
    result = verdict.result
    claims = result.claims if result is not None else ()
    found = [f"{claim.verdict}: {claim.text}" for claim in claims if claim.verdict != "supported"]
    return EvaluationResult(
        query=query,
        response=response,
        contexts=contexts,
        passing=None if unknown else verdict.is_trusted,
        score=result.trust_score if result is not None else None,
        feedback="\n".join([result.summary if result is not None else verdict.reason, *found]),
        invalid_result=unknown,
        invalid_reason=verdict.reason if unknown else None,
    )
