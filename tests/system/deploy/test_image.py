"""The image and the Compose file: linted, in the form that their tools accept, and consistent with the gateway."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from tests.system.deploy.shipped import DEPLOY, ROOT, dockerfile, load, secrets

COMPOSE = DEPLOY / "compose" / "compose.yml"
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def example() -> dict[str, str]:
    lines = (DEPLOY / "compose" / ".env.example").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled_in() -> str:
    """The Compose file with the variables set as an operator may set them."""
    given = {name: value or "a-value" for name, value in example().items() if name != "GROUNDLANE_REDIS_URL"}

    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        assert kind == "-" or given.get(name), f"{name} is needed and not in .env.example"
        return given.get(name) or rest

    return VARIABLE.sub(value, COMPOSE.read_text("utf-8"))


def test_dockerfile_passes_the_linter() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    linter = str(beside) if beside.is_file() else shutil.which("hadolint")
    if linter is None:
        pytest.skip("needs the extra deploy (hadolint)")
    found = subprocess.run(
        [linter, "--no-color", "--failure-threshold", "style", str(ROOT / "Dockerfile")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr


def test_image_has_existing_extras_and_all_package_files() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (default,) = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    (of_ray,) = re.findall(r"--build-arg EXTRAS=(\S+)", text)
    assert {*default.split(","), of_ray} <= project["project"]["optional-dependencies"].keys()
    copied = set(re.findall(r"^COPY ([\w/-]+) \1$", text, re.MULTILINE))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert copied == {*wheel["only-include"], "large-judge"}
    ignore = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert copied | {"pyproject.toml", "README.md", "LICENSE"} == {line[1:] for line in ignore if line.startswith("!")}
    assert set(wheel["exclude"]) - {"judges/embedded/large"} <= set(ignore)


def test_dependencies_are_installed_before_files_that_change_more_often() -> None:
    _, _, build = (ROOT / "Dockerfile").read_text("utf-8").partition(" AS build\n")
    before, installed, after = build.partition("pip install -r requirements.txt\n")
    assert installed
    assert re.findall("^COPY .*", before, re.MULTILINE) == ["COPY --from=requirements /src/requirements.txt ./"]
    assert "COPY app app" in after


def test_image_and_wheel_contain_no_training_code() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "judges/training" in wheel["exclude"]
    assert "judges/training" in (ROOT / ".dockerignore").read_text("utf-8").splitlines()


def test_image_runs_unprivileged_and_writes_only_to_its_volume() -> None:
    final = dockerfile()
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final["USER"])
    assert (final["WORKDIR"], final["VOLUME"]) == ("/data", "/data")
    assert "GROUNDLANE_EVENT_JOURNAL=/data/" in final["ENV"]
    assert "GROUNDLANE_DATABASE_URL=sqlite+aiosqlite:////data/" in final["ENV"]
    assert "/healthz" in (ROOT / "Dockerfile").read_text("utf-8")


def test_compose_file_is_valid() -> None:
    specification: Any = pytest.importorskip("compose_spec", reason="needs the extra deploy")
    read = specification.PyCompose.from_yaml(filled_in())
    assert set(read.service_names()) == {"gateway", "postgres", "redis", "prometheus", "grafana"}
    with pytest.raises(Exception, match="read_onyl"):
        specification.PyCompose.from_yaml(filled_in().replace("read_only", "read_onyl", 1))


def test_gateway_in_the_compose_file_has_existing_settings_and_no_privileges() -> None:
    services = load("compose/compose.yml")["services"]
    gateway = services["gateway"]
    names = {name.removeprefix("GROUNDLANE_").lower() for name in gateway["environment"]}
    assert names <= Settings.model_fields.keys()
    assert gateway["read_only"] is True
    assert gateway["volumes"] == [f"journal:{dockerfile()['VOLUME']}"]
    for service in services.values():
        assert "no-new-privileges:true" in service["security_opt"]
    for name in services.keys() - {"postgres"}:
        assert services[name]["cap_drop"] == ["ALL"]
    assert gateway["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    (port,) = gateway["ports"]
    assert port.endswith(f":{dockerfile()['EXPOSE']}")
    assert all(VARIABLE.search(value) for value in secrets(services)), "no key and no password is in the file"


def test_mounts_of_the_compose_file_exist() -> None:
    for service in load("compose/compose.yml")["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (COMPOSE.parent / source).exists(), source
    assert load("compose/prometheus.yml")["rule_files"] == ["groundlane.rules.yml"]
    (source,) = load("compose/grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
