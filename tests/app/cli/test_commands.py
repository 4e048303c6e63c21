"""``groundlane keys``, ``secrets``, ``policies`` and ``db prune``: what they print and what they exit with."""

import asyncio
import io
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.auth import KeyStore
from app.auth.audit_log import AuditFilter, entries
from app.auth.secrets import Vault, new_secret_key
from app.db.database import Database
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store

pytestmark = pytest.mark.usefixtures("url")

Run = Callable[..., Any]


def on(url: str, work: Callable[[Database], Any]) -> Any:
    async def opened() -> Any:
        database = Database(url)
        try:
            return await work(database)
        finally:
            await database.aclose()

    return asyncio.run(opened())


def trail(url: str) -> list[tuple[str, str]]:
    found = on(url, lambda database: entries(database, AuditFilter(), limit=99))
    return [(line["actor"].partition(":")[0], line["action"]) for line in reversed(found)]


# Keys


def test_a_key_is_printed_alone_on_stdout_then_listed_and_revoked(run: Run, url: str) -> None:
    limits = ["--model", "gpt-*", "--model", "o3", "--collection", "kb", "--requests-per-minute", "60"]
    made = run("keys", "create", "ci", *limits)
    key = made.out.strip()
    assert (made.code, made.out) == (0, f"{key}\n")

    async def find(database: Database) -> Any:
        keys = KeyStore(database)
        await keys.refresh()
        return keys.find(key)

    found = on(url, find)
    assert (found.name, found.models, found.collections, found.requests_per_minute) == (
        "ci", ("gpt-*", "o3"), ("kb",), 60,
    )  # fmt: skip
    listed = run("keys", "list").out
    assert listed.splitlines()[1].split()[:5] == [found.prefix, "ci", "gpt-*,o3", "kb", "60"]
    assert key not in listed
    revoked = run("keys", "revoke", found.prefix)
    assert (revoked.code, revoked.out) == (0, f"Key {found.prefix} ('ci') is revoked.\n")
    assert on(url, find) is None
    assert len(run("keys", "list").out.splitlines()) == 1
    assert run("keys", "list", "--all", "--prefix", found.prefix).out.splitlines()[1].startswith(found.prefix)
    assert trail(url) == [("cli", "key.create"), ("cli", "key.revoke")]


def test_keys_can_be_printed_as_json(run: Run) -> None:
    made = json.loads(run("keys", "create", "ci", "--json").out)
    assert made["key"].startswith(made["prefix"])
    (listed,) = [json.loads(line) for line in run("keys", "list", "--json").out.splitlines()]
    assert listed == {name: value for name, value in made.items() if name != "key"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("keys", "revoke", "gl-nobody22"), 1, "Error: unknown key 'gl-nobody22'"),
        (("keys", "create", ""), 2, "printable characters"),
        (("keys", "create", "a", "--requests-per-minute", "0"), 2, "requests-per-minute"),
        (("db", "prune", "--older-than", "soon"), 2, "Error: --older-than: 'soon' is not an age"),
        (("db", "prune", "--older-than", "0d"), 2, "Error: --older-than: '0d' is not an age"),
        (("db", "prune", "--older-than", "999999w"), 2, "Error: --older-than: '999999w' is too long ago"),
        (("secrets", "rotate"), 1, "Error: secrets cannot be stored: GROUNDLANE_SECRET_KEY is not set"),
        (("policies", "diff", "-f", "missing.toml"), 2, "Error: missing.toml: No such file or directory"),
    ],
)
def test_errors_are_one_line_without_a_traceback(run: Run, arguments: tuple[str, ...], code: int, said: str) -> None:
    result = run(*arguments)
    assert result.code == code
    assert said in result.err
    assert "Traceback" not in result.err


def test_a_database_without_tables_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    for arguments in (("keys", "list"), ("policies", "list"), ("db", "prune", "--older-than", "1d")):
        result = run(*arguments)
        assert result.code == 1
        assert result.err.startswith("Error: GROUNDLANE_DATABASE_URL: the database is at schema none")


def test_an_unusable_database_url_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", "mysql://root@db/x")
    result = run("keys", "list")
    assert (result.code, result.err.startswith("Error: GROUNDLANE_DATABASE_URL: ")) == (2, True)


def test_a_user_without_a_name_is_identified_by_number(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    run("keys", "create", "ci")
    (line,) = on(url, lambda database: entries(database, AuditFilter(), limit=9))
    assert line["actor"] == f"cli:{os.getuid()}"


# Secrets


def test_secrets_are_re_encrypted_with_a_generated_key(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = new_secret_key(), run("secrets", "new-key").out.strip()
    on(url, lambda database: Vault(database, SecretStr(old)).put("openai", "sk-1"))
    monkeypatch.setenv("GROUNDLANE_SECRET_KEY", f"{new},{old}")
    assert run("secrets", "rotate").out == "Secrets re-encrypted: 1.\n"

    async def read(database: Database) -> str | None:
        vault = Vault(database, SecretStr(new))
        await vault.refresh()
        return vault.key("openai")

    assert on(url, read) == "sk-1"


# Pruning


def test_old_events_are_counted_and_deleted(run: Run, url: str, event: Callable[..., RequestEvent]) -> None:
    now = datetime.now(UTC)
    rows = [event_rows(event(number, ts=now - timedelta(days=number * 40))) for number in range(5)]
    on(url, lambda database: store(database, rows))
    dry = run("db", "prune", "--older-than", "90d", "--dry-run")
    assert dry.code == 0
    assert dry.out.endswith("UTC, would be deleted: 2 requests, 0 runs.\n")
    assert run("db", "prune", "--older-than", "90d").out.endswith("UTC, deleted: 2 requests, 0 runs.\n")
    assert run("db", "prune", "--older-than", "2000h", "--keep-marked").out.endswith("deleted: 0 requests, 0 runs.\n")
    assert trail(url) == [("cli", "events.prune")]


# Policies

FILE = """
[[policies]]
name = "gate"
category = "retrieval"
rules = { min_chunks = 2 }

[[policies]]
name = "leaflets"
category = "grounding"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policies.toml"
    path.write_text(FILE, "utf-8")
    return path


def test_a_file_is_applied_once(run: Run, url: str, file: Path) -> None:
    shown = run("policies", "diff", "-f", str(file))
    assert shown.code == 3
    assert shown.out.splitlines() == [
        "+ gate", '    category: "retrieval"', "    rules.min_chunks: 2",
        "+ leaflets", '    category: "grounding"',
        "2 to change, 0 unchanged.",
    ]  # fmt: skip
    dry = run("policies", "apply", "-f", str(file), "--dry-run")
    assert (dry.code, dry.out) == (0, shown.out)
    assert run("policies", "apply", "-f", str(file), "--yes").code == 0
    again = run("policies", "apply", "-f", str(file), "--yes")
    assert (again.code, again.out) == (0, "0 to change, 2 unchanged.\n")
    assert run("policies", "diff", "-f", str(file), "--prune").code == 0
    assert trail(url) == [("cli", "policy.create")] * 2
    names = [line.split()[0] for line in run("policies", "list").out.splitlines()]
    assert names == ["NAME", "gate", "leaflets"]


def test_what_a_policy_cannot_do_is_warned_of_before_it_is_applied(run: Run, file: Path) -> None:
    file.write_text(
        """
        [[policies]]
        name = "live"
        category = "grounding"
        rules = {unjudged_action = "block", stream_mode = "live", contradiction_action = "correct"}
        """,
        "utf-8",
    )
    shown = run("policies", "diff", "-f", str(file))
    assert [line.split(": ")[:3] for line in shown.err.splitlines()] == [
        ["Warning", "live", "rules.contradiction_action"],
        ["Warning", "live", "rules.unjudged_action"],
        ["Warning", "live", "rules.contradiction_action"],
    ]
    assert "GROUNDLANE_LLM_JUDGE_MODEL is not set" in shown.err
    applied = run("policies", "apply", "-f", str(file), "--yes")
    assert (applied.code, applied.err) == (0, shown.err)
    assert run("policies", "apply", "-f", str(file), "--yes").err == ""


def test_a_change_is_shown_field_by_field_and_other_policies_are_kept(run: Run, file: Path) -> None:
    run("policies", "apply", "-f", str(file), "-y")
    file.write_text(FILE[: FILE.index('[[policies]]\nname = "leaflets')].replace("= 2", "= 3"), "utf-8")
    shown = run("policies", "diff", "-f", str(file))
    assert shown.out.splitlines() == [
        "~ gate", "    rules.min_chunks: 2 -> 3",
        "1 to change, 0 unchanged, 1 not in the file (kept).",
    ]  # fmt: skip
    pruned = run("policies", "apply", "-f", str(file), "-y", "--prune")
    assert pruned.out.splitlines()[2:] == ["- leaflets", "2 to change, 0 unchanged.", "Done."]
    assert [line.split()[0] for line in run("policies", "list").out.splitlines()[1:]] == ["gate"]


def test_the_json_list_is_a_file_to_apply(run: Run, file: Path, tmp_path: Path) -> None:
    run("policies", "apply", "-f", str(file), "-y")
    copy = tmp_path / "policies.json"
    copy.write_text(run("policies", "list", "--json").out, "utf-8")
    assert run("policies", "diff", "-f", str(copy), "--prune").code == 0


def test_nothing_changes_without_confirmation(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    refused = run("policies", "apply", "-f", str(file))
    assert (refused.code, refused.err) == (2, "Error: stdin is not a terminal: confirm with --yes\n")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    declined = run("policies", "apply", "-f", str(file))
    assert (declined.code, declined.err) == (1, "Error: nothing was changed\n")
    assert trail(url) == []
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run("policies", "apply", "-f", str(file)).code == 0
    assert len(trail(url)) == 2


def test_a_file_may_come_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('[{"name": "a", "category": "retrieval"}]'))
    assert run("policies", "diff", "-f", "-").code == 3


def test_an_invalid_file_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policies.toml"
    for content, said in (
        (b"\x89PNG\xff", "not a UTF-8 text file"),
        (b"[[policies]]\nname = 1", "policies[0].name: "),
        (b"[[policies", "not TOML: "),
    ):
        file.write_bytes(content)
        result = run("policies", "apply", "-f", str(file))
        assert result.code == 2
        assert result.err.startswith(f"Error: {file}: {said}")


def test_a_gateway_needs_its_token_and_a_valid_url(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_token = run("policies", "list", "--url", "http://127.0.0.1:9")
    assert no_token.code == 2
    assert no_token.err.startswith("Error: GROUNDLANE_ADMIN_TOKEN: not set")
    monkeypatch.setenv("GROUNDLANE_ADMIN_TOKEN", "hunter2-hunter2-token")
    for address, code, said in (
        ("127.0.0.1:9", 2, "must start with http"),
        ("http://127.0.0.1:x", 2, "is not a valid URL"),
        ("http://127.0.0.1:9", 1, "Error: http://127.0.0.1:9"),
    ):
        result = run("policies", "list", "--url", address)
        assert result.code == code
        assert said in result.err
        assert "hunter2" not in result.err
