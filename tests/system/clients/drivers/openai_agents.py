"""The OpenAI Agents SDK, over Chat Completions and over Responses."""

import asyncio
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.exceptions import ModelBehaviorError
from openai import AsyncOpenAI, BadRequestError
from pydantic import BaseModel

from tests.system.clients.drivers.openai_sdk import refused
from tests.system.clients.scenario import MODEL, PROMPT, Question, Seen

set_tracing_disabled(True)


class Plan(BaseModel):
    price: str


@function_tool
def look_up(a: int) -> str:
    """Looks a up."""
    return f"a is {a}"


def ask(question: Question) -> Seen:
    return _ask(question, OpenAIChatCompletionsModel)


def ask_responses(question: Question) -> Seen:
    return _ask(question, OpenAIResponsesModel)


def use_tool(**question: Any) -> str:
    """The answer after a call of the tool ``look_up``."""
    return str(asyncio.run(_run(Question(**question), OpenAIChatCompletionsModel, tools=[look_up])).final_output)


def use_tool_in_responses(**question: Any) -> str:
    return str(asyncio.run(_run(Question(**question), OpenAIResponsesModel, tools=[look_up])).final_output)


def ask_json(**question: Any) -> str:
    """The price in a JSON reply."""
    result = asyncio.run(_run(Question(**question), OpenAIChatCompletionsModel, output_type=Plan))
    return str(result.final_output.price)


async def _run(question: Question, kind: Any, **options: Any) -> Any:
    async with AsyncOpenAI(api_key="sk-client", base_url=question.base_url, max_retries=0) as client:
        model = kind(model=MODEL, openai_client=client)
        settings = ModelSettings(extra_body=question.extension)
        agent = Agent(name="test", model=model, model_settings=settings, **options)
        if not question.stream:
            return await Runner.run(agent, PROMPT, max_turns=3)
        result = Runner.run_streamed(agent, PROMPT, max_turns=3)
        async for _ in result.stream_events():
            pass
        return result


def _ask(question: Question, kind: Any) -> Seen:
    try:
        result = asyncio.run(_run(question, kind))
    except BadRequestError as error:
        return refused(error)
    except ModelBehaviorError as error:  # raised for a blocked response
        return Seen(finish="content_filter" if "content_filter" in str(error) else None, everything=str(error))
    return Seen(text=result.final_output, everything=repr(result.raw_responses))
