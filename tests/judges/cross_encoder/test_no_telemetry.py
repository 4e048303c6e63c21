"""ONNX Runtime keeps a telemetry file under the home directory; here it has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
JUDGE = """
import asyncio
from judges.cross_encoder import open_scorer

async def judge():
    scorer = open_scorer("embedded", threads=1)
    await scorer.start()
    await scorer.score([("It rains.", "It rains.")])
    await scorer.aclose()

asyncio.run(judge())
"""


@pytest.mark.slow
def test_judging_leaves_no_file_in_the_home_directory(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("XDG_CACHE_HOME", None)
    ended = subprocess.run([sys.executable, "-c", JUDGE], env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert list(tmp_path.rglob("*")) == []
