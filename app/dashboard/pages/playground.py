"""``/dashboard/playground``: a reply is taken through the real pipeline while somebody watches."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from app.api.admin.common import Word
from app.api.streaming_response import Stream
from app.dashboard.known_values import seen
from app.dashboard.page_security import DashboardRoute
from app.dashboard.playground.examples import EXAMPLES, GivenDocument
from app.dashboard.playground.form import (
    IN_FORCE,
    PlaygroundForm,
    example_form,
    faults_of,
    form_of,
    read_form,
    rehearsed,
)
from app.dashboard.playground.playground_runner import Heard, Instead, Left, Over, Rehearsed, Told, chunks_of, rehearse
from app.dashboard.templating import page, render
from app.dashboard.trace.claims import Reader
from app.dashboard.trace.page_data import trace_view
from app.dashboard.trace.text import shown
from app.dependencies import QueriesDep, ResourcesDep
from app.errors import GatewayError, InvalidRequestError, NotFoundError
from app.policy_admin.document import StoredPolicy
from app.policy_admin.store import PolicyStore
from app.resources import Resources
from app.settings import StoreText
from judges.types import LABELS_WORST_FIRST
from policies.base import RulesError

router = APIRouter(route_class=DashboardRoute)

_THRESHOLDS = (0.7, 0.7)
_UNPROCESSABLE = 422


@router.get("/playground")
async def show(
    request: Request,
    resources: ResourcesDep,
    queries: QueriesDep,
    example: Annotated[Word | None, Query()] = None,
    from_request: Annotated[Word | None, Query(alias="request")] = None,
) -> Response:
    """The form, with an example or what a logged request had."""
    form, notice = example_form(example or ""), None
    if from_request is not None:
        kept = form_of(await queries.trace(from_request))
        form = kept or form
        notice = (
            f"With the documents and the words of {from_request}."
            if kept
            else f"The words of {from_request} were not kept, so here is an example instead."
        )
    return await _page(request, resources, form, notice=notice)


@router.post("/playground")
async def run(request: Request, resources: ResourcesDep) -> Response:
    """The form again, with what came of it: for who has no script."""
    sent = await request.form()
    form = read_form(sent)
    if "add" in sent:
        grown = [*form.documents, GivenDocument()]
        return await _page(request, resources, PlaygroundForm(**{**_values(form), "documents": grown}))
    wanted, faults = await _wanted(resources, form)
    if wanted is None:
        return await _page(request, resources, form, faults=faults, status=_UNPROCESSABLE)
    over = Over(trace=None, error=None)
    async with aclosing(rehearse(resources, wanted)) as all_told:
        async for told in all_told:
            over = told if isinstance(told, Over) else over
    return await _page(request, resources, form, over=over)


@router.post("/playground/watch")
async def watch(request: Request, resources: ResourcesDep) -> Response:
    """What happens as it happens: a line of JSON for each step, with pieces of the page in it."""
    wanted, faults = await _wanted(resources, read_form(await request.form()))
    if wanted is None:
        return Response(orjson.dumps({"faults": faults}), status_code=_UNPROCESSABLE, media_type="application/json")
    lines = _lines(resources, wanted)
    return Stream(
        lines,
        [("content-type", "application/x-ndjson"), ("x-accel-buffering", "no")],
        status=200,
        aclose=lines.aclose,
        send_timeout_s=resources.settings.send_timeout_s,
    )


async def _wanted(resources: Resources, form: PlaygroundForm) -> tuple[Rehearsed | None, dict[str, str]]:
    """What the form asks for, or what is wrong with it."""
    faults = faults_of(form)
    if faults:
        return None, faults
    try:
        wanted = rehearsed(form, await _policy(resources.policies, form.policy))
        chunks_of(resources, wanted)
    except NotFoundError:
        return None, {"policy": "This policy is not there any more."}
    except RulesError as error:
        return None, {"policy": f"This version does not understand its rules: {error}"}
    except InvalidRequestError as error:
        return None, {"documents": error.message}
    return wanted, {}


async def _policy(store: PolicyStore, policy_id: str) -> StoredPolicy | None:
    return None if policy_id in ("", IN_FORCE) else await store.get(policy_id)


async def _lines(resources: Resources, wanted: Rehearsed) -> AsyncGenerator[bytes, None]:
    pieces = _Pieces(resources, wanted)
    try:
        async with aclosing(rehearse(resources, wanted)) as all_told:
            async for told in all_told:
                yield orjson.dumps(pieces.of(told)) + b"\n"
    except GatewayError as error:
        yield orjson.dumps({"kind": "over", "html": "", "error": error.message}) + b"\n"


class _Pieces:
    """Makes pieces of the page from what is told, sentence after sentence."""

    def __init__(self, resources: Resources, wanted: Rehearsed) -> None:
        self._documents = [
            {"position": place, "document_id": chunk.id, "title": chunk.title, "source": chunk.source}
            | {"text": chunk.text, "kept": True}
            for place, chunk in enumerate(chunks_of(resources, wanted))
        ]
        self._places = {row["document_id"]: row["position"] for row in reversed(self._documents)}
        self._reader = Reader(self._documents)
        self._sentences = 0

    def of(self, told: Told) -> dict[str, Any]:
        match told:
            case Heard(text=text):
                return {"kind": "heard", "text": text}
            case Left():
                return {"kind": "left", "html": self._left(told), "held": told.held}
            case Instead(text=text):
                return {"kind": "left", "html": render("playground_piece.html", instead=shown(text)), "held": ""}
            case Over():
                return {"kind": "over", "html": _result(told)}

    def _left(self, left: Left) -> str:
        given: dict[str, Any] = {"skipped": shown(left.skipped), "lead": left.text[: -len(left.text.lstrip())]}
        if not left.claims:
            return render("playground_piece.html", text=shown(left.text.strip()), **given)
        sentence = self._reader.sentence(self._row(left), self._sentences + 1)
        self._sentences += 1
        view = {"thresholds": _THRESHOLDS, "first": None}
        return render("playground_piece.html", sentence=sentence, text=shown(left.text.strip()), view=view, **given)

    def _row(self, left: Left) -> dict[str, Any]:
        """The sentence as a row of a trace."""
        labels = {claim["verdict"] for claim in left.claims}
        return {
            "choice": 0,
            "index": self._sentences,
            "label": next((label.value for label in LABELS_WORST_FIRST if label in labels), "not_a_claim"),
            "start": 0,
            "end": len(left.text.strip()),
            "delivered": True,
            "claims": [self._claim(claim, left.text) for claim in left.claims],
        }

    def _claim(self, claim: Mapping[str, Any], text: str) -> dict[str, Any]:
        source = claim["best_source"] or {}
        said = {"claim": {"text": claim["claim"] or ""}, "entailed": claim["score"], "escalated": claim["escalated"]}
        told = {"explanation": claim["explanation"], "correction": claim["correction"]}
        if claim["verdict"] == "contradicted":
            said["contradicted"] = claim["confidence"]
        return {
            "label": claim["verdict"],
            "score": claim["score"],
            "confidence": claim["confidence"],
            "document_index": self._places.get(source.get("document_id")),
            "evidence_start": (source.get("span") or {}).get("start", 0),
            "evidence_end": (source.get("span") or {}).get("end", 0),
            "text": text,
            "evidence": source.get("content"),
            "reason": claim.get("reason"),
            "extra": {"verdict": said | told},
        }


def _result(over: Over) -> str:
    view = None if over.trace is None else trace_view(over.trace, store_text=StoreText.FULL)
    return render("playground_result.html", view=view, error=over.error)


def _values(form: PlaygroundForm) -> dict[str, Any]:
    return {name: getattr(form, name) for name in PlaygroundForm.__dataclass_fields__}


async def _page(
    request: Request,
    resources: Resources,
    form: PlaygroundForm,
    *,
    faults: Mapping[str, str] | None = None,
    notice: str | None = None,
    over: Over | None = None,
    status: int = 200,
) -> Response:
    policies: Sequence[StoredPolicy] = await resources.policies.list(limit=1_000)
    return page(
        request,
        "playground.html",
        status=status,
        form=form,
        faults=faults or {},
        notice=notice,
        over=over,
        view=None if over is None or over.trace is None else trace_view(over.trace, store_text=StoreText.FULL),
        policies=policies,
        in_force=IN_FORCE,
        models=await seen(resources.database, "model"),
        agents=await seen(resources.database, "agent"),
        examples=EXAMPLES,
    )
