"""The files under ``deploy``, parsed according to their purpose."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml", reason="needs the extra deploy")

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("sqlite-single", "postgres-production")
Document = dict[str, Any]


@cache
def rendered(folder: Path) -> list[Document]:
    """Kustomize's manifests for ``folder``; they are shared, so don't change them."""
    kubectl, kustomize = shutil.which("kubectl"), shutil.which("kustomize")
    if kubectl is None and kustomize is None:
        pytest.skip("needs kubectl or kustomize")
    command = [kustomize, "build"] if kubectl is None else [kubectl, "kustomize"]
    made = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    return list(yaml.safe_load_all(made.stdout))


def overlay(name: str) -> list[Document]:
    return rendered(DEPLOY / "kubernetes" / "overlays" / name)


def one(documents: list[Document], kind: str, name: str = "groundlane") -> Document:
    (found,) = [doc for doc in documents if doc["kind"] == kind and doc["metadata"]["name"].startswith(name)][:1]
    return found


def container(documents: list[Document]) -> Document:
    (found,) = one(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def load(path: str) -> Document:
    return dict(yaml.safe_load((DEPLOY / path).read_text("utf-8")))


def dockerfile() -> Mapping[str, str]:
    """The last of each instruction in the image's final stage."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text("utf-8"))
    final = text[text.rindex("\nFROM ") :]
    return dict(line.split(None, 1) for line in final.splitlines() if line and not line.startswith("#"))


def secrets(found: Any) -> Iterator[str]:
    """Every value in ``found`` where a key, a token or a password is expected."""
    if isinstance(found, dict):
        for name, value in found.items():
            if isinstance(value, str) and re.search(r"TOKEN|PASSWORD|SECRET|API_KEY|stringData", name):
                yield value
            yield from secrets(value)
    elif isinstance(found, list):
        for value in found:
            yield from secrets(value)
