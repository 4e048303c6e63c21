"""A LangChain chain that ends in the checker, and the chat model that calls the gateway."""

import asyncio
from collections.abc import Sequence
from typing import Any

from groundlane import GroundlaneError
from groundlane.integrations import UngroundedError
from groundlane.integrations.langchain import GroundednessChecker, documents_of
from groundlane.integrations.langchain_openai import ChatGroundlane
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

PROMPT = ChatPromptTemplate.from_template("{context}\n\n{input}")


def chain(answer: str, texts: Sequence[str], *, as_message: bool, **options: Any) -> Runnable[Any, dict[str, Any]]:
    """Retrieval, a model that streams ``answer`` letter by letter, and the checker."""
    retriever = RunnableLambda(lambda _: [Document(page_content=text, metadata={"source": "a.md"}) for text in texts])
    model: Runnable[Any, Any] = PROMPT | FakeListChatModel(responses=[answer])
    if not as_message:
        model = model | StrOutputParser()
    steps = RunnablePassthrough.assign(context=retriever).assign(answer=model)
    return steps | GroundednessChecker(**options)


def ask(mode: str, **given: Any) -> dict[str, Any]:
    """``invoke``, ``ainvoke``, ``stream`` or ``astream`` the chain, and return the result."""
    given.setdefault("as_message", False)
    asked = {"input": "What does it cost?"}
    try:
        made = chain(**given)
        if mode == "invoke":
            pieces: list[Any] = [made.invoke(asked)]
        elif mode == "ainvoke":
            pieces = [asyncio.run(made.ainvoke(asked))]
        elif mode == "stream":
            pieces = list(made.stream(asked))
        else:
            pieces = asyncio.run(_all(made, asked))
    except UngroundedError as error:
        return {"ungrounded": str(error), "verdict": error.verdict.name}
    except GroundlaneError as error:
        return {"error": type(error).__name__, "message": str(error)}
    answers = [piece["answer"] for piece in pieces if "answer" in piece]
    verdict = pieces[-1]["grounding"]
    return {
        "answers": [answer if isinstance(answer, str) else answer.text for answer in answers],
        "messages": all(not isinstance(answer, str) for answer in answers),
        "keys": sorted({key for piece in pieces for key in piece}),
        "verdict": verdict.name,
        "blocked": verdict.blocked,
        "sources": sorted({c.best_source.document_id for c in verdict.result.claims} if verdict.result else ()),
    }


def message(text: str, texts: Sequence[str], as_chunk: bool, **options: Any) -> dict[str, Any]:
    """Check a message that repeats its text in each of its fields. Return all of the message that is delivered."""
    kind = AIMessageChunk if as_chunk else AIMessage
    said = kind(
        content=[{"type": "text", "text": text}, {"type": "reasoning", "reasoning": text}],
        id="message-1",
        additional_kwargs={"reasoning_content": text, "refusal": text},
        response_metadata={"model_name": "says", "logprobs": {"content": [{"token": text}]}},
        tool_calls=[{"name": "send", "args": {"text": text}, "id": "call-1"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )
    found = GroundednessChecker(**options).invoke({"answer": said, "context": list(texts)})
    return {"same": found["answer"] == said, "kind": type(found["answer"]).__name__, **found["answer"].model_dump()}


def answered(question: Any, mode: str, texts: Sequence[str], **options: Any) -> list[Any]:
    """Check the answer "Yes." to ``question``: a string, a message (``{"content": ...}``), or pieces. Return what
    is delivered, and the verdict."""
    parts = question if isinstance(question, list) else [question]
    asked = [HumanMessage(content=part["content"]) if isinstance(part, dict) else part for part in parts]
    given = [{"input": part} for part in asked] + [{"context": list(texts)}, {"answer": "Yes."}]
    checker = GroundednessChecker(replacement="Blocked.", **options)
    merged = {"input": asked[0], "context": list(texts), "answer": "Yes."}

    async def asynchronously() -> list[Any]:
        async def each() -> Any:
            for piece in given:
                yield piece

        return [piece async for piece in checker.atransform(each())]

    if mode == "invoke":
        found = [checker.invoke(merged)]
    elif mode == "ainvoke":
        found = [asyncio.run(checker.ainvoke(merged))]
    else:
        found = list(checker.transform(iter(given))) if mode == "stream" else asyncio.run(asynchronously())
    return ["".join(piece["answer"] for piece in found if "answer" in piece), found[-1]["grounding"].name]


def pieces(answers: Sequence[str], arguments: str, texts: Sequence[str], mode: str, **options: Any) -> list[Any]:
    """Stream ``answers``, after reasoning and before a tool call. Return what is delivered, piece by piece."""
    call = {"name": "send", "args": arguments, "id": "call-1", "index": 0}
    said = [
        AIMessageChunk(content="", additional_kwargs={"reasoning_content": arguments}),
        *(AIMessageChunk(content=text) for text in answers),
        AIMessageChunk(content="", tool_call_chunks=[call]),
    ]
    given = [{"context": list(texts)}, *({"answer": piece} for piece in said)]
    checker = GroundednessChecker(**options)

    async def asynchronously() -> list[Any]:
        async def each() -> Any:
            for piece in given:
                yield piece

        return [piece async for piece in checker.atransform(each())]

    found = asyncio.run(asynchronously()) if mode == "astream" else list(checker.transform(iter(given)))
    return [piece["answer"].model_dump() for piece in found if "answer" in piece]


async def _all(made: Runnable[Any, Any], asked: Any) -> list[Any]:
    return [piece async for piece in made.astream(asked)]


def documents() -> list[dict[str, Any]]:
    """Documents as retrievers return them."""
    return documents_of(
        [
            Document(
                id="7",
                page_content="Known.",
                metadata={"source": "a.md", "relevance_score": 0.5, "updated_at": "2024-05-01", "page": object()},
            ),
            Document(
                page_content="A distance.", metadata={"score": -3.2, "age_days": "old", "creation_date": "9.9.24"}
            ),
            Document(page_content=""),
            "Plain.",
        ]
    )


def chat(base_url: str, stream: bool, texts: Sequence[str], agent: str) -> dict[str, Any]:
    """Send a question to the gateway with the chat model."""
    grounded = ChatGroundlane(model="test-model-1", base_url=base_url).with_documents(texts, agent=agent)
    if not stream:
        message = grounded.invoke("What does it cost?")
    else:
        message = AIMessageChunk(content="")
        for piece in grounded.stream("What does it cost?"):
            message += piece
    found = message.response_metadata
    return {"text": message.text, "finish": found["finish_reason"], "verdict": found["grounding"]["verdict"]}
