"""The configuration file: its result, and errors as one line that names the key."""

from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.config import Config, Timeouts, load_config, read_config
from app.config.file_schema import UpstreamTable
from app.settings import Settings, SettingsError, UpstreamApi

MINIMAL = '[[upstreams]]\nname = "one"\nbase_url = "http://one.test/v1"\n'
ENVIRONMENT = {"ONE_KEY": "sk-one", "EMPTY": "  "}


def read(folder: Path, text: str) -> Config:
    path = folder / "groundlane.toml"
    path.write_text(text, "utf-8")
    return read_config(path, ENVIRONMENT)


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(folder, text)
    message = str(caught.value)
    prefix = f"GROUNDLANE_CONFIG: {folder / 'groundlane.toml'}: "
    assert message.startswith(prefix)
    assert "\n" not in message
    return message.removeprefix(prefix)


def test_left_out_keys_have_the_documented_defaults(tmp_path: Path) -> None:
    (spec,) = read(tmp_path, MINIMAL).upstreams
    assert (spec.name, spec.base_url, spec.api, spec.key) == ("one", "http://one.test/v1", UpstreamApi.OPENAI, None)
    assert (list(spec.models), dict(spec.alias), list(spec.fallback)) == (["*"], {}, [])
    assert spec.timeouts == Timeouts(connect=10, first_byte=600, between_bytes=600)
    assert (spec.retries, spec.retry_429, spec.max_retry_after, spec.max_connections) == (1, False, 10, 1000)
    assert (spec.accepts_documents, spec.proxy_from_env) == (False, False)


def test_every_key_is_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [[upstreams]]
        name = "azure"
        api = "azure"
        base_url = "https://x.openai.azure.com/"
        api_version = "2024-10-21"
        api_key_env = "ONE_KEY"
        models = ["gpt-[45]*"]
        alias = { "house-*" = "deployment" }
        headers = { X-Team = "a b" }
        accepts_documents = true
        timeouts = { connect = 1, first_byte = 2.5 }
        retries = 3
        retry_429 = true
        max_retry_after = 1.5
        fallback = ["one"]
        max_connections = 7
        proxy_from_env = true
        """
        + MINIMAL,
    )
    spec = config.upstreams[0]
    assert spec.key is not None
    assert (spec.key.get_secret_value(), spec.base_url) == ("sk-one", "https://x.openai.azure.com")
    assert (spec.api_version, list(spec.models), dict(spec.alias)) == (
        "2024-10-21",
        ["gpt-[45]*"],
        {"house-*": "deployment"},
    )
    assert dict(spec.headers) == {"x-team": "a b"}
    assert spec.timeouts == Timeouts(connect=1, first_byte=2.5, between_bytes=600)
    assert (spec.retries, spec.retry_429, spec.max_retry_after, list(spec.fallback)) == (3, True, 1.5, ["one"])
    assert (spec.accepts_documents, spec.max_connections, spec.proxy_from_env) == (True, 7, True)


def test_key_is_hidden_in_the_representation(tmp_path: Path) -> None:
    assert "sk-one" not in repr(read(tmp_path, MINIMAL + 'api_key_env = "ONE_KEY"\n'))


def test_key_can_be_stored_as_a_secret(tmp_path: Path) -> None:
    spec = read(tmp_path, MINIMAL + 'api_key = "secret:open-ai.1"\n').upstreams[0]
    assert (spec.key, spec.secret) == (None, "open-ai.1")


@pytest.mark.parametrize("config", [None, MINIMAL + 'api_key = "secret:openai"\n'])
def test_stored_secret_requires_the_secret_key(tmp_path: Path, config: str | None) -> None:
    values: dict[str, Any] = {"upstream_api_key": "secret:openai"}
    if config is not None:
        (tmp_path / "c.toml").write_text(config, "utf-8")
        values = {"config": str(tmp_path / "c.toml")}
    with pytest.raises(SettingsError, match="GROUNDLANE_SECRET_KEY: not set, but an upstream uses the secret 'openai'"):
        load_config(Settings(_env_file=None, **values))
    (spec,) = load_config(Settings(_env_file=None, secret_key="x", **values)).upstreams
    assert (spec.key, spec.secret) == (None, "openai")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "upstreams: missing"),
        ("upstreams = []", "upstreams: List should have at least 1 item"),
        ("[[upstream]]\n" + MINIMAL, "upstream: unknown key"),
        (MINIMAL + 'colour = "red"', "upstreams[0].colour: unknown key"),
        (MINIMAL + "timeouts = { read = 1 }", "upstreams[0].timeouts.read: unknown key"),
        (MINIMAL + "timeouts = { connect = 0 }", "upstreams[0].timeouts.connect: Input should be greater than 0"),
        ('[[upstreams]]\nbase_url = "http://x"', "upstreams[0].name: missing"),
        ('[[upstreams]]\nname = "a b"\nbase_url = "http://x"', "upstreams[0].name: String should match"),
        ('[[upstreams]]\nname = "a"\nbase_url = "x"', "upstreams[0].base_url: Input should be a valid URL"),
        ('[[upstreams]]\nname = "a"\nbase_url = "http://u:p@x/v1"', "upstreams[0].base_url: a username or password"),
        ('[[upstreams]]\nname = "a"\nbase_url = "http://x/v1?a=b"', "upstreams[0].base_url: a query"),
        (MINIMAL + 'api = "cohere"', "upstreams[0].api: Input should be 'openai', 'azure' or 'anthropic'"),
        (MINIMAL + 'api = "azure"', "upstreams[0].api_version: required unless base_url ends in /openai/v1"),
        (MINIMAL + 'api_version = "1"', 'upstreams[0].api_version: only for api = "azure"'),
        (MINIMAL + 'api_key_env = "NO_KEY"', "upstreams[0].api_key_env: the environment variable NO_KEY is not set"),
        (MINIMAL + 'api_key_env = "EMPTY"', "upstreams[0].api_key_env: the environment variable EMPTY is not set"),
        (MINIMAL + 'api_key = "sk-hunter2"', "upstreams[0].api_key: API keys are not allowed in this file"),
        (MINIMAL + 'api_key = "secret:a/b"', "upstreams[0].api_key: API keys are not allowed in this file"),
        (
            MINIMAL + 'api_key_env = "ONE_KEY"\napi_key = "secret:a"',
            "upstreams[0].api_key: cannot be combined with api_key_env",
        ),
        (MINIMAL + 'models = "gpt-*"', "upstreams[0].models: Input should be a valid list"),
        (MINIMAL + 'models = ["a", "gpt-[4"]', "upstreams[0].models[1]: invalid glob 'gpt-[4': unclosed '['"),
        (MINIMAL + 'models = [""]', "upstreams[0].models[0]: String should have at least 1 character"),
        (MINIMAL + 'alias = { "x[" = "y" }', "upstreams[0].alias.x[: invalid glob 'x['"),
        (MINIMAL + 'headers = { "a b" = "c" }', "upstreams[0].headers.a b: invalid header name 'a b'"),
        (
            MINIMAL + 'headers = { Authorization = "c" }',
            "upstreams[0].headers.Authorization: the gateway sets 'Authorization'",
        ),
        (MINIMAL + 'headers = { a = "b\\r\\nc: d" }', "upstreams[0].headers.a: String should match"),
        (MINIMAL + "retries = 11", "upstreams[0].retries: Input should be less than or equal to 10"),
        (MINIMAL + 'retries = "1"', "upstreams[0].retries: Input should be a valid integer"),
        (MINIMAL + 'fallback = ["two"]', "upstreams[0].fallback: unknown upstream 'two'"),
        (MINIMAL + 'fallback = ["one"]', "upstreams[0].fallback: circular: one > one"),
        (MINIMAL + MINIMAL, "upstreams[1].name: duplicate name 'one'"),
        (MINIMAL + '[[policies]]\nname = "p"\ncategory = "taste"', "policies[0]."),
        (MINIMAL + '[[policies]]\ncategory = "retrieval"', "policies[0].name: Field required"),
        (
            MINIMAL + '[[policies]]\nname = "p"\ncategory = "retrieval"\nrules = { min_chunks = -1 }',
            "policies[0].rules.min_chunks: ",
        ),
        (
            MINIMAL + '[[policies]]\nname = "p"\ncategory = "retrieval"\n' * 2,
            "policies[1].name: duplicate name 'p'",
        ),
        ("upstreams = [", "Invalid value"),
    ],
)
def test_errors_name_the_key(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


def test_circular_fallbacks_are_reported(tmp_path: Path) -> None:
    table = '[[upstreams]]\nname = "{}"\nbase_url = "http://x/v1"\nfallback = {}\n'
    text = (
        table.format("a", '["b"]')
        + table.format("b", '["d", "c"]')
        + table.format("c", '["b"]')
        + table.format("d", "[]")
    )
    assert complaint(tmp_path, text) == "upstreams[1].fallback: circular: b > c > b"


def test_two_paths_to_one_fallback_are_no_circle(tmp_path: Path) -> None:
    table = '[[upstreams]]\nname = "{}"\nbase_url = "http://x/v1"\nfallback = {}\n'
    text = table.format("a", '["b", "c"]') + table.format("b", '["c"]') + table.format("c", "[]")
    assert [list(spec.fallback) for spec in read(tmp_path, text).upstreams] == [["b", "c"], ["c"], []]


@pytest.mark.parametrize("glob", ["gpt-[45]", "[!a]*", "[]]", "a]b", "?", "*"])
def test_globs_of_every_kind_are_accepted(tmp_path: Path, glob: str) -> None:
    (spec,) = read(tmp_path, f'{MINIMAL}models = ["{glob}"]').upstreams
    assert list(spec.models) == [glob]


def test_missing_or_binary_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "missing.toml"
    with pytest.raises(SettingsError, match=r"missing\.toml: No such file or directory$"):
        read_config(path, {})
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"missing\.toml: not a UTF-8 text file$"):
        read_config(path, {})


def test_policies_are_validated_with_defaults(tmp_path: Path) -> None:
    text = MINIMAL + '[[policies]]\nname = "p"\ncategory = "retrieval"\nrules = { max_chunks = 3 }\npriority = 5'
    (draft,) = read(tmp_path, text).policies
    assert (draft.name, draft.priority, draft.rules["max_chunks"], draft.rules["min_chunks"]) == ("p", 5, 3, 1)


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **values)


def test_without_a_file_the_settings_define_the_upstream() -> None:
    config = load_config(
        settings(upstream_base_url="http://x.test/v1/", upstream_api_key="sk-1", read_timeout_s=5, connect_timeout_s=2)
    )
    (spec,) = config.upstreams
    assert (spec.name, spec.base_url, list(spec.models), spec.retries) == ("default", "http://x.test/v1", ["*"], 0)
    assert spec.timeouts == Timeouts(connect=2, first_byte=5, between_bytes=5)
    assert config.policies == ()


def test_azure_from_settings_uses_the_newer_api() -> None:
    base = "https://x.openai.azure.com/openai"
    assert load_config(settings(upstream_api="azure", upstream_base_url=f"{base}/v1")).upstreams[0].api_version is None
    with pytest.raises(SettingsError, match=r"^GROUNDLANE_UPSTREAM_API: azure requires"):
        load_config(settings(upstream_api="azure", upstream_base_url=base))


def test_keys_come_from_the_environment_or_the_env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("FILE_KEY=sk-file\nBOTH_KEY=sk-file\n", "utf-8")
    monkeypatch.setenv("BOTH_KEY", "sk-environment")
    second = MINIMAL.replace("one", "two")
    (tmp_path / "c.toml").write_text(f'{MINIMAL}api_key_env = "FILE_KEY"\n{second}api_key_env = "BOTH_KEY"\n', "utf-8")
    keys = [spec.key.get_secret_value() for spec in load_config(settings(config="c.toml")).upstreams if spec.key]
    assert keys == ["sk-file", "sk-environment"]


def test_invalid_file_stops_the_start_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text(MINIMAL + 'colour = "red"', "utf-8")
    monkeypatch.setenv("GROUNDLANE_CONFIG", "bad.toml")
    monkeypatch.setattr("sys.argv", ["groundlane", "serve"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "Error: GROUNDLANE_CONFIG: bad.toml: upstreams[0].colour: unknown key\n"


PAGE = Path(__file__).parents[3] / "docs" / "operations" / "upstreams.md"


def test_example_in_the_documentation_is_valid(tmp_path: Path) -> None:
    example = PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    path = tmp_path / "groundlane.toml"
    path.write_text(example, "utf-8")
    config = read_config(path, {"OPENAI_API_KEY": "k", "AZURE_OPENAI_API_KEY": "k"})
    assert [spec.name for spec in config.upstreams] == ["openai", "azure", "local"]
    assert [draft.name for draft in config.policies] == ["manuals"]


def test_every_key_is_documented() -> None:
    page = PAGE.read_text("utf-8")
    assert [name for name in UpstreamTable.model_fields if f"| `{name}` |" not in page] == []
