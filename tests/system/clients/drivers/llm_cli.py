"""``llm``, the command and library of Simon Willison."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from openai import BadRequestError

from tests.system.clients.drivers.openai_sdk import refused
from tests.system.clients.scenario import MODEL, PROMPT, Question, Seen


def ask(question: Question) -> Seen:
    response = _model(question).prompt(PROMPT, stream=question.stream)
    try:
        text = "".join(response)
    except BadRequestError as error:
        return refused(error)
    return Seen(text=text, everything=json.dumps(response.response_json, default=str))


def use_tool(**question: Any) -> str:
    """The answer after a call of the tool ``look_up``."""
    asked = Question(**question)

    def look_up(a: int) -> str:
        return f"a is {a}"

    return str(_model(asked).chain(PROMPT, tools=[look_up], stream=asked.stream).text())


def ask_json(**question: Any) -> str:
    """The price in a JSON reply."""
    asked = Question(**question)
    schema = {"type": "object", "properties": {"price": {"type": "string"}}, "required": ["price"]}
    return str(json.loads(_model(asked).prompt(PROMPT, schema=schema, stream=asked.stream).text())["price"])


def _model(question: Question) -> Any:
    """The library supports only its own request fields, so a model adds ours."""
    from llm.default_plugins.openai_models import Chat

    os.environ["LLM_USER_PATH"] = str(Path(tempfile.gettempdir()) / "llm-of-the-tests")

    class Governed(Chat):
        def build_kwargs(self, prompt: Any, stream: bool) -> dict[str, Any]:
            return {**super().build_kwargs(prompt, stream), "extra_body": question.extension}

    model = Governed(
        "governed", model_name=MODEL, api_base=question.base_url, supports_schema=True, supports_tools=True
    )
    model.key = "sk-client"
    return model
