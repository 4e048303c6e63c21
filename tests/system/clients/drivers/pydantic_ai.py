"""pydantic-ai, which validates every reply with the strict models of the API: Chat Completions and Responses."""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.system.clients.scenario import MODEL, PROMPT, Question, Refusal, Seen


class Plan(BaseModel):
    price: str


def ask(question: Question) -> Seen:
    return _ask(question, OpenAIChatModel)


def ask_responses(question: Question) -> Seen:
    return _ask(question, OpenAIResponsesModel)


def use_tool(**question: Any) -> str:
    """The answer after a call of the tool ``look_up``."""
    return _with_tool(Question(**question), OpenAIChatModel)


def use_tool_in_responses(**question: Any) -> str:
    return _with_tool(Question(**question), OpenAIResponsesModel)


def ask_json(**question: Any) -> str:
    """The price in a JSON reply."""
    asked = Question(**question)
    agent = _agent(asked, OpenAIChatModel, output_type=NativeOutput(Plan), retries=0)
    return str(asyncio.run(_run(agent, stream=asked.stream))[0].price)


def _agent(question: Question, kind: Callable[..., Model], **options: Any) -> Agent[None, Any]:
    provider = OpenAIProvider(base_url=question.base_url, api_key="sk-client")
    model = kind(MODEL, provider=provider)
    return Agent(model, model_settings={"extra_body": question.extension}, **options)


async def _run(agent: Agent[None, Any], *, stream: bool) -> tuple[Any, Any]:
    """The output of a run, and the last reply of the model."""
    if not stream:
        result = await agent.run(PROMPT)
        return result.output, result.response
    async with agent.run_stream(PROMPT) as streamed:
        output = await streamed.get_output()
        return output, streamed.response


def _ask(question: Question, kind: Callable[..., Model]) -> Seen:
    try:
        output, response = asyncio.run(_run(_agent(question, kind), stream=question.stream))
    except ModelHTTPError as error:
        return Seen(refusal=Refusal.of(error.status_code, dict(error.body)), everything=str(error))
    return Seen(text=output, finish=response.finish_reason, everything=repr(response))


def _with_tool(question: Question, kind: Callable[..., Model]) -> str:
    agent = _agent(question, kind)

    @agent.tool_plain
    def look_up(a: int) -> str:
        return f"a is {a}"

    return str(asyncio.run(_run(agent, stream=question.stream))[0])
