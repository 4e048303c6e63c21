"""Compiles TypeScript against the client for JavaScript and other packages, in a folder where Node.js finds them."""

import shutil
from pathlib import Path

import pytest

from tests.system.clients import processes
from tests.system.clients.registry import missing_on_node

ROOT = Path(__file__).parents[4]
CLIENT = ROOT / "sdk-js"
_STRICT = "--strict --noUncheckedIndexedAccess --exactOptionalPropertyTypes --noUnusedLocals --verbatimModuleSyntax"
_TARGET = "--target ES2022 --lib ES2022,DOM,DOM.Iterable --module NodeNext --moduleResolution NodeNext --skipLibCheck"


def needs(*packages: str) -> None:
    """Skip the test if a package for Node.js is missing."""
    for package in packages:
        if missing := missing_on_node(package):
            pytest.skip(missing)


def project(folder: Path) -> Path:
    """Make ``folder`` a project of ES modules that finds the installed packages."""
    modules = folder / "node_modules"
    modules.mkdir(parents=True)
    for installed in (processes.NODE_HOME / "node_modules").iterdir():
        (modules / installed.name).symlink_to(installed)
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    return folder


def install_client(folder: Path) -> None:
    """Build the client, with its own settings, and install it into the project in ``folder``."""
    package = folder / "node_modules" / "groundlane"
    package.mkdir()
    for name in ("package.json", "tsconfig.json", "src"):
        copy = shutil.copytree if (CLIENT / name).is_dir() else shutil.copy
        copy(CLIENT / name, package / name)
    tsc(package)
    shutil.rmtree(package / "src")


def compile_strictly(folder: Path, *files: str) -> None:
    """Compile ``files`` of the project in ``folder`` to JavaScript beside them. Raises AssertionError."""
    tsc(folder, *_STRICT.split(), *_TARGET.split(), "--types", "node", *files)


def tsc(folder: Path, *arguments: str) -> None:
    """Run the compiler in ``folder``. Raises AssertionError with what it says."""
    compiler = processes.NODE_HOME / "node_modules" / "typescript" / "bin" / "tsc"
    processes.run(["node", str(compiler), "--pretty", "false", *arguments], cwd=folder)
