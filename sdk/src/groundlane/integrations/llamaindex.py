"""LlamaIndex: retrieval policies as a node post-processor, and an evaluator of responses. Needs
``llama-index-core``."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from llama_index.core.base.response.schema import Response
from llama_index.core.bridge.pydantic import Field, PrivateAttr, SecretStr
from llama_index.core.evaluation import BaseEvaluator, EvaluationResult
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import NodeWithScore, QueryBundle

from groundlane._client import Groundlane
from groundlane.integrations._documents import document
from groundlane.integrations._guard import Guard, Verdict
from groundlane.integrations._retrieval import blocked_documents

__all__ = ["GroundednessEvaluator", "RetrievalPolicyPostprocessor", "documents_of"]


def documents_of(nodes: Iterable[NodeWithScore]) -> list[dict[str, Any]]:
    """What a retriever returned, as ``documents`` of the gateway. Nodes without a text are left out."""
    return [_document(node) for node in nodes if node.get_content()]


class RetrievalPolicyPostprocessor(BaseNodePostprocessor):
    """Has the retrieval policies of ``agent`` look at each node: at its relevance, source, collection and age.

    ``on_violation``: ``drop`` leaves out the nodes that a policy refuses, ``raise`` raises PolicyViolationError for the
    first. Either raises GroundlaneError where the gateway cannot be asked. ``base_url`` and ``api_key`` are the
    gateway's, or those of ``GROUNDLANE_BASE_URL`` and ``GROUNDLANE_API_KEY``.
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


class GroundednessEvaluator(BaseEvaluator):
    """``passing`` where nothing blocks the response and the gateway finds it grounded; ``score`` is the trust score,
    ``feedback`` says what was found of each claim that is not supported. Without a verdict of the gateway the result is
    ``invalid_result`` with its reason where ``on_error`` is ``open``, and GroundlaneError is raised otherwise.

    Arguments are those of ``groundlane.integrations.Guard``.
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
        """``response`` against ``contexts``."""
        if response is None or contexts is None:
            raise ValueError("response and contexts must be given")
        given = [document(text) for text in contexts if text]
        return _result(await self.guard.acheck(response, given), query, response, contexts)

    def evaluate_response(
        self, query: str | None = None, response: Response | None = None, **kwargs: Any
    ) -> EvaluationResult:
        """A response of a query engine against its own nodes, with their scores and metadata."""
        text, nodes = _parts(response)
        return _result(self.guard.check(text, documents_of(nodes)), query, text, [n.get_content() for n in nodes])

    async def aevaluate_response(
        self, query: str | None = None, response: Response | None = None, **kwargs: Any
    ) -> EvaluationResult:
        """See ``evaluate_response``."""
        text, nodes = _parts(response)
        verdict = await self.guard.acheck(text, documents_of(nodes))
        return _result(verdict, query, text, [node.get_content() for node in nodes])


def _document(node: NodeWithScore) -> dict[str, Any]:
    return document(node.get_content(), id=node.node_id, score=node.score, metadata=node.metadata)


def _parts(response: Response | None) -> tuple[str, Sequence[NodeWithScore]]:
    if response is None:
        raise ValueError("response must be given")
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
