"""A client of the runs API."""

from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.gateways.live_gateway import Gateway, eventually
from tests.support.gateways.mock_upstream import DEADLINE_S

Body = dict[str, Any]


class Run:
    """One run of an agent. Each call returns the body of the response; an unexpected status fails the test."""

    def __init__(self, gateway: Gateway, agent: str | None, **fields: Any) -> None:
        self._gateway = gateway
        self.agent = agent
        self.client = httpx.Client(base_url=gateway.base_url, timeout=DEADLINE_S)
        self.started = self.post("/runs", {"agent": agent, **fields}, status=201)
        self.id: str = self.started["run_id"]

    def post(self, path: str, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Body:
        response = self.client.post(path, json=body, headers=headers)
        if response.status_code != status:
            raise AssertionError(f"{response.status_code}: {response.text}")
        return dict(response.json())

    def tell(self, what: str, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Body:
        return self.post(f"/runs/{self.id}/{what}", body, status=status, headers=headers)

    def retrieved(self, **document: Any) -> Body:
        return self.tell("retrieval", document)

    def grounded(self, **report: Any) -> Body:
        return self.tell("grounding", report)

    def complete(self, result: Any = None) -> Body:
        return self.tell("complete", {"result": result})

    def view(self) -> Body:
        response = self.client.get(f"/runs/{self.id}")
        response.raise_for_status()
        return dict(response.json())

    def events(self, count: int, **filters: Any) -> list[Body]:
        """Return the run's decisions in the event log, oldest first, as soon as there are ``count``."""

        def look() -> list[Body] | None:
            response = self._gateway.admin.get("/events", params={"run_id": self.id, "limit": 500, **filters})
            response.raise_for_status()
            items: list[Body] = response.json()["items"]
            return items[::-1] if len(items) >= count else None

        return eventually(look, f"{count} decisions of the run")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()


def told(answer: Body) -> list[tuple[str, str, str, str | None]]:
    """Return the phase, action, reason and reason code of each decision in a response."""
    return [(d["phase"], d["action"], d["reason"], d["reason_code"]) for d in answer["decisions"]]


def blocked(answer: Body) -> tuple[str, str | None, Body]:
    """Return the reason, reason code and metadata of the blocking decision. Fails if there is none."""
    if answer["blocked_by"] is None or answer["action"] != "block":
        raise AssertionError(f"not blocked: {answer}")
    decision = answer["blocked_by"]
    if decision not in answer["decisions"]:
        raise AssertionError(f"not among the decisions: {decision}")
    return decision["reason"], decision["reason_code"], decision["metadata"]
