"""Libraries for agents and structured replies, with tools and with JSON, whole and streamed: they validate their input,
and retry or give up on anything else."""

import json
from collections.abc import Callable
from dataclasses import asdict

import pytest

from judges.types import Label
from tests.support.apis.api_cases import ARGUMENTS, CALL, CHAT, RESPONSES, TEXT, ApiCase
from tests.support.gateways.live_gateway import Gateway
from tests.system.clients.registry import missing_module
from tests.system.clients.scenario import CLOSED, DOCUMENTS, LIE, PLANS, Question
from tests.system.clients.workers import Worker, python_with

pytestmark = pytest.mark.clients
DRIVERS = "tests.system.clients.drivers"
WITH_TOOLS = [
    ("pydantic_ai", "pydantic_ai", "use_tool", CHAT),
    ("pydantic_ai", "pydantic_ai", "use_tool_in_responses", RESPONSES),
    ("agents", "openai_agents", "use_tool", CHAT),
    ("agents", "openai_agents", "use_tool_in_responses", RESPONSES),
    ("llm", "llm_cli", "use_tool", CHAT),
]
WITH_JSON = [
    ("pydantic_ai", "pydantic_ai"),
    ("instructor", "instructor"),
    ("agents", "openai_agents"),
    ("dspy", "dspy"),
    ("llm", "llm_cli"),
]
Call = Callable[..., str]


@pytest.fixture
def call(gateway: Gateway, worker: Callable[[str, str], Worker], stream: bool) -> Call:
    """Calls a driver's function with the question; a failure is also a result, as text."""

    def call(package: str, driver: str, function: str) -> str:
        python = python_with(package)
        if python is None:
            pytest.skip(str(missing_module(package)))
        agent = gateway.agent(grounding=CLOSED)
        question = Question(base_url=gateway.base_url, stream=stream, documents=DOCUMENTS, agent=agent)
        try:
            return str(worker(python, package).call(f"{DRIVERS}.{driver}", function, **asdict(question)))
        except AssertionError as failure:
            return str(failure)

    return call


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize(("package", "driver", "function", "case"), WITH_TOOLS)
def test_tool_is_called_and_the_answer_is_judged(
    gateway: Gateway, call: Call, stream: bool, package: str, driver: str, function: str, case: ApiCase
) -> None:
    gateway.upstream.script(case.reply([(CALL, ARGUMENTS)], stream=stream), case.reply([(TEXT, PLANS)], stream=stream))
    assert call(package, driver, function) == PLANS
    assert "a is 1" in gateway.upstream.exchanges[-1].body.decode()


@pytest.mark.parametrize(("package", "driver"), WITH_JSON)
def test_json_is_parsed_into_an_object(gateway: Gateway, call: Call, stream: bool, package: str, driver: str) -> None:
    gateway.upstream.script(CHAT.reply([(TEXT, json.dumps({"price": PLANS}))], stream=stream and package != "dspy"))
    assert call(package, driver, "ask_json") == PLANS


@pytest.mark.parametrize(("package", "driver"), WITH_JSON)
def test_blocked_json_is_an_error_and_no_object(
    gateway: Gateway, call: Call, stream: bool, package: str, driver: str
) -> None:
    gateway.judge.labels = {"boat": Label.CONTRADICTED}
    reply = CHAT.reply([(TEXT, json.dumps({"price": LIE}))], stream=stream and package != "dspy")
    gateway.upstream.script(*[reply] * 4)
    said = call(package, driver, "ask_json")
    assert "boat" not in said
    assert PLANS not in said
    assert gateway.upstream.exchanges
