"""Performs the same run with either kind of client."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from groundlane import AsyncGroundlane, Decision, Groundlane, RunRecord

from tests.support.gateways.live_gateway import Gateway

Step = Callable[[Any], Any]
"""Performs the actions of a run on a ``Run`` or an ``AsyncRun``, and returns the records."""


@dataclass(slots=True)
class Played:
    """The outcome of a run. ``caused`` contains the decisions of each step, and ``error`` is the exception that the run
    raised."""

    caused: list[Sequence[Decision]] = field(default_factory=list)
    error: Exception | None = None
    record: RunRecord | None = None


class Player:
    """Performs runs against the gateway with the synchronous or the asynchronous client."""

    def __init__(self, gateway: Gateway, kind: str) -> None:
        self.gateway = gateway
        self.kind = kind

    def __call__(
        self, agent: str, *steps: Step, result: Any = None, enforce_policy: bool = True, model: str | None = None
    ) -> Played:
        """Run ``steps`` as ``agent``. Stop at the first exception, as application code does."""
        if self.kind == "sync":
            return self._sync(agent, steps, result, enforce_policy, model)
        return asyncio.run(self._async(agent, steps, result, enforce_policy, model))

    def _sync(self, agent: str, steps: Sequence[Step], result: Any, enforce: bool, model: str | None) -> Played:
        played = Played()
        with Groundlane(self.gateway.base_url) as client:
            run = client.run(agent, model=model, enforce_policy=enforce)
            try:
                with run:
                    for step in steps:
                        played.caused.append(step(run))
                    run.set_result(result)
            except Exception as error:
                played.error = error
            played.record = client.get_run(run.run_id)
        return played

    async def _async(self, agent: str, steps: Sequence[Step], result: Any, enforce: bool, model: str | None) -> Played:
        played = Played()
        async with AsyncGroundlane(self.gateway.base_url) as client:
            run = client.run(agent, model=model, enforce_policy=enforce)
            try:
                async with run:
                    for step in steps:
                        played.caused.append(await step(run))
                    run.set_result(result)
            except Exception as error:
                played.error = error
            played.record = await client.get_run(run.run_id)
        return played
