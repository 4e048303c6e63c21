"""instructor: a Pydantic object from JSON, whole or growing during the stream."""

from typing import Any

import instructor
from instructor.core import IncompleteOutputException, InstructorRetryException
from openai import OpenAI
from pydantic import BaseModel

from tests.system.clients.scenario import MODEL, PROMPT, Question


class Plan(BaseModel):
    price: str


def ask_json(**question: Any) -> str:
    """The price in a JSON reply, or the name of the exception for a blocked one."""
    asked = Question(**question)
    with OpenAI(api_key="sk-client", base_url=asked.base_url, max_retries=0) as openai:
        client = instructor.from_openai(openai, mode=instructor.Mode.JSON)
        fields: dict[str, Any] = {
            "model": MODEL,
            "messages": [{"role": "user", "content": PROMPT}],
            "response_model": Plan,
            "max_retries": 0,
            "extra_body": asked.extension,
        }
        try:
            if asked.stream:
                return str(list(client.chat.completions.create_partial(**fields))[-1].price)
            return str(client.chat.completions.create(**fields).price)
        except (InstructorRetryException, IncompleteOutputException) as error:
            return type(error).__name__
