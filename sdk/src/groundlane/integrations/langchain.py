"""LangChain: the last step of a chain, which checks the answer against the retrieved documents. Needs
``langchain-core``.

    chain = RunnablePassthrough.assign(context=...).assign(answer=...) | GroundednessChecker()

For a chat model that calls the gateway, see ``groundlane.integrations.langchain_openai``.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.utils import AddableDict

from groundlane.integrations._documents import document
from groundlane.integrations._gate import Gated
from groundlane.integrations._guard import REPLACEMENT, Guard, UngroundedError, Verdict
from groundlane.integrations._question import last_question

__all__ = ["GroundednessChecker", "documents_of"]

_METADATA = ("model_name", "model_provider")
"""The response metadata that a blocked message keeps. Other metadata may contain its text."""


def documents_of(retrieved: Iterable[Document | str]) -> list[dict[str, Any]]:
    """Convert retrieved documents to ``documents`` for the gateway, with the source, age and relevance from their
    metadata. Empty documents are left out."""
    found = (Document(page_content=item) if isinstance(item, str) else item for item in retrieved)
    return [document(item.page_content, id=item.id, metadata=item.metadata) for item in found if item.page_content]


class GroundednessChecker(Runnable[Mapping[str, Any], dict[str, Any]]):
    """Takes a mapping with the answer and the documents, and adds ``grounding``, a ``Verdict``. A blocked answer is
    replaced by ``replacement``. If that is None, UngroundedError is raised.

    In a stream, each sentence of the answer is delivered once it is checked. The stream ends at a blocked sentence. If
    the guard decides at the end, the whole answer is delivered then. The answer is a string or a message. Only the text
    of a message is checked. A blocked message contains nothing but the replacement, its id, the name of its model and
    its token counts. The parts of a streamed message that have no text, such as tool calls, are delivered at the end if
    the answer isn't blocked. The documents are LangChain documents or strings. The user's question under
    ``question_key``, if there is one, is a string, a message or a list of messages. The other arguments are passed to
    ``groundlane.integrations.Guard``.
    """

    def __init__(
        self,
        *,
        answer_key: str = "answer",
        documents_key: str = "context",
        question_key: str = "input",
        output_key: str = "grounding",
        replacement: str | None = REPLACEMENT,
        guard: Guard | None = None,
        **options: Any,
    ) -> None:
        self.answer_key, self.documents_key, self.output_key = answer_key, documents_key, output_key
        self.question_key, self.replacement = question_key, replacement
        self.guard = guard or Guard(**options)

    def invoke(self, input: Mapping[str, Any], config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        def run(given: Mapping[str, Any]) -> dict[str, Any]:
            return self._passed(given, self.guard.check(*self._text(given), question=self._asked(given)))

        return self._call_with_config(run, input, config, **kwargs)

    async def ainvoke(
        self, input: Mapping[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        async def run(given: Mapping[str, Any]) -> dict[str, Any]:
            return self._passed(given, await self.guard.acheck(*self._text(given), question=self._asked(given)))

        return await self._acall_with_config(run, input, config, **kwargs)

    def stream(
        self, input: Mapping[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[dict[str, Any]]:
        yield from self.transform(iter([input]), config, **kwargs)

    async def astream(
        self, input: Mapping[str, Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[dict[str, Any]]:
        async def given() -> AsyncIterator[Mapping[str, Any]]:
            yield input

        async for piece in self.atransform(given(), config, **kwargs):
            yield piece

    def transform(
        self, input: Iterator[Mapping[str, Any]], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[dict[str, Any]]:
        yield from self._transform_stream_with_config(input, self._transform, config, **kwargs)

    async def atransform(
        self, input: AsyncIterator[Mapping[str, Any]], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[dict[str, Any]]:
        async for piece in self._atransform_stream_with_config(input, self._atransform, config, **kwargs):
            yield piece

    def _transform(self, pieces: Iterator[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        stream = _Stream(self)
        for piece in pieces:
            yield from stream.beside(piece)
            for delta in stream.deltas(piece):
                yield from stream.said(stream.gated.push(delta))
            if stream.gated.blocked:
                break
        yield from stream.said(stream.gated.finish())
        yield from stream.end()

    async def _atransform(self, pieces: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        stream = _Stream(self)
        async for piece in pieces:
            for other in stream.beside(piece):
                yield other
            for delta in stream.deltas(piece):
                for said in stream.said(await stream.gated.apush(delta)):
                    yield said
            if stream.gated.blocked:
                break
        for said in stream.said(await stream.gated.afinish()):
            yield said
        for last in stream.end():
            yield last

    def _text(self, given: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
        return _text(_field(given, self.answer_key)), documents_of(_field(given, self.documents_key))

    def _asked(self, given: Mapping[str, Any]) -> str | None:
        return _question(given.get(self.question_key))

    def _passed(self, given: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
        passed = {**given, self.output_key: verdict}
        if verdict.blocked:
            if self.replacement is None:
                raise UngroundedError(verdict)
            answer = given[self.answer_key]
            passed[self.answer_key] = (
                _blocked(answer, self.replacement) if isinstance(answer, BaseMessage) else self.replacement
            )
        return passed


class _Stream:
    """An input mapping that arrives in pieces."""

    def __init__(self, checker: GroundednessChecker) -> None:
        self._checker = checker
        self._documents: list[Document | str] | None = None
        self._asked: list[Any] = []
        self._as_message = False
        self._without_text: list[BaseMessage] = []
        self.gated = Gated(checker.guard, self._known, replacement=checker.replacement or "", question=self._question)

    def _known(self) -> Sequence[Mapping[str, Any]] | None:
        return None if self._documents is None else documents_of(self._documents)

    def _question(self) -> str | None:
        """Return the question. Its pieces are joined only if all of them are strings."""
        if all(isinstance(piece, str) for piece in self._asked):
            return "".join(self._asked)
        return _question(self._asked[0]) if len(self._asked) == 1 else None

    def beside(self, piece: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield everything in ``piece`` except the answer. If the answer is a message without text, such as a tool call
        or the token usage, it is held until the end."""
        documents = piece.get(self._checker.documents_key)
        if documents is not None:
            self._documents = [*(self._documents or ()), *documents]
        if (asked := piece.get(self._checker.question_key)) is not None:
            self._asked.append(asked)
        other = {name: value for name, value in piece.items() if name != self._checker.answer_key}
        answer = piece.get(self._checker.answer_key)
        if isinstance(answer, BaseMessage) and not _text(answer):
            self._without_text.append(answer)
        if other:
            yield AddableDict(other)

    def deltas(self, piece: Mapping[str, Any]) -> Iterator[str]:
        answer = piece.get(self._checker.answer_key)
        if answer is not None and not self.gated.blocked:
            self._as_message = self._as_message or isinstance(answer, BaseMessage)
            yield _text(answer)

    def said(self, text: str) -> Iterator[dict[str, Any]]:
        if text:
            yield AddableDict({self._checker.answer_key: AIMessageChunk(content=text) if self._as_message else text})

    def end(self) -> Iterator[dict[str, Any]]:
        verdict = self.gated.verdict or Verdict(blocked=False, reason="there was no answer")
        if verdict.blocked and self._checker.replacement is None:
            raise UngroundedError(verdict)
        if not verdict.blocked:
            yield from (AddableDict({self._checker.answer_key: message}) for message in self._without_text)
        yield AddableDict({self._checker.output_key: verdict})


def _blocked(answer: BaseMessage, replacement: str) -> AIMessage:
    """Build the message to deliver instead of ``answer``. It contains nothing that the model wrote."""
    kind = AIMessageChunk if isinstance(answer, AIMessageChunk) else AIMessage
    return kind(
        content=replacement,
        id=answer.id,
        response_metadata={
            name: answer.response_metadata[name] for name in _METADATA if name in answer.response_metadata
        },
        usage_metadata=answer.usage_metadata if isinstance(answer, AIMessage) else None,
    )


def _field(given: Mapping[str, Any], name: str) -> Any:
    try:
        return given[name]
    except (KeyError, TypeError):
        raise ValueError(
            f"GroundednessChecker needs a mapping with the answer and its documents, but {name!r} is missing"
        ) from None


def _question(asked: Any) -> str | None:
    """Return the user's question in a string, a message or a list of messages, or None if it isn't known."""
    if isinstance(asked, str):
        return asked
    turns = asked if isinstance(asked, list) else [asked]
    return last_question(
        [{"role": "user", "content": turn.content} if isinstance(turn, HumanMessage) else turn for turn in turns]
    )


def _text(answer: Any) -> str:
    if isinstance(answer, BaseMessage):
        return str(answer.text)
    if not isinstance(answer, str):
        raise TypeError(f"the answer must be a string or a message, not {type(answer).__name__}")
    return answer
