"""Tests the properties of each kind of run, and the ways in which runs end."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest
from groundlane import (
    AsyncGroundlane,
    AsyncRun,
    Groundlane,
    PolicyViolationError,
    Run,
    RunRecord,
    current_async_run,
    current_run,
    observe,
)
from playing import Player

from tests.support.gateways.live_gateway import Gateway

STALE = {"relevance_score": 0.9, "source": "old.pdf", "collection": "kb", "age_days": 400}
FRESH = {**STALE, "source": "new.pdf", "age_days": 3}


class Number:
    """A number type that JSON doesn't support, like those of NumPy."""

    def __float__(self) -> float:
        return 0.5


Body = Callable[[AsyncRun], Awaitable[None]]


def play_async(gateway: Gateway, agent: str, body: Body) -> tuple[Exception | None, RunRecord]:
    """Run ``body``. Return the exception that it raised, and its records."""

    async def play() -> tuple[Exception | None, RunRecord]:
        error = None
        async with AsyncGroundlane(gateway.base_url) as client:
            run = client.run(agent)
            try:
                async with run:
                    await body(run)
            except Exception as raised:
                error = raised
            return error, await client.get_run(run.run_id)

    return asyncio.run(play())


def test_unawaited_record_raises_when_the_block_ends(gateway: Gateway) -> None:
    reached = []

    async def body(run: AsyncRun) -> None:
        run.record_retrieval_result(**FRESH)
        run.record_retrieval_result(**STALE)
        reached.append("the end of the block")
        run.set_result("an answer")

    error, record = play_async(gateway, gateway.agent(retrieval={}), body)
    assert isinstance(error, PolicyViolationError)
    assert str(error) == "Source age (400 days) exceeds max (90 days)"
    assert reached == ["the end of the block"]
    assert record.status == "completed"
    assert [document.source for document in record.documents] == ["new.pdf", "old.pdf"]


def test_unawaited_record_raises_at_the_next_awaited_one(gateway: Gateway) -> None:
    reached = []

    async def body(run: AsyncRun) -> None:
        run.record_retrieval_result(**STALE)
        await run.record_retrieval_result(**FRESH)
        reached.append("the end of the block")

    error, record = play_async(gateway, gateway.agent(retrieval={}), body)
    assert isinstance(error, PolicyViolationError)
    assert reached == []
    assert [document.source for document in record.documents] == ["old.pdf", "new.pdf"]


def test_concurrent_records_are_each_sent_once(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval={"max_chunks": 30})

    async def run() -> Any:
        async with AsyncGroundlane(gateway.base_url) as client:
            async with client.run(agent) as run:
                records = [run.record_retrieval_result(**{**FRESH, "source": f"{n}.pdf"}) for n in range(20)]
                decided = await asyncio.gather(*records)
                assert await records[0] == decided[0]
            return decided, await client.get_run(run.run_id)

    decided, record = asyncio.run(run())
    assert [len(decisions) for decisions in decided] == [1] * 20
    assert [document.source for document in record.documents] == [f"{n}.pdf" for n in range(20)]


def test_error_of_the_block_takes_precedence_and_the_run_ends(gateway: Gateway, play: Player) -> None:
    agent = gateway.agent(retrieval={"require_documents": True, "action_on_chunk_violation": "block"})

    def fail(_run: Any) -> Any:
        raise KeyError("of the block")

    played = play(agent, fail)
    assert isinstance(played.error, KeyError)
    assert played.record is not None
    assert (played.record.status, played.record.action) == ("completed", "block")


def test_cancelled_run_does_not_wait_for_the_gateway(gateway: Gateway) -> None:
    async def cancelled(run: AsyncRun) -> None:
        async with run:
            raise asyncio.CancelledError

    async def main() -> str | None:
        async with AsyncGroundlane(gateway.base_url) as client:
            run = client.run("cancelled")
            with pytest.raises(asyncio.CancelledError):
                await cancelled(run)
            return (await client.get_run(run.run_id)).status

    assert asyncio.run(main()) == "open"


def test_interrupted_run_does_not_wait_for_the_gateway(gateway: Gateway) -> None:
    def interrupted(run: Run) -> None:
        with run:
            raise KeyboardInterrupt

    with Groundlane(gateway.base_url) as client:
        run = client.run("interrupted")
        with pytest.raises(KeyboardInterrupt):
            interrupted(run)
        assert client.get_run(run.run_id).status == "open"


def test_numbers_of_other_libraries_are_accepted(gateway: Gateway) -> None:
    with Groundlane(gateway.base_url) as client:
        with client.run("counting") as run:
            run.record_retrieval_result(Number(), age_days=Number())
            run.record_grounding([Number()], output_confidence=Number())
        record = client.get_run(run.run_id)
    assert record.grounding_scores == (0.5,)
    assert (record.documents[0].relevance_score, record.documents[0].age_days) == (0.5, 0.5)


@pytest.mark.parametrize("result", [{1, 2}, object(), float("nan")], ids=["set", "object", "nan"])
def test_result_must_be_json(gateway: Gateway, result: Any) -> None:
    with Groundlane(gateway.base_url) as client, client.run("odd") as run, pytest.raises(TypeError, match="JSON"):
        run.set_result(result)


def test_single_string_is_rejected_as_a_list_of_citations(gateway: Gateway) -> None:
    with Groundlane(gateway.base_url) as client, client.run("odd") as run, pytest.raises(TypeError, match="citations"):
        run.record_grounding(citations="manual.pdf")


def test_run_can_be_entered_only_once(gateway: Gateway) -> None:
    with Groundlane(gateway.base_url) as client:
        run = client.run("once")
        with pytest.raises(RuntimeError, match="not started"):
            run.record_grounding([1.0])
        with run:
            pass
        with pytest.raises(RuntimeError, match="already started"):
            run.__enter__()


def test_records_after_the_end_are_rejected_with_an_error(gateway: Gateway) -> None:
    """This includes a record that is not awaited and would never be sent."""
    with Groundlane(gateway.base_url) as client, client.run("over") as run:
        pass

    async def over() -> AsyncRun:
        async with AsyncGroundlane(gateway.base_url) as client, client.run("over") as ended:
            return ended

    for ended in (run, asyncio.run(over())):
        for late in (ended.record_grounding, ended.record_retrieval_result, partial(ended.set_result, 1)):
            with pytest.raises(RuntimeError, match="has ended"):
                late()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_numeric_score_is_rejected_by_name(gateway: Gateway, value: float) -> None:
    with Groundlane(gateway.base_url) as client, client.run("odd") as run:
        with pytest.raises(ValueError, match=f"grounding_scores must be a finite number, not {value}"):
            run.record_grounding(grounding_scores=[0.5, value])
        with pytest.raises(ValueError, match="relevance_score"):
            run.record_retrieval_result(relevance_score=value)
    assert run.decisions == ()


def test_run_can_end_in_another_context(gateway: Gateway) -> None:
    """Web frameworks close generators of request resources in this way."""
    with Groundlane(gateway.base_url) as client:
        run = client.run("generator")
        copy_context().run(run.__enter__)
        copy_context().run(run.__exit__, None, None, None)
        assert client.get_run(run.run_id).status == "completed"

    async def main() -> str:
        async with AsyncGroundlane(gateway.base_url) as client:
            run = client.run("generator")
            await asyncio.get_running_loop().create_task(run.__aenter__(), context=copy_context())
            await asyncio.get_running_loop().create_task(run.__aexit__(None, None, None), context=copy_context())
            return (await client.get_run(run.run_id)).status

    assert asyncio.run(main()) == "completed"


def test_agent_must_have_a_name(gateway: Gateway) -> None:
    with Groundlane(gateway.base_url) as client, pytest.raises(ValueError, match="agent_name"):
        client.run("")


def test_run_shows_its_agent_in_the_representation(gateway: Gateway) -> None:
    with Groundlane(gateway.base_url) as client, client.run("shown") as run:
        assert repr(run) == f"<Run {run.run_id} of 'shown'>"
    assert repr(AsyncGroundlane(gateway.base_url).run("shown")) == "<AsyncRun (not started) of 'shown'>"


# Functions that are runs


def test_each_call_of_an_observed_function_is_a_run(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_BASE_URL", gateway.base_url)
    seen: list[Run] = []

    @observe("observed")
    def answer(question: str) -> dict[str, str]:
        """Return an answer."""
        run = current_run()
        seen.append(run)
        run.record_retrieval_result(**FRESH)
        return {"answer": question.upper()}

    assert answer.__doc__ == "Return an answer."
    assert [answer("why"), answer(question="how")] == [{"answer": "WHY"}, {"answer": "HOW"}]
    with Groundlane() as client:
        records = [client.get_run(run.run_id) for run in seen]
    assert [record.result for record in records] == [{"answer": "WHY"}, {"answer": "HOW"}]
    assert {record.agent for record in records} == {"observed"}


def test_observed_coroutine_function_is_governed(gateway: Gateway) -> None:
    agent = gateway.agent(retrieval={})

    async def main() -> Any:
        async with AsyncGroundlane(gateway.base_url) as client:
            seen: list[AsyncRun] = []

            @observe(agent, client=client)
            async def answer(document: dict[str, Any]) -> str:
                run = current_async_run()
                seen.append(run)
                await run.record_retrieval_result(**document)
                run.set_result("set")
                return "returned"

            assert await answer(FRESH) == "returned"
            with pytest.raises(PolicyViolationError):
                await answer(STALE)
            return [await client.get_run(run.run_id) for run in seen]

    records = asyncio.run(main())
    assert [(record.result, record.action) for record in records] == [("set", "allow"), (None, "block")]


def test_observed_coroutine_function_needs_no_client(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_BASE_URL", gateway.base_url)

    @observe("observed", enforce_policy=False)
    async def answer() -> object:
        return object()

    assert type(asyncio.run(answer())) is object


def test_unobservable_callables_are_rejected() -> None:
    def words() -> Any:
        yield "word"

    async def more() -> Any:
        yield "word"

    async def answer() -> None: ...

    for function in (words, more):
        with pytest.raises(TypeError, match="generator"):
            observe("a")(function)
    with Groundlane() as client, pytest.raises(TypeError, match="AsyncGroundlane"):
        observe("a", client=client)(answer)
    with pytest.raises(TypeError, match="not a coroutine function"):
        observe("a", client=AsyncGroundlane())(lambda: None)


def test_current_run_is_the_innermost(gateway: Gateway) -> None:
    with pytest.raises(RuntimeError, match="no current synchronous run"):
        current_run()
    with Groundlane(gateway.base_url) as client, client.run("outer") as outer:
        with client.run("inner") as inner:
            assert current_run() is inner
        assert current_run() is outer
        with pytest.raises(RuntimeError, match="no current asynchronous run"):
            current_async_run()
