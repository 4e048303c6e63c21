"""The decorator that makes calls runs, and the current run."""

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
    """Make each call of the decorated function a run of ``agent_name``: an ``AsyncRun`` for a coroutine function, else
    a ``Run``. Inside the function, ``current_async_run()`` or ``current_run()`` returns the run.

    The return value becomes the result of the run, unless the function sets one or the value is not JSON. ``client``
    must be asynchronous for a coroutine function and synchronous for others; by default each run creates one, with the
    settings of the environment. Raises TypeError.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__} is a generator function: use a run in a with statement inside it")
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
        with suppress(TypeError):  # the value is for the caller and need not be JSON
            run.set_result(result)


def current_run() -> Run:
    """The current run. Raises RuntimeError if there is none, or if it is an ``AsyncRun``."""
    run = CURRENT.get()
    if not isinstance(run, Run):
        raise RuntimeError("there is no current synchronous run")
    return run


def current_async_run() -> AsyncRun:
    """The current asynchronous run. Raises RuntimeError if there is none, or if it is a ``Run``."""
    run = CURRENT.get()
    if not isinstance(run, AsyncRun):
        raise RuntimeError("there is no current asynchronous run")
    return run
