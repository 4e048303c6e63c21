"""The modes in which a stream case is run, and functions to run it."""

from typing import Any

from tests.support.apis.stream_cases import StreamCase
from tests.support.gateways.http_client import Call
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply

MODES = ("pass", "hold", "live", "final")
"""``pass`` has no documents and no policy. The other modes have documents, and a grounding policy that only observes
and has that ``stream_mode``."""

GOVERNED = MODES[1:]

OBSERVE: dict[str, Any] = {"min_citations": 0, "contradiction_action": "flag"}
WITHHOLD: dict[str, Any] = {"min_citations": 0, "contradiction_action": "block", "unverifiable_action": "strip"}

ANY_DOCUMENT = "A document that the judge of these tests knows by heart."


def reply_of(case: StreamCase, **changes: Any) -> Reply:
    """Return the upstream's writes in the case."""
    fields: dict[str, Any] = {"status": case.status, "headers": case.headers, "chunks": case.chunks, **changes}
    return Reply(**fields)


def documents_of(case: StreamCase) -> list[dict[str, Any]]:
    return [
        {"id": f"d{number}", "text": text, "source": f"source-{number}.md", "relevance_score": 0.9, "age_days": 1}
        for number, text in enumerate(case.documents or (ANY_DOCUMENT,), start=1)
    ]


def body_of(gateway: Gateway, case: StreamCase, mode: str, rules: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the case's request in ``mode``. ``rules`` replace the rules that only observe."""
    if mode == "pass":
        return case.request
    agent = gateway.agent(grounding={**(OBSERVE if rules is None else rules), "stream_mode": mode})
    return {**case.request, "documents": documents_of(case), "grounding": {"agent": agent}}


def play(gateway: Gateway, case: StreamCase, mode: str, rules: dict[str, Any] | None = None, **changes: Any) -> Call:
    """Script the upstream with the case and send its request."""
    gateway.upstream.script(reply_of(case, **changes))
    return gateway.call(body_of(gateway, case, mode, rules))
