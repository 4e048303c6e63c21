"""A decorator that records function calls as runs, and functions that return the current run."""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from groundlane._client import AsyncGroundlane, Groundlane
from groundlane._recording import CURRENT, Recording
from groundlane._runs import AsyncRun, Run

P = ParamSpec("P")
R = TypeVar("R")


def observe(
    agent_name: str, *, enforce_policy: bool = True, client: Groundlane | AsyncGroundlane | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Record each call of the decorated function as a run of ``agent_name``. The run is an ``AsyncRun`` for a coroutine
    function, and otherwise a ``Run``. Inside the function, ``current_async_run()`` or ``current_run()`` returns the
    run.

    The return value becomes the result of the run, unless the function sets a result or the value is not JSON.
    ``client`` must be asynchronous for a coroutine function, and otherwise synchronous. By default, each run creates a
    client from the environment variables. Raises TypeError for a generator function or a client of the wrong kind.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__} is a generator function: use a with statement with a run inside it")
        if inspect.iscoroutinefunction(function):
            if isinstance(client, Groundlane):
                raise TypeError(f"{function.__name__} is a coroutine function: pass an AsyncGroundlane client")
            return cast(Callable[P, R], _observe_async(function, agent_name, enforce_policy, client))
        if isinstance(client, AsyncGroundlane):
            raise TypeError(f"{function.__name__} is not a coroutine function: pass a Groundlane client")
        return _observe(function, agent_name, enforce_policy, client)

    return decorate


def _observe(
    function: Callable[P, R], agent_name: str, enforce_policy: bool, client: Groundlane | None
) -> Callable[P, R]:
    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        own = client or Groundlane()
        try:
            with own.run(agent_name, enforce_policy=enforce_policy) as current:
                result = function(*args, **kwargs)
                _keep(current, result)
                return result
        finally:
            if client is None:
                own.close()

    return run


def _observe_async(
    function: Callable[P, Awaitable[Any]], agent_name: str, enforce_policy: bool, client: AsyncGroundlane | None
) -> Callable[P, Awaitable[Any]]:
    @wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> Any:
        own = client or AsyncGroundlane()
        try:
            async with own.run(agent_name, enforce_policy=enforce_policy) as current:
                result = await function(*args, **kwargs)
                _keep(current, result)
                return result
        finally:
            if client is None:
                await own.aclose()

    return run


def _keep(run: Recording, result: Any) -> None:
    if result is not None and not run.has_result:
        with suppress(TypeError):  # The value is meant for the caller and need not be JSON.
            run.set_result(result)


def current_run() -> Run:
    """Return the current run. Raises RuntimeError outside a run, or if the current run is an ``AsyncRun``."""
    run = CURRENT.get()
    if not isinstance(run, Run):
        raise RuntimeError("there is no current synchronous run")
    return run


def current_async_run() -> AsyncRun:
    """Return the current asynchronous run. Raises RuntimeError outside a run, or if the current run is a ``Run``."""
    run = CURRENT.get()
    if not isinstance(run, AsyncRun):
        raise RuntimeError("there is no current asynchronous run")
    return run
