"""The command line: output, exit codes, and errors as one line on stderr."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from app.cli.serve import build_app
from tests.support.command_line import Result, Run, logging_restored


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ignores the settings in the environment and ``.env``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'groundlane.db'}")


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    with logging_restored():
        yield


def test_settings_are_listed_with_value_default_and_meaning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_HEARTBEAT_S", "3")
    result = run("settings")
    assert result.code == 0
    (line,) = [line for line in result.out.splitlines() if line.startswith("GROUNDLANE_HEARTBEAT_S")]
    assert line.split()[1:3] == ["3.0", "10.0"]
    assert line.endswith("Interval between the comments that keep a stream open while text is held")


def test_secrets_are_masked_in_the_list(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_ADMIN_TOKEN", "hunter2-hunter2-token")
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", "postgresql+asyncpg://app:hunter2@db/x")
    result = run("settings")
    assert "hunter2" not in result.out
    assert "postgresql+asyncpg://***@db/x" in result.out


@pytest.mark.parametrize("command", [("settings",), ("serve",), ("demo",), ("db", "upgrade")])
def test_bad_setting_stops_any_command_with_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GROUNDLANE_JUDGE_TIMEOUT_MS", "soon")
    result = run(*command)
    assert result.code == 2
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_JUDGE_TIMEOUT_MS: ")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("GROUNDLANE_UPSTREAM_BASEURL", "GROUNDLANE_UPSTREAM_BASE_URL"),
        ("GROUNDLANE_REQUIRE_KEY", "GROUNDLANE_REQUIRE_KEYS"),
        ("GROUNDLANE_STORETEXT", "GROUNDLANE_STORE_TEXT"),
        ("groundlane_databse_url", "GROUNDLANE_DATABASE_URL"),
        ("GROUNDLANE_ZZ", None),
    ],
)
@pytest.mark.parametrize("in_file", [False, True], ids=["in the environment", "in .env"])
def test_unknown_setting_is_named_with_the_nearest_known_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, nearest: str | None, in_file: bool
) -> None:
    if in_file:
        (tmp_path / ".env").write_text(f"{name}=x\n")
    else:
        monkeypatch.setenv(name, "x")
    for command in (("settings",), ("db", "upgrade")):
        result = run(*command)
        assert result.code == 0
        (line,) = result.err.splitlines()
        assert line.startswith(f"Warning: {name} is not a setting and has no effect.")
        assert line.endswith(f"Did you mean {nearest}?" if nearest else "lists all settings.")


def test_variables_of_other_programs_are_not_reported_as_unknown(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variables of the Python client, those that Kubernetes sets for a service named groundlane, and those in the
    configuration file.
    """
    for name in ("BASE_URL", "API_KEY", "SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT", "PORT_8080_TCP_ADDR", "EU_KEY"):
        monkeypatch.setenv(f"GROUNDLANE_{name}", "x")
    monkeypatch.setenv("GROUNDLANE_JUDGE_SERVICE_HOST", "x")
    config = tmp_path / "groundlane.toml"
    config.write_text('[[upstreams]]\nname = "eu"\nbase_url = "http://eu/v1"\napi_key_env = "GROUNDLANE_EU_KEY"\n')
    assert run("settings").err.count("\n") == 1
    monkeypatch.setenv("GROUNDLANE_CONFIG", str(config))
    assert run("settings").err == ""


def test_version_is_printed(run: Run) -> None:
    assert run("--version") == Result(0, f"groundlane {version('groundlane')}\n", "")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("ser", {"serve"}), ("k", {"keys"}), ("keys ", {"create", "list", "revoke"}), ("serve --po", {"--port"})],
)
def test_shell_completes_commands_and_options(tmp_path: Path, typed: str, offered: set[str]) -> None:
    command, words = tmp_path / "groundlane", f"groundlane {typed}"
    command.write_text("from app.cli.main import main\nmain()\n")
    place = str(len(words.split(" ")) - 1)
    asked = {"_GROUNDLANE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
    environment = {**os.environ, **asked, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, command], env=environment, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) >= offered


@pytest.mark.parametrize(
    ("options", "settings", "address"),
    [
        ([], {}, "http://127.0.0.1:8080/dashboard"),
        (["--host", "0.0.0.0", "--port", "9000"], {}, "http://localhost:9000/dashboard"),
        (["--host", "::1"], {}, "http://[::1]:8080/dashboard"),
        (["--port", "0"], {}, None),
        ([], {"GROUNDLANE_DASHBOARD": "false"}, None),
    ],
)
def test_serve_prints_the_address_of_the_dashboard(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: list[str], settings: dict[str, str], address: str | None
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("app.cli.serve.check_address", lambda _host, _port: None)
    monkeypatch.setattr("app.cli.serve.serve", lambda *_settings, **_address: None)
    lines = [line for line in run("serve", *options).err.splitlines() if line.startswith("Dashboard")]
    assert lines == ([] if address is None else [f"Dashboard: {address}"])


@pytest.mark.parametrize("token", ["x", "fifteen-letters", "padded          "])
def test_short_admin_token_stops_the_start_with_one_line(monkeypatch: pytest.MonkeyPatch, run: Run, token: str) -> None:
    monkeypatch.setenv("GROUNDLANE_ADMIN_TOKEN", token)
    result = run("serve")
    (line,) = result.err.splitlines()
    assert (result.code, line) == (
        2,
        "Error: GROUNDLANE_ADMIN_TOKEN: a token needs at least 16 characters, for example: openssl rand -hex 32",
    )


def test_invalid_secret_key_stops_the_start_with_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_SECRET_KEY", "hunter2")
    result = run("serve")
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_SECRET_KEY: not a Fernet key")
    assert "hunter2" not in result.err


def test_unknown_judge_stops_the_start_with_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_JUDGE", "oracle")
    result = run("serve")
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_JUDGE: judge 'oracle'")


def test_unsupported_database_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_DATABASE_URL", "mysql://root@db/x")
    result = run("db", "upgrade")
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_DATABASE_URL: ")


def test_file_that_is_not_a_database_fails_with_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "groundlane.db").write_text("This is no database. " * 100)
    result = run("db", "upgrade")
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert line.startswith("Error: GROUNDLANE_DATABASE_URL: ")


def test_database_is_created_and_can_be_upgraded_again(run: Run, tmp_path: Path) -> None:
    assert run("db", "upgrade") == Result(0, "The database is up to date.\n", "")
    assert run("db", "upgrade").code == 0
    with sqlite3.connect(tmp_path / "groundlane.db") as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert {"policies", "requests", "decisions"} <= tables


def test_invalid_arguments_are_refused(run: Run) -> None:
    result = run("serve", "--port", "70000")
    assert result.code == 2
    assert "--port" in result.err


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    file = tmp_path / "manual.txt"
    file.write_text("The warranty covers 24 months from the date of purchase. The pump works at 9 bar.", "utf-8")
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "verdict"),
    [
        ("The warranty covers 24 months from the date of purchase.", 0, "supported"),
        ("The warranty covers 36 months from the date of purchase.", 1, "has_contradictions"),
        ("The machine is sold together with a burr grinder.", 1, "has_unverifiable"),
        ("Hello! How can I help you?", 0, "no_claims"),
    ],
)
def test_text_is_checked_against_files(
    run: Run, tmp_path: Path, manual: Path, text: str, code: int, verdict: str
) -> None:
    (tmp_path / "text.txt").write_text(text, "utf-8")
    result = run("check", str(tmp_path / "text.txt"), str(manual), "--json")
    assert result.code == code
    report = json.loads(result.out)
    assert report["verdict"] == verdict
    assert report["grounded"] is (code == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "strict"),
    [
        ("The warranty covers 24 months from the date of purchase.", 0, 0),
        (
            "The warranty covers 24 months from the date of purchase. "
            "The machine is sold together with a burr grinder.",
            0,
            1,
        ),
        ("Hello!\n\n```\nprice = 9000\n```\n", 1, 1),
        (
            "<think>It covers 36 months.</think>The warranty covers 24 months from the date of purchase.",
            0,
            0,
        ),
    ],
)
def test_strict_check_accepts_no_unverifiable_claim(
    run: Run, tmp_path: Path, manual: Path, text: str, code: int, strict: int
) -> None:
    (tmp_path / "text.txt").write_text(text, "utf-8")
    checked = ("check", str(tmp_path / "text.txt"), str(manual), "--json")
    for result, expected in ((run(*checked), code), (run(*checked, "--strict"), strict)):
        assert result.code == expected
        assert json.loads(result.out)["grounded"] is (expected == 0)


def test_help_of_the_check_says_what_its_exit_codes_mean(run: Run) -> None:
    told = " ".join(run("check", "--help").out.replace("│", " ").split())
    for code, meaning in ((0, "the text is grounded"), (1, "it is not grounded"), (2, "it could not be checked")):
        assert f"{code} if {meaning}" in told


@pytest.mark.slow
def test_checked_text_is_shown_sentence_by_sentence(run: Run, tmp_path: Path, manual: Path) -> None:
    (tmp_path / "text.txt").write_text("The pump works at 9 bar. The pump works at 15 bar.", "utf-8")
    result = run("check", str(tmp_path / "text.txt"), str(manual))
    assert result.code == 1
    words = result.out.split()
    assert words.count("supported") >= 2
    assert words.count("contradicted") >= 2
    assert "\x1b" not in result.out


def test_missing_or_binary_file_is_named(run: Run, tmp_path: Path, manual: Path) -> None:
    missing = run("check", str(tmp_path / "missing.txt"), str(manual))
    assert (missing.code, missing.err) == (2, f"Error: {tmp_path / 'missing.txt'}: No such file or directory\n")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    binary = run("check", str(tmp_path / "image.png"), str(manual))
    assert (binary.code, binary.err) == (2, f"Error: {tmp_path / 'image.png'}: not a UTF-8 text file\n")


def test_judge_that_cannot_be_loaded_is_an_error(run: Run, manual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 would mean that the text is not grounded, which wasn't checked."""
    monkeypatch.setenv("GROUNDLANE_JUDGE", "none")
    result = run("check", str(manual), str(manual))
    assert result.code == 2
    assert result.err.startswith("Error: GROUNDLANE_JUDGE: the judge cannot be loaded")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments for uvicorn, and the folder for the workers' metrics."""
    calls: list[dict[str, Any]] = []

    def run(app: str, **options: Any) -> None:
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        calls.append({"app": app, "metrics": folder and Path(folder).is_dir(), **options})

    monkeypatch.setattr("uvicorn.run", run)
    return calls


def test_serve_shows_the_new_token_once_and_passes_its_options_on(
    run: Run, served: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, logging_as_before: None
) -> None:
    monkeypatch.setenv("GROUNDLANE_SHUTDOWN_GRACE_S", "7.2")
    first, second = run("serve", "--host", "0.0.0.0", "--port", "9000"), run("serve")
    assert re.search(r"^Admin token \(shown only once, store it now\): \S{40,}$", first.err, re.MULTILINE)
    assert "Admin token" not in second.err
    options = served[0]
    assert (options["host"], options["port"], options["workers"]) == ("0.0.0.0", 9000, 1)
    assert options["timeout_graceful_shutdown"] == 8
    assert options["access_log"] is False
    assert options["metrics"] is None


def test_several_workers_share_a_folder_for_their_metrics(
    run: Run, served: list[dict[str, Any]], logging_as_before: None
) -> None:
    run("serve", "--workers", "3")
    assert (served[0]["workers"], served[0]["metrics"]) == (3, True)
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


def test_worker_builds_its_app_from_the_environment(logging_as_before: None) -> None:
    assert build_app().title == "Groundlane"


def test_check_with_an_unknown_judge_names_the_setting(run: Run, manual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUNDLANE_JUDGE", "oracle")
    result = run("check", str(manual), str(manual))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Error: GROUNDLANE_JUDGE: judge 'oracle'")


@pytest.mark.slow
def test_text_is_not_grounded_in_an_empty_source(run: Run, tmp_path: Path, manual: Path) -> None:
    (tmp_path / "empty.txt").write_text("", "utf-8")
    result = run("check", str(manual), str(tmp_path / "empty.txt"), "--json")
    assert result.code == 1
    report = json.loads(result.out)
    assert report["verdict"] == "no_sources"
    assert {claim["best_source"] for claim in report["claims"]} == {None}
