"""The commands that manage keys, tokens, secrets, budgets, users, sessions, policies and old requests: their output and
exit codes."""

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
from app.auth.admin_token import AdminAuth
from app.auth.audit_log import AuditFilter, entries
from app.auth.secrets import Vault, new_secret_key
from app.db.database import Database
from app.events.records import RequestEvent
from app.events.serialization import event_rows
from app.events.storage.insert import store
from app.identity import AdminTokens, Role, Sessions, TokenDraft, Users
from app.identity.oidc import SignedInUser

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


def test_key_is_printed_alone_on_stdout_then_listed_and_revoked(run: Run, url: str) -> None:
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


# Admin tokens


def test_admin_token_is_printed_alone_on_stdout_then_listed_and_revoked(run: Run, url: str) -> None:
    made = run("tokens", "create", "anna", "--role", "editor", "--expires-in-days", "30")
    token = made.out.strip()
    assert (made.code, made.out, token[:4]) == (0, f"{token}\n", "gla-")
    found = on(url, lambda database: AdminTokens(database).find(token))
    assert (found.name, found.role, found.created_by.partition(":")[0]) == ("anna", "editor", "cli")
    listed = run("tokens", "list").out
    assert listed.splitlines()[1].split()[:3] == [found.prefix, "anna", "editor"]
    assert token not in listed
    assert run("tokens", "create", "anna").code == 1
    assert run("tokens", "revoke", found.prefix).out == f"Token {found.prefix} ('anna') is revoked.\n"
    assert on(url, lambda database: AdminTokens(database).find(token)) is None
    assert len(run("tokens", "list").out.splitlines()) == 1
    (every,) = [json.loads(line) for line in run("tokens", "list", "--all", "--json").out.splitlines()]
    assert (every["prefix"], every["revoked_at"] is None) == (found.prefix, False)
    assert trail(url) == [("cli", "token.create"), ("cli", "token.revoke")]


# Budgets, users and sessions


def test_budgets_are_created_listed_changed_and_deleted(run: Run, url: str) -> None:
    made = run("budgets", "create", "agent", "hr", "--unit", "cost", "--period", "month", "--limit", "12.5")
    assert made.code == 0, made.err
    (budget,) = [json.loads(line) for line in run("budgets", "list", "--json").out.splitlines()]
    assert made.out == f"Budget {budget['id']}: $12.5 per month for the agent 'hr'.\n"
    assert {name: budget[name] for name in ("subject", "name", "unit", "period", "limit", "uncounted")} == {
        "subject": "agent", "name": "hr", "unit": "cost", "period": "month", "limit": 12.5, "uncounted": "block",
    }  # fmt: skip
    assert run("budgets", "list").out.splitlines()[1].split()[:6] == [
        budget["id"], "agent", "hr", "cost", "month", "12.5",
    ]  # fmt: skip
    changed = run("budgets", "change", budget["id"], "--limit", "20", "--uncounted", "allow")
    assert changed.out == f"Budget {budget['id']}: $20 per month for the agent 'hr'.\n"
    assert json.loads(run("budgets", "list", "--json").out)["uncounted"] == "allow"
    key = json.loads(run("keys", "create", "ci", "--json").out)
    of_key = ("budgets", "create", "key", key["id"], "--unit", "requests", "--period", "day", "--limit", "5", "--json")
    assert json.loads(run(*of_key).out)["name"] == key["prefix"]
    assert run(*of_key).code == 1
    assert run("budgets", "delete", budget["id"]).out == f"Budget {budget['id']} is deleted.\n"
    assert len(run("budgets", "list").out.splitlines()) == 2
    assert trail(url) == [("cli", "budget.create"), ("cli", "budget.update"), ("cli", "key.create"),
                          ("cli", "budget.create"), ("cli", "budget.delete")]  # fmt: skip


def test_users_are_listed_and_given_roles(run: Run, url: str) -> None:
    who = SignedInUser(issuer="https://login.example", subject="s1", name="anna@example.com", role=Role.VIEWER)
    user = on(url, lambda database: Users(database).signed_in(who))
    assert run("users", "list").out.splitlines()[1].split()[:4] == [user.id, "anna@example.com", "viewer", "-"]
    for role, said in (("editor", "the role editor"), ("none", "no role"), ("claimed", "the role viewer")):
        assert run("users", "assign", user.id, role).out == f"User {user.id} ('anna@example.com') has {said}.\n"
    assert json.loads(run("users", "list", "--json").out)["assigned_role"] is None
    assert trail(url)[1:] == [("cli", "user.update")] * 3


def test_sessions_of_everyone_are_listed_and_ended(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_ADMIN_TOKEN", "bootstrap-token-of-this-test")

    async def sign_in(database: Database) -> None:
        made = await AdminTokens(database).create(TokenDraft(name="anna", role=Role.EDITOR))
        admin = await AdminAuth.open(database, SecretStr("bootstrap-token-of-this-test"))
        sessions = Sessions(database, admin)
        for principal in (sessions.bootstrap, made.principal):
            await sessions.open(principal, address="192.0.2.1")

    on(url, sign_in)
    listed = [json.loads(line) for line in run("sessions", "list", "--json").out.splitlines()]
    assert {each["actor"]: each["role"] for each in listed} == {"token:bootstrap": "admin", "token:anna": "editor"}
    assert {line.split()[0] for line in run("sessions", "list").out.splitlines()[1:]} == {each["id"] for each in listed}
    (anna,) = [each["id"] for each in listed if each["actor"] == "token:anna"]
    assert run("sessions", "end", anna).out == f"Session {anna} has ended.\n"
    assert [json.loads(line)["actor"] for line in run("sessions", "list", "--json").out.splitlines()] == [
        "token:bootstrap"
    ]
    assert run("sessions", "end", anna).code == 1
    assert trail(url)[-1] == ("cli", "session.end")


def test_new_admin_token_is_shown_if_listing_sessions_creates_it(run: Run) -> None:
    first, second = run("sessions", "list"), run("sessions", "list")
    assert "Admin token (shown only once" in first.err
    assert "Admin token" not in second.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("budgets", "delete", "bud_none"), 1, "Error: unknown budget 'bud_none'"),
        (("budgets", "change", "bud_none"), 2, "Error: nothing to change"),
        (("budgets", "change", "bud_none", "--limit", "-1"), 2, "Error: limit: "),
        (
            ("budgets", "create", "team", "a", "--unit", "cost", "--period", "day", "--limit", "1"),
            2,
            "Error: subject: ",
        ),
        (
            ("budgets", "create", "agent", "a", "--unit", "tokens", "--period", "day", "--limit", "1.5"),
            2,
            "Error: limit: expected a whole number",
        ),
        (
            ("budgets", "create", "key", "gl-none", "--unit", "cost", "--period", "day", "--limit", "1"),
            1,
            "Error: unknown key 'gl-none'",
        ),
        (("users", "assign", "usr_none", "viewer"), 1, "Error: unknown user 'usr_none'"),
        (("users", "assign", "usr_none", "owner"), 2, "expected viewer, editor, admin, none, claimed"),
        (("sessions", "end", "ses_none"), 1, "Error: unknown session 'ses_none'"),
        (("keys", "revoke", "gl-nobody22"), 1, "Error: unknown key 'gl-nobody22'"),
        (("keys", "create", ""), 2, "printable characters"),
        (("tokens", "create", "a", "--role", "owner"), 2, "expected viewer, editor, admin"),
        (("tokens", "revoke", "gla-nobody22"), 1, "Error: unknown token 'gla-nobody22'"),
        (("keys", "create", "a", "--requests-per-minute", "0"), 2, "requests-per-minute"),
        (("db", "prune", "--older-than", "soon"), 2, "Error: --older-than: 'soon' is not an age"),
        (("db", "prune", "--older-than", "0d"), 2, "Error: --older-than: '0d' is not an age"),
        (("db", "prune", "--older-than", "999999w"), 2, "Error: --older-than: '999999w' is too large"),
        (("secrets", "rotate"), 1, "Error: secrets cannot be stored: GROUNDLANE_SECRET_KEY is not set"),
        (("policies", "diff", "-f", "missing.toml"), 2, "Error: missing.toml: No such file or directory"),
    ],
)
def test_errors_are_one_line_without_a_traceback(run: Run, arguments: tuple[str, ...], code: int, said: str) -> None:
    result = run(*arguments)
    assert result.code == code
    assert said in result.err
    assert "Traceback" not in result.err


def test_database_without_tables_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    for arguments in (("keys", "list"), ("policies", "list"), ("db", "prune", "--older-than", "1d")):
        result = run(*arguments)
        assert result.code == 1
        assert result.err.startswith("Error: GROUNDLANE_DATABASE_URL: the database has schema none")


def test_unusable_database_url_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", "mysql://root@db/x")
    result = run("keys", "list")
    assert (result.code, result.err.startswith("Error: GROUNDLANE_DATABASE_URL: ")) == (2, True)


def test_user_without_a_name_is_identified_by_number(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert dry.out.startswith("Would delete 2 requests and 0 runs older than ")
    assert run("db", "prune", "--older-than", "90d").out.startswith("Deleted 2 requests and 0 runs older than ")
    kept = run("db", "prune", "--older-than", "2000h", "--keep-marked")
    assert kept.out.startswith("Deleted 0 requests and 0 runs older than ")
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


def test_file_is_applied_once(run: Run, url: str, file: Path) -> None:
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


def test_ineffective_rules_are_warned_of_before_applying(run: Run, file: Path) -> None:
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


def test_change_is_shown_field_by_field_and_other_policies_are_kept(run: Run, file: Path) -> None:
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


def test_json_list_is_a_file_to_apply(run: Run, file: Path, tmp_path: Path) -> None:
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


def test_file_may_come_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('[{"name": "a", "category": "retrieval"}]'))
    assert run("policies", "diff", "-f", "-").code == 3


def test_invalid_file_is_named(run: Run, tmp_path: Path) -> None:
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


def test_gateway_needs_its_token_and_a_valid_url(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
