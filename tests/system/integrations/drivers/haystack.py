"""A Haystack pipeline with the checker behind its generator."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from groundlane import GroundlaneError
from groundlane.integrations.haystack import GroundednessChecker, documents_of
from haystack import Document, Pipeline, component
from haystack.components.builders import AnswerBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy


@component
class Says:
    """A generator with scripted replies."""

    def __init__(self, replies: list[str], as_messages: bool) -> None:
        self.replies, self.as_messages = replies, as_messages

    @component.output_types(replies=list[ChatMessage])
    def run(self, query: str) -> dict[str, Any]:
        return {"replies": [ChatMessage.from_assistant(reply, meta={"model": "says"}) for reply in self.replies]}


def ask(replies: list[str], texts: Sequence[str], how: str = "run", **options: Any) -> dict[str, Any]:
    """Run the pipeline; ``how`` is ``run``, ``async``, or ``again`` to reload it from its YAML."""
    store = InMemoryDocumentStore()
    store.write_documents([Document(content=text, meta={"source": "a.md"}) for text in texts])
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store))
    pipeline.add_component("generator", Says(replies, True))
    pipeline.add_component("checker", GroundednessChecker(**options))
    pipeline.add_component("answers", AnswerBuilder())
    pipeline.connect("retriever.documents", "checker.documents")
    pipeline.connect("generator.replies", "checker.replies")
    pipeline.connect("checker.verified_replies", "answers.replies")
    yaml = pipeline.dumps()
    if how == "again":
        pipeline = Pipeline.loads(yaml, allowed_modules=["groundlane.integrations.haystack", __name__])
        kept = pipeline.get_component("retriever").document_store
        kept.write_documents(store.filter_documents(), DuplicatePolicy.OVERWRITE)
    query = " ".join(texts)
    data = {"retriever": {"query": query}, "generator": {"query": query}, "answers": {"query": query}}
    try:
        if how == "async":
            found = asyncio.run(pipeline.run_async(data, include_outputs_from={"checker"}))
        else:
            found = pipeline.run(data, include_outputs_from={"checker"})
    except Exception as error:
        cause = error if isinstance(error, GroundlaneError) else error.__cause__
        return {"error": type(cause).__name__}
    checked = found["checker"]
    return {
        **{name: value for name, value in checked.items() if name != "verified_replies"},
        "replies": [reply.text for reply in checked["verified_replies"]],
        "meta": [reply.meta.get("model") for reply in checked["verified_replies"]],
        "answers": [answer.data for answer in found["answers"]["answers"]],
        "yaml": [yaml, pipeline.dumps()],
    }


def plain(base_url: str, replies: list[str], texts: Sequence[str], **options: Any) -> dict[str, Any]:
    """The component alone, with strings as replies."""
    documents = [Document(content=text) for text in texts]
    return dict(GroundednessChecker(base_url=base_url, **options).run(replies=replies, documents=documents))


def answered(query: str | None, how: str, texts: Sequence[str], **options: Any) -> list[Any]:
    """Check the answer "Yes." to ``query``: with the component (``run``, ``run_async``) or in a ``pipeline``."""
    checker, documents = GroundednessChecker(**options), [Document(content=text) for text in texts]
    given: dict[str, Any] = {"replies": ["Yes."], "documents": documents}
    given |= {} if query is None else {"query": query}
    if how == "pipeline":
        pipeline = Pipeline()
        pipeline.add_component("checker", checker)
        found = pipeline.run(given)["checker"]
    else:
        found = asyncio.run(checker.run_async(**given)) if how == "run_async" else checker.run(**given)
    return [*found["verified_replies"], found["verdict"]]


def message(text: str, texts: Sequence[str], **options: Any) -> dict[str, Any]:
    """Check a message that repeats its text in each of its fields. Return all of the message that is delivered."""
    said = ChatMessage.from_assistant(
        text,
        meta={"model": "says", "index": 0, "logprobs": {"content": [{"token": text}]}},
        tool_calls=[ToolCall(tool_name="send", arguments={"text": text})],
        reasoning=text,
    )
    documents = [Document(content=each) for each in texts]
    (found,) = GroundednessChecker(**options).run(replies=[said], documents=documents)["verified_replies"]
    return {"same": found == said, **found.to_dict()}


def logged(how: str, **given: Any) -> dict[str, Any]:
    """The same as ``plain``, with run or run_async, and the logged warnings."""
    base_url, replies, texts = given.pop("base_url"), given.pop("replies"), given.pop("texts")
    checker = GroundednessChecker(base_url=base_url, **given)
    documents = [Document(content=text) for text in texts]
    told = _Messages()
    logger = logging.getLogger("groundlane.integrations.haystack")
    logger.addHandler(told)
    try:
        if how == "run_async":
            found = asyncio.run(checker.run_async(replies=replies, documents=documents))
        else:
            found = checker.run(replies=replies, documents=documents)
    finally:
        logger.removeHandler(told)
    return {**found, "logged": told.messages}


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def bad(**options: Any) -> str:
    """The error for an invalid argument."""
    try:
        GroundednessChecker(**options)
    except ValueError as error:
        return str(error)
    return ""


def documents() -> list[dict[str, Any]]:
    return documents_of(
        [
            Document(id="7", content="Known.", meta={"file_path": "a.md", "age_days": 3}, score=0.5),
            Document(id="8", content="BM25.", score=7.25),
            Document(id="9", content=None),
        ]
    )
