"""The playground's form: reads and validates it, and converts it to a run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.datastructures import FormData

from app.dashboard.playground.examples import EXAMPLES, FormDocument
from app.dashboard.playground.playground_runner import AGENT, PlaygroundRun
from app.dashboard.trace.reply_pieces import Storage, storage_of
from app.policy_admin.policy_document import StoredPolicy
from app.policy_admin.policy_rows import as_policy
from policies.policy_selection import PolicyEngine
from policies.types import Scope

IN_FORCE = "in-force"
_PASTED_MODEL = "pasted"
_MOST_DOCUMENTS = 200
_LONGEST_WORD = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundForm:
    """The form's content. ``policy`` is a policy id, IN_FORCE or empty. If ``ask`` is set, the upstream answers the
    question. Otherwise the pasted answer is judged."""

    ask: bool = False
    question: str = ""
    answer: str = ""
    model: str = ""
    agent: str = AGENT
    policy: str = ""
    documents: Sequence[FormDocument] = field(default_factory=tuple)

    @property
    def filled_documents(self) -> list[FormDocument]:
        """Return the documents that have text."""
        return [document for document in self.documents if document.text.strip()]


def read_form(form: FormData) -> PlaygroundForm:
    """Read the submitted form."""
    columns = [[_text(value) for value in form.getlist(name)] for name in ("doc_name", "doc_text", "doc_relevance")]
    ages = [_text(value) for value in form.getlist("doc_age")]
    size = min(_MOST_DOCUMENTS, max(map(len, (*columns, ages))))
    names, texts, relevances, ages = (column + [""] * (size - len(column)) for column in (*columns, ages))
    return PlaygroundForm(
        ask=_text(form.get("mode")) == "question",
        question=_text(form.get("question")),
        answer=_text(form.get("answer")),
        model=_text(form.get("model")).strip()[:_LONGEST_WORD],
        agent=_text(form.get("agent")).strip()[:_LONGEST_WORD] or AGENT,
        policy=_text(form.get("policy")).strip(),
        documents=[
            FormDocument(
                name=names[place].strip(),
                text=texts[place],
                relevance=relevances[place].strip(),
                age=ages[place].strip(),
            )
            for place in range(size)
        ],
    )


def example_form(name: str) -> PlaygroundForm:
    """Build a form filled in with an example."""
    example = EXAMPLES.get(name) or next(iter(EXAMPLES.values()))
    return PlaygroundForm(question=example.question, answer=example.answer, documents=example.documents)


def form_from_trace(trace: Mapping[str, Any]) -> PlaygroundForm | None:
    """Build a form filled in with the documents and reply of a logged request. Return None if their text wasn't
    stored."""
    if storage_of(trace, Storage.NONE) is not Storage.FULL:
        return None
    said = "".join(sentence["claims"][0]["text"] or "" for sentence in trace["sentences"] if sentence["choice"] == 0)
    request = trace["request"]
    documents = [
        FormDocument(
            name=row["title"] or row["source"] or row["document_id"],
            text=row["text"] or "",
            relevance=_number(row["relevance_score"]),
            age=_number(row["age_days"]),
        )
        for row in trace["documents"]
    ]
    return PlaygroundForm(
        answer=said or request["reply"] or "",
        model=request["model"] or "",
        agent=request["agent"] or AGENT,
        documents=documents,
    )


def form_errors(form: PlaygroundForm) -> dict[str, str]:
    """Return error messages by field name."""
    errors: dict[str, str] = {}
    if not form.filled_documents:
        errors["documents"] = "Paste at least one document to judge the answer against."
    if form.ask and not form.question.strip():
        errors["question"] = "Enter a question for the upstream."
    if form.ask and not form.model:
        errors["model"] = "Enter the name of a model."
    if not form.ask and not form.answer.strip():
        errors["answer"] = "Paste an answer to judge."
    for place, document in enumerate(form.filled_documents):
        for name, value, most in (("relevance", document.relevance, 1.0), ("age", document.age, math.inf)):
            if value and not _fits(value, most):
                bounds = "a number from 0 to 1" if most == 1 else "a number of days, 0 or more"
                errors[f"{name}-{place}"] = f"Document {place + 1}: the {name} must be {bounds}."
    return errors


def playground_run(form: PlaygroundForm, policy: StoredPolicy | None) -> PlaygroundRun:
    """Build the run that the form describes. ``policy`` is the policy selected in the form. It is enforced regardless
    of its scope and mode. Raises RulesError if its rules are invalid."""
    engine: PolicyEngine | None = PolicyEngine(())
    if policy is not None:
        alone = replace(as_policy(policy), scope=Scope(), enabled=True, mode="enforce", canary_percent=100)
        engine = PolicyEngine((alone,))
    elif form.policy == IN_FORCE:
        engine = None
    return PlaygroundRun(
        documents=[_document(document, place) for place, document in enumerate(form.filled_documents)],
        answer=None if form.ask else form.answer,
        question=form.question,
        model=form.model if form.ask else form.model or _PASTED_MODEL,
        agent=form.agent,
        engine=engine,
    )


def _document(given: FormDocument, place: int) -> dict[str, Any]:
    document: dict[str, Any] = {"id": f"doc-{place + 1}", "text": given.text}
    if given.name:
        document |= {"title": given.name, "source": given.name}
    if given.relevance:
        document["relevance_score"] = float(given.relevance)
    if given.age:
        document["age_days"] = float(given.age)
    return document


def _fits(value: str, most: float) -> bool:
    try:
        number = float(value)
    except ValueError:
        return False
    return math.isfinite(number) and 0 <= number <= most


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _text(value: object) -> str:
    """Return a field's text with plain line breaks and without characters that UTF-8 can't encode."""
    text = value if isinstance(value, str) else ""
    return text.replace("\r\n", "\n").encode("utf-8", "replace").decode()
