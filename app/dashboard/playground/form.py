"""What the form of the playground holds, what is wrong with it, and what is to be rehearsed by it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.datastructures import FormData

from app.dashboard.playground.examples import EXAMPLES, GivenDocument
from app.dashboard.playground.playground_runner import AGENT, Rehearsed
from app.dashboard.trace.reply import Storage, storage_of
from app.policy_admin.document import StoredPolicy
from app.policy_admin.rows import as_policy
from policies.engine import PolicyEngine
from policies.types import Scope

IN_FORCE = "in-force"
_PASTED_MODEL = "pasted"
_MOST_DOCUMENTS = 200
_LONGEST_WORD = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundForm:
    """``policy`` is the id of one, IN_FORCE or nothing; ``ask``: the upstream is asked, the answer is not given."""

    ask: bool = False
    question: str = ""
    answer: str = ""
    model: str = ""
    agent: str = AGENT
    policy: str = ""
    documents: Sequence[GivenDocument] = field(default_factory=tuple)

    @property
    def given(self) -> list[GivenDocument]:
        """The documents that say something."""
        return [document for document in self.documents if document.text.strip()]


def read_form(form: FormData) -> PlaygroundForm:
    """The form as it was sent."""
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
            GivenDocument(
                name=names[place].strip(),
                text=texts[place],
                relevance=relevances[place].strip(),
                age=ages[place].strip(),
            )
            for place in range(size)
        ],
    )


def example_form(name: str) -> PlaygroundForm:
    """The form with an example in it."""
    example = EXAMPLES.get(name) or next(iter(EXAMPLES.values()))
    return PlaygroundForm(question=example.question, answer=example.answer, documents=example.documents)


def form_of(trace: Mapping[str, Any]) -> PlaygroundForm | None:
    """The form with what a logged request had: its documents, and all that the model said. None: its words were not
    kept."""
    if storage_of(trace, Storage.NONE) is not Storage.FULL:
        return None
    said = "".join(sentence["claims"][0]["text"] or "" for sentence in trace["sentences"] if sentence["choice"] == 0)
    request = trace["request"]
    documents = [
        GivenDocument(
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


def faults_of(form: PlaygroundForm) -> dict[str, str]:
    """What is wrong, by the name of the field."""
    faults: dict[str, str] = {}
    if not form.given:
        faults["documents"] = "Paste at least one document: without any there is nothing to judge by."
    if form.ask and not form.question.strip():
        faults["question"] = "Say what the upstream is to be asked."
    if form.ask and not form.model:
        faults["model"] = "Name a model of an upstream."
    if not form.ask and not form.answer.strip():
        faults["answer"] = "Paste an answer to be judged."
    for place, document in enumerate(form.given):
        for name, value, most in (("relevance", document.relevance, 1.0), ("age", document.age, math.inf)):
            if value and not _fits(value, most):
                bounds = "a number from 0 to 1" if most == 1 else "a number of days, 0 or more"
                faults[f"{name}-{place}"] = f"Document {place + 1}: the {name} must be {bounds}."
    return faults


def rehearsed(form: PlaygroundForm, policy: StoredPolicy | None) -> Rehearsed:
    """What to take through. ``policy`` is the one that the form names, which decides whatever it is for and whether or
    not it is in force. Raises RulesError where its rules are none."""
    engine: PolicyEngine | None = PolicyEngine(())
    if policy is not None:
        alone = replace(as_policy(policy), scope=Scope(), enabled=True, mode="enforce", canary_percent=100)
        engine = PolicyEngine((alone,))
    elif form.policy == IN_FORCE:
        engine = None
    return Rehearsed(
        documents=[_document(document, place) for place, document in enumerate(form.given)],
        answer=None if form.ask else form.answer,
        question=form.question,
        model=form.model if form.ask else form.model or _PASTED_MODEL,
        agent=form.agent,
        engine=engine,
    )


def _document(given: GivenDocument, place: int) -> dict[str, Any]:
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
    """A field as text that can be sent and stored, with the line ends that a model would write."""
    text = value if isinstance(value, str) else ""
    return text.replace("\r\n", "\n").encode("utf-8", "replace").decode()
