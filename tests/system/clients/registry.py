"""The clients under test: the requirements of each, and what it shows."""

import json
import shutil
from dataclasses import dataclass

import pytest

from tests.support.apis.api_cases import CHAT, RESPONSES, ApiCase
from tests.system.clients import processes
from tests.system.clients.workers import python_with

WHOLE, STREAMED = False, True
NOWHERE: frozenset[bool] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client library and a way of using it.

    ``driver`` is ``module:function`` among the drivers, a script for Node.js, or ``curl``; ``package`` what must be
    installed. ``shows``: the replies, whole or streamed, whose verdict the library shows.
    """

    name: str
    driver: str
    package: str
    shows: frozenset[bool] = frozenset({WHOLE, STREAMED})
    filtered: str | None = "content_filter"
    """Its name for a blocked reply."""
    stopped: str | None = "stop"
    """Its name for the end of a reply; None, as above, if it shows none."""
    tells_of_blocks: frozenset[bool] = frozenset({WHOLE, STREAMED})
    """The replies, whole or streamed, that it reports as blocked."""
    raises_if_blocked: bool = False
    """It raises an exception for a blocked reply, and returns no text."""
    streams: frozenset[bool] = frozenset({WHOLE, STREAMED})
    """The ways of sending a request that it supports."""
    api: ApiCase = CHAT

    @property
    def on_node(self) -> bool:
        return self.driver.endswith(".mjs")

    @property
    def missing(self) -> str | None:
        """Why the client can't run here, or None."""
        if self.on_node:
            return missing_on_node(self.package)
        if self.driver == "curl":
            return None if shutil.which("curl") else "curl is not installed"
        return missing_module(self.package)


def missing_module(name: str) -> str | None:
    if python_with(name):
        return None
    return f"{name} is not installed: `make test` installs it, or name a Python that has it in GROUNDLANE_TEST_CLIENTS"


def missing_on_node(package: str) -> str | None:
    if shutil.which("node") is None:
        return "Node.js is not installed"
    wanted = json.loads((processes.HERE / "package.json").read_text("utf-8"))["dependencies"][package]
    manifest = processes.NODE_HOME / "node_modules" / package / "package.json"
    if not manifest.exists():
        return f"{package} is not installed: npm install --no-package-lock in tests/system/clients/node"
    found = json.loads(manifest.read_text("utf-8"))["version"]
    return None if found == wanted else f"{package} {found} is installed, not {wanted}"


CLIENTS = (
    Client(name="openai", driver="openai_sdk:ask", package="openai"),
    Client(name="openai-async", driver="openai_sdk:ask_async", package="openai"),
    Client(name="langchain", driver="langchain:ask", package="langchain_openai", shows=frozenset({WHOLE})),
    Client(name="langchain-grounded", driver="langchain:ask_grounded", package="langchain_openai"),
    Client(name="langchain-grounded-async", driver="langchain:ask_grounded_async", package="langchain_openai"),
    Client(name="llama-index", driver="llama_index:ask", package="llama_index"),
    Client(name="llama-index-async", driver="llama_index:ask_async", package="llama_index"),
    Client(name="litellm", driver="litellm:ask", package="litellm"),
    Client(name="litellm-async", driver="litellm:ask_async", package="litellm"),
    Client(name="haystack", driver="haystack:ask", package="haystack", shows=frozenset({WHOLE})),
    Client(name="pydantic-ai", driver="pydantic_ai:ask", package="pydantic_ai", shows=NOWHERE),
    Client(
        name="pydantic-ai-responses",
        driver="pydantic_ai:ask_responses",
        package="pydantic_ai",
        shows=NOWHERE,
        tells_of_blocks=frozenset({WHOLE}),
        api=RESPONSES,
    ),
    Client(
        name="openai-agents",
        driver="openai_agents:ask",
        package="agents",
        shows=NOWHERE,
        filtered=None,
        stopped=None,
    ),
    Client(
        name="openai-agents-responses",
        driver="openai_agents:ask_responses",
        package="agents",
        shows=NOWHERE,
        stopped=None,
        raises_if_blocked=True,
        api=RESPONSES,
    ),
    Client(name="dspy", driver="dspy:ask", package="dspy", shows=NOWHERE, streams=frozenset({WHOLE})),
    Client(name="llm", driver="llm_cli:ask", package="llm", shows=NOWHERE, filtered=None, stopped=None),
    Client(name="curl", driver="curl", package="curl"),
    Client(name="openai-node", driver="openai.mjs", package="openai"),
    Client(name="ai-sdk", driver="ai-sdk.mjs", package="ai", filtered="content-filter"),
    Client(name="ai-sdk-openai", driver="ai-sdk-openai.mjs", package="@ai-sdk/openai", filtered="content-filter"),
)


def parameter(client: Client) -> object:
    """The client as a parameter of a test, with its marks."""
    marks = [pytest.mark.node] if client.on_node else []
    if ":" in client.driver and client.package != "openai":
        marks.append(pytest.mark.clients)
    return pytest.param(client, id=client.name, marks=marks)
