"""What our sources never do: unpickle data, execute text as code, compare secrets with a timing leak, or open
connections in other than the known places."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("app", "policies", "judges", "migrations", "sdk/src")
SOURCES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))

PICKLING = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle", "yaml"}
EVALUATING = {"eval", "exec", "compile", "__import__"}
SECRET_NAMES = {"token", "secret", "password", "csrf", "signature", "digest", "api_key", "nonce"}
OPENERS = {
    "AsyncClient", "Client", "ClientSession", "HTTPTransport", "AsyncHTTPTransport", "AsyncOpenAI", "OpenAI", "urlopen",
    "open_connection", "create_connection", "HTTPConnection", "HTTPSConnection",
}  # fmt: skip
KNOWN_OPENERS = {
    "app/alerts/http_sender.py": "alerts, to public addresses unless a setting allows others",
    "app/identity/oidc.py": "the OpenID Connect provider, from the settings",
    "app/upstream/transport.py": "upstreams, from the settings",
    "app/cli/demo/walkthrough.py": "the demo's own gateway",
    "app/cli/policies.py": "`groundlane policies`, to the URL it is given",
    "judges/cross_encoder/services/service_client.py": "a judge's service, from the settings",
    "judges/cross_encoder/remote/json_client.py": "a judge served elsewhere, from the settings",
    "judges/llm/openai_chat_model.py": "the LLM judge, from the settings",
}

TRUSTED = {"False", "self._trust", "self.trust_remote_code"}
"""Values of ``trust_remote_code``: no, or the value in the user's own judge spec, whose default is no."""


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for file in SOURCES:
        name = file.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            yield name, node


def called(node: ast.AST) -> str:
    """The last part of a called name: ``load`` for ``torch.load(...)``."""
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
    return ""


def test_nothing_reads_pickles() -> None:
    found = []
    for name, node in nodes():
        match node:
            case ast.Import(names=names):
                found += [(name, alias.name) for alias in names if alias.name.partition(".")[0] in PICKLING]
            case ast.ImportFrom(module="pickle", names=[ast.alias(name="UnpicklingError")]):
                pass  # It reads nothing.
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in PICKLING:
                found.append((name, module))
            case ast.Call(func=ast.Attribute(attr="load", value=ast.Name(id="torch")), keywords=keywords):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in keywords}
                found += [] if given.get("weights_only") == "True" else [(name, "torch.load")]
            case ast.keyword(arg="allow_pickle", value=value) if ast.unparse(value) != "False":
                found.append((name, "allow_pickle"))
            case ast.keyword(arg="trust_remote_code", value=value) if ast.unparse(value) not in TRUSTED:
                found.append((name, "trust_remote_code"))
    assert found == []


def test_no_text_is_executed_as_code() -> None:
    found = [
        (name, called(node))
        for name, node in nodes()
        if isinstance(node, ast.Call)
        and ((isinstance(node.func, ast.Name) and node.func.id in EVALUATING) or called(node) in ("system", "popen"))
    ]
    found += [
        (name, "shell")
        for name, node in nodes()
        if isinstance(node, ast.keyword) and node.arg == "shell" and ast.unparse(node.value) == "True"
    ]
    assert found == []


def test_secrets_are_compared_in_constant_time() -> None:
    found = []
    for name, node in nodes():
        if name.startswith("app/") and "/protocols/" not in name and isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops) and any(map(_is_secret, sides)):
                found.append((name, ast.unparse(node)))
    assert found == []


def _is_secret(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_").lower() in SECRET_NAMES
    return False


def test_connections_are_opened_only_where_settings_allow() -> None:
    opened = {
        name for name, node in nodes() if not name.startswith(("sdk/", "judges/training/")) and called(node) in OPENERS
    }
    assert opened == set(KNOWN_OPENERS)


@pytest.mark.parametrize("path", ["app/dashboard/templates"])
def test_no_template_turns_escaping_off(path: str) -> None:
    unsafe = [file.name for file in (ROOT / path).rglob("*.html") if "|safe" in file.read_text().replace(" ", "")]
    assert unsafe == []
