"""Checks blocks without running them."""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main

from app.cli.main import cli
from app.config import parse_policies, read_config
from app.evaluation.cases.case import read_case
from app.policy_admin.policy_document import parse_document
from app.protocols.documents import Limits, read_chat
from app.settings import Settings
from app.text_checks.request import read_check
from judges.llm import PriceTable
from tests.system.documentation.blocks import ROOT, Block

LIMITS = Limits(documents=1000)
_POLICY = frozenset({"name", "category"})
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
_TARGETS = frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def check_python(block: Block) -> None:
    compile(block.code, block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def check_data(block: Block, folder: Path) -> None:
    """Fails if the block isn't valid in its language, or if the gateway would reject it."""
    value = _parsed(block)
    if "parsed" in block.comments or "prints" in block.comments:
        return
    if block.language == "toml":
        check_file(block, value, folder)
        return
    for item in value if isinstance(value, list) else [value]:
        if not (isinstance(item, dict) and check_object(item)):
            pytest.fail(
                f"{block.where}: this {block.language.upper()} isn't a policy, request, check or case for the gateway. "
                f"If it is the output of the block before it, add <!-- prints -->; if it is for another program, add "
                f"<!-- parsed: WHOSE FORMAT -->.",
                pytrace=False,
            )


def _parsed(block: Block) -> Any:
    match block.language:
        case "json":
            return json.loads(block.code)
        case "jsonl":
            return [json.loads(line) for line in block.code.splitlines()]
        case "toml":
            return tomllib.loads(block.code)
        case _:
            yaml = pytest.importorskip("yaml")
            return list(yaml.safe_load_all(block.code))


def check_object(item: Mapping[str, Any]) -> bool:
    """Parse ``item`` with the gateway's own reader, and raise its errors. False if the gateway has no reader for it."""
    if item.keys() >= _POLICY and "policy_id" not in item:
        parse_document(dict(item))
    elif "messages" in item:
        read_chat(json.dumps(item).encode(), {}, LIMITS)
    elif "text" in item and item.keys() & {"sources", "documents"}:
        read_check(item, LIMITS)
    elif "output" in item:
        read_case(item)
    else:
        return False
    return True


def check_file(block: Block, tables: Mapping[str, Any], folder: Path) -> None:
    """Check a configuration of the gateway (with all its variables set), policies, or model prices."""
    file = folder / "block.toml"
    file.write_text(block.code, "utf-8")
    if "upstreams" in tables:
        read_config(file, dict.fromkeys(re.findall(r'api_key_env = "(\w+)"', block.code), "sk-key"))
    elif "policies" in tables:
        parse_policies(tables["policies"])
    else:
        PriceTable.read(file)


# Commands


def check_shell(block: Block) -> None:
    """Check the syntax, and that Groundlane's commands and options, targets, extras, modules and settings exist."""
    done = subprocess.run(["bash", "-n"], input=block.code, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, f"{block.where}: {done.stderr}"
    wrong = [what for line in _lines(block.code) for what in _wrong(line)]
    unknown = set(re.findall(r"\bGROUNDLANE_[A-Z_]+", block.code)) - _settings()
    wrong += [f"there is no setting {name}" for name in sorted(unknown)]
    assert wrong == [], f"{block.where}: {'; '.join(wrong)}"


def _settings() -> set[str]:
    of_the_client = {"GROUNDLANE_BASE_URL", "GROUNDLANE_API_KEY"}
    of_tests = {f"GROUNDLANE_TEST_{name}" for name in ("POSTGRES_URL", "RAY", "CLIENTS", "NODE", "WHEEL")}
    return {f"GROUNDLANE_{name.upper()}" for name in Settings.model_fields} | of_the_client | of_tests


def _lines(code: str) -> Iterator[list[str]]:
    """The commands of a script, split into words, as far as possible without running it."""
    for line in code.replace("\\\n", " ").split("\n"):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();&|<>")
        lexer.whitespace_split = True
        words: list[str] = []
        try:
            for word in lexer:
                if set(word) <= set("();&|"):
                    yield words
                    words = []
                else:
                    words.append(word.removeprefix("KEY=$").removeprefix("$"))
        except ValueError:  # a quotation that continues on the next line; the command is on its first line
            pass
        yield words


def _wrong(words: list[str]) -> Iterator[str]:
    while words and re.match(r"^(export|sudo|time|nice|[A-Z_]+=.*)$", words[0]):
        words = words[1:]
    if not words:
        return
    program, arguments = words[0].rpartition("/")[2], words[1:]
    if program == "groundlane":
        yield from _wrong_command(arguments)
    elif program == "make" and arguments and arguments[0] not in _TARGETS and "=" not in arguments[0]:
        yield f"the Makefile has no target {arguments[0]!r}"
    elif program.startswith("python") and arguments[:1] == ["-m"]:
        if arguments[1] == "pip":
            yield from _wrong_extras(arguments[2:])
        elif not _module(arguments[1]):
            yield f"there is no module {arguments[1]}"
    elif program == "pip":
        yield from _wrong_extras(arguments)


def _wrong_command(arguments: list[str]) -> Iterator[str]:
    command: Any = typer.main.get_command(cli)
    while children := getattr(command, "commands", None):
        if arguments[:1] in (["--help"], ["…"]):
            return
        if not arguments or arguments[0] not in children:
            yield f"groundlane has no command {' '.join(arguments[:2])!r}"
            return
        command, arguments = children[arguments[0]], arguments[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in arguments:
        if word.startswith("-") and word != "-" and word.partition("=")[0] not in known | {"--help"}:
            yield f"{command.name} has no option {word}"


def _wrong_extras(arguments: list[str]) -> Iterator[str]:
    of_the_client = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text("utf-8"))["project"]
    for word in arguments:
        if found := re.match(r"^(groundlane|\.|\./sdk|groundlane-sdk)\[([\w,-]+)\]", word):
            project = of_the_client if "sdk" in found[1] else _PROJECT
            for extra in found[2].split(","):
                if extra not in project["optional-dependencies"]:
                    yield f"{found[1]} has no extra {extra!r}"


@cache
def _module(name: str) -> bool:
    first, *_ = parts = name.split(".")
    if (ROOT / first).is_dir():
        path = ROOT.joinpath(*parts)
        return path.with_suffix(".py").exists() or path.is_dir()
    return find_spec(first) is not None
