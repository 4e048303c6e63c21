"""DSPy, which asks through LiteLLM."""

from typing import Any

import dspy
from litellm.exceptions import BadRequestError

from tests.system.clients.scenario import MODEL, PROMPT, Question, Refusal, Seen


def ask(question: Question) -> Seen:
    """Only whole replies: DSPy streams the fields of a program, not a reply."""
    model = _model(question)
    try:
        said = model(PROMPT)
    except dspy.utils.exceptions.LMInvalidRequestError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, BadRequestError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        return Seen(refusal=Refusal.of(cause.status_code, cause.body), everything=str(error))
    response = model.history[-1]["response"]
    text = said[0] if isinstance(said[0], str) else said[0]["text"]
    return Seen(text=text, finish=response.choices[0].finish_reason, everything=repr(response))


def ask_json(**question: Any) -> str:
    """The field ``price`` of a program that returns JSON."""
    with dspy.context(lm=_model(Question(**question)), adapter=dspy.JSONAdapter()):
        return str(dspy.Predict("question -> price: str")(question=PROMPT).price)


def _model(question: Question) -> dspy.LM:
    return dspy.LM(
        f"openai/{MODEL}",
        api_base=question.base_url,
        api_key="sk-client",
        cache=False,
        num_retries=0,
        extra_body=question.extension,
    )
