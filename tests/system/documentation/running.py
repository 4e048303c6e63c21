"""Runs the blocks of a page in order, as a reader would, with shared files, Python names and shell variables."""

import ast
import asyncio
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet

from app.cli.demo.content import load_content
from app.cli.demo.servers import bind, serving
from app.cli.serve import prepare
from app.main import create_app
from app.settings import Settings
from tests.system.clients.registry import missing_module
from tests.system.clients.workers import SDK, environment, python_with
from tests.system.documentation.blocks import SHELL, Block, Use
from tests.system.documentation.checks import check_data
from tests.system.documentation.matching import same_json, same_text
from tests.system.documentation.upstream import Upstream

LIMIT_S = 300.0
PATIENCE_MS = 120_000
"""Long enough that a busy machine changes no verdict."""

TOKEN = "admin-token-for-the-documentation"
_CODE = re.compile(r"^HTTP (\d+)$", re.MULTILINE)
_NONE_WAITS = "groundlane_events_queue_depth 0.0"
_UPSTREAMS = """
[[upstreams]]
name = "chat"
base_url = "{url}/v1"

[[upstreams]]
name = "messages"
api = "anthropic"
base_url = "{url}/v1"
models = ["claude-*"]
"""
_PRELUDE = """
set -a
[ -e .shell ] && . ./.shell
trap 'export -p > .shell' EXIT
curl() { command curl --write-out '%{stderr}HTTP %{http_code}\\n' "$@"; }
"""


@dataclass(kw_only=True)
class Stage:
    """The gateway that the blocks call, with the embedded judge, its model and its database."""

    address: str
    upstream: Upstream
    admin: httpx.Client
    database: str
    secret_key: str

    def forget(self) -> None:
        """Reset policies and the model's answer to those of a new gateway."""
        self.upstream.said = None
        for policy in self.admin.get("/policies", params={"limit": 200}).raise_for_status().json()["items"]:
            self.admin.delete(f"/policies/{policy['id']}").raise_for_status()

    def demo(self) -> None:
        for policy in load_content().policies:
            self.admin.post("/policies", json=policy.model_dump()).raise_for_status()

    def request(self) -> str:
        """The id of a request in the event log."""
        text = "Descale the machine every 3 months."
        self.upstream.said = text
        body = {"model": "scripted-1", "messages": [{"role": "user", "content": "How often?"}], "documents": [text]}
        reply = httpx.post(f"http://{self.address}/v1/chat/completions", json=body, timeout=LIMIT_S).raise_for_status()
        self.upstream.said = None
        self.caught_up()
        return str(reply.headers["x-groundlane-request-id"])

    def caught_up(self) -> None:
        """Returns once the event log contains all finished requests; human readers are slower than this one."""
        tick = Event()
        for _ in range(int(LIMIT_S / 0.02)):
            lines = self.admin.get(f"http://{self.address}/metrics").raise_for_status().text.splitlines()
            if _NONE_WAITS in lines:
                return
            tick.wait(0.02)
        raise AssertionError("the event log doesn't receive the requests")


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    upstream = Upstream()
    secret_key = Fernet.generate_key().decode()
    database = f"sqlite+aiosqlite:///{folder / 'groundlane.db'}"
    with ExitStack() as stack:
        url = stack.enter_context(serving(upstream.app, bind(0)))
        config = folder / "upstreams.toml"
        config.write_text(_UPSTREAMS.format(url=url), "utf-8")
        values: dict[str, Any] = {
            "config": str(config),
            "database_url": database,
            "admin_token": TOKEN,
            "secret_key": secret_key,
            "judge_threads": 1,
            "judge_timeout_ms": PATIENCE_MS,
            "conflicts_timeout_ms": PATIENCE_MS,
            "policy_poll_s": 0.1,
            "store_text": "full",
        }
        settings = Settings(_env_file=None, **values)
        prepare(settings)
        served = stack.enter_context(serving(create_app(settings), bind(0)))
        admin = stack.enter_context(
            httpx.Client(base_url=f"{served}/admin/v1", headers={"authorization": f"Bearer {TOKEN}"}, timeout=LIMIT_S)
        )
        yield Stage(
            address=served.removeprefix("http://"),
            upstream=upstream,
            admin=admin,
            database=database,
            secret_key=secret_key,
        )


@dataclass(kw_only=True)
class Reader:
    """A reader who works through a page."""

    stage: Stage
    folder: Path
    printed: str | None = None
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def read(self, block: Block) -> None:
        """Run the block, or compare it with the last output. Raises AssertionError with the block's position."""
        if "demo" in block.comments:
            self.stage.demo()
        for line in filter(None, block.comments.get("given", "").split("\n")):
            given, _, text = line.partition(": ")
            (self.folder / given).write_text(text, "utf-8")
        if name := block.comments.get("file"):
            (self.folder / name).write_text(self._replaced(block), "utf-8")
            if block.use is Use.RUN and block.language == "python":
                compile(block.code, block.where, "exec")
                return
        match block.use:
            case Use.RUN:
                self.stage.upstream.said = block.comments.get("says")
                self.printed = self._run(block)
                self.stage.upstream.said = None
                self.stage.caught_up()
            case Use.OUTPUT:
                assert self.printed is not None, f"{block.where}: no block before this output prints anything"
                same_text(block.code, self.printed, block.where)
            case Use.DATA:
                check_data(block, self.folder)
                if "prints" in block.comments:
                    assert self.printed is not None, f"{block.where}: no block before it prints anything"
                    same_json(json.loads(block.code), json.loads(self.printed), block.where)

    def _replaced(self, block: Block) -> str:
        code = block.code.replace("localhost:8080", self.stage.address)
        if replacement := block.comments.get("replace"):
            old, _, new = replacement.partition(" => ")
            assert old in code, f"{block.where}: {old!r}, which should be replaced, isn't in the block"
            code = code.replace(old, self.stage.request() if new == "$REQUEST" else new)
        return code

    def _run(self, block: Block) -> str:
        code = self._replaced(block)
        return self._shell(block, code) if block.language in SHELL else self._python(block, code)

    def variables(self) -> dict[str, str]:
        """The environment of all blocks."""
        return {
            "TOKEN": TOKEN,
            "GROUNDLANE_ADMIN_TOKEN": TOKEN,
            "GROUNDLANE_BASE_URL": f"http://{self.stage.address}",
            "GROUNDLANE_DATABASE_URL": self.stage.database,
            "GROUNDLANE_SECRET_KEY": self.stage.secret_key,
            "GROUNDLANE_JUDGE_THREADS": "1",
            "GROUNDLANE_JUDGE_TIMEOUT_MS": str(PATIENCE_MS),
            "OPENAI_API_KEY": "sk-your-key",
            "ANTHROPIC_API_KEY": "sk-your-key",
            "HOME": str(self.folder),
            "COLUMNS": "100",
        }

    def _shell(self, block: Block, code: str) -> str:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        strict = "" if "exits" in block.comments else "set -euo pipefail\n"
        done = subprocess.run(
            ["bash", "-c", f"{_PRELUDE}{strict}{code}"],
            cwd=self.folder,
            env={**os.environ, **self.variables(), "PATH": path},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        said = f"{block.where}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.returncode == int(block.comments.get("exits", "0")), f"{said}\nexit code {done.returncode}"
        for status in _CODE.findall(done.stderr):
            wanted = block.comments.get("status")
            assert status == wanted if wanted else status < "400", f"{said}\nstatus {status}"
        return done.stdout

    def _python(self, block: Block, code: str) -> str:
        elsewhere = [module for module in _imported(code) if module != "groundlane" and find_spec(module) is None]
        if elsewhere:
            return self._python_of(elsewhere[0], block, code)
        output = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
            for name, value in self.variables().items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            patch.syspath_prepend(str(SDK))
            found = eval(compile(code, block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), self.names)
            if found is not None:
                asyncio.run(found)
        return output.getvalue()

    def _python_of(self, module: str, block: Block, code: str) -> str:
        python = python_with(module)
        if python is None:
            pytest.skip(f"{block.where}: {missing_module(module)}")
        done = subprocess.run(
            [python, "-c", code],
            cwd=self.folder,
            env=environment(**self.variables(), PYTHONPATH=str(SDK)),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{block.where}\n{done.stderr[-2000:]}"
        return done.stdout


def _imported(code: str) -> list[str]:
    return re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)
