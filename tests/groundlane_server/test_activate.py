"""The gateway's packages come first, even if others have the same names."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import groundlane_server
from groundlane_server import PACKAGES, ROOT, activate


def test_packages_come_first_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    activate()
    activate()
    assert sys.path == [ROOT, "/elsewhere"]
    assert all((Path(ROOT) / package).is_dir() for package in PACKAGES)


def test_process_that_has_another_package_of_the_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "app", ModuleType("app"))
    with pytest.raises(ImportError, match="a different package named 'app' is already imported"):
        activate()


@pytest.mark.parametrize("module", ["groundlane_server", "groundlane_server.judge_process"])
def test_each_program_runs_beside_packages_of_the_same_names(tmp_path: Path, module: str) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('the package of another project')\n")
    parent = Path(groundlane_server.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", module, *(["settings"] if module == "groundlane_server" else [])],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{parent}", "PATH": "/usr/bin:/bin"},
        input="",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
