"""``groundlane policies --url`` against a running gateway: the policies in the file are then in force."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from app.cli.main import main
from tests.support.gateways.live_gateway import ADMIN_TOKEN, Gateway

FILE = """
[[policies]]
name = "from-a-file"
category = "retrieval"
rules = { require_documents = true, action_on_chunk_violation = "block", min_chunks = 2 }
scope = { agents = ["file-agent"] }
"""
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}], "grounding": {"agent": "file-agent"}}


@pytest.fixture
def groundlane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs the command without access to a database, and returns its exit code and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/none/none.db")
    monkeypatch.setenv("GROUNDLANE_ADMIN_TOKEN", ADMIN_TOKEN)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["groundlane", *arguments])
        with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), printed.getvalue()

    return run


def test_policy_file_takes_effect_on_a_running_gateway_and_can_be_reverted(
    start_gateway: Callable[..., Gateway], groundlane: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    gateway = start_gateway()
    file = tmp_path / "policies.toml"
    file.write_text(FILE, "utf-8")
    at = ("-f", str(file), "--url", f"http://127.0.0.1:{gateway.port}/")
    assert groundlane("policies", "diff", *at)[0] == 3
    assert groundlane("policies", "apply", *at, "--yes")[0] == 0
    assert groundlane("policies", "diff", *at, "--prune") == (0, "0 to change, 1 unchanged.\n")
    with gateway.call(BODY) as call:
        assert call.status == 400
    (line,) = gateway.admin.get("/audit").json()["items"]
    assert (line["action"], line["actor"].partition(":")[0]) == ("policy.create", "token")
    file.write_text(FILE.replace("= 2", "= 3"), "utf-8")
    code, printed = groundlane("policies", "apply", *at, "-y")
    assert (code, printed.splitlines()[:2]) == (0, ["~ from-a-file", "    rules.min_chunks: 2 -> 3"])
    file.write_text("policies = []", "utf-8")
    assert groundlane("policies", "apply", *at, "--prune", "-y")[0] == 0
    assert gateway.admin.get("/policies").json()["items"] == []


def test_invalid_token_and_wrong_address_fail_with_one_line(
    gateway: Gateway,
    groundlane: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GROUNDLANE_ADMIN_TOKEN", "wrong-token-for-tests")
    address = f"http://127.0.0.1:{gateway.port}"
    assert groundlane("policies", "list", "--url", address)[0] == 1
    assert capsys.readouterr().err == f"Error: {address}: The admin token is wrong, revoked or expired.\n"
    assert groundlane("policies", "list", "--url", gateway.upstream.base_url)[0] == 1
    assert capsys.readouterr().err.startswith(f"Error: {gateway.upstream.base_url}/: not a Groundlane gateway")
