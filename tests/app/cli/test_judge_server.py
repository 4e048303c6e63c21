import signal
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.command_line import Run
from tests.support.gateways.server_process import Process

COMMAND = (sys.executable, "-m", "groundlane_server", "judge")


@pytest.mark.slow
def test_judge_is_served_until_stopped(tmp_path: Path) -> None:
    process = Process(tmp_path, "http://127.0.0.1:9", command=COMMAND, judge_api_key="s3cret")
    try:
        process.wait_until_up()
        key = {"authorization": "Bearer s3cret"}
        assert httpx.get(f"{process.url}/info").status_code == 401
        assert httpx.get(f"{process.url}/info", headers=key).json()["model"].startswith("embedded@")
        pair = {"evidence": "The warranty covers 24 months.", "claim": "The warranty covers 24 months."}
        answer = httpx.post(f"{process.url}/judge", json={"pairs": [pair]}, headers=key).json()
        assert answer["scores"][0]["entailed"] > 0.5
        assert process.stop() in (0, -signal.SIGTERM)
    finally:
        process.kill()
    assert not any("Traceback" in line for line in process.lines)


@pytest.mark.parametrize(
    ("judge", "code", "message"),
    [
        ("none", 2, "Error: GROUNDLANE_JUDGE: the judge server can't serve 'none': use 'http:' and 'none' only on"),
        ("embedded then http://judge if uncertain", 2, "Error: GROUNDLANE_JUDGE: the judge server can't serve"),
        ("embedded then preset:vectara", 2, "Error: GROUNDLANE_JUDGE: judge 'embedded then preset:vectara': expected"),
        ("preset:vectara", 1, "Error: GROUNDLANE_JUDGE: preset:vectara: no API key; set GROUNDLANE_VECTARA_API_KEY"),
        ("hhem-2.1-open", 2, "Error: GROUNDLANE_JUDGE: judge 'hhem-2.1-open': did you mean 'preset:hhem-2.1-open'?"),
        ("preset:minichek", 2, "Error: GROUNDLANE_JUDGE: unknown preset 'minichek'"),
        ("preset:minicheck-roberta-large?model=/none", 1, "Error: GROUNDLANE_JUDGE: "),
        ("onnx:/none", 1, "Error: GROUNDLANE_JUDGE: no such folder: /none"),
    ],
)
def test_judge_that_cannot_be_served_fails_with_one_line(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch, judge: str, code: int, message: str
) -> None:
    monkeypatch.setenv("GROUNDLANE_JUDGE", judge)
    monkeypatch.setattr("app.cli.judges.configure_logging", lambda *_: None)
    result = run("judge", "serve", "--port", "0")
    assert (result.code, result.out) == (code, "")
    (line,) = [line for line in result.err.splitlines() if line.startswith("Error: ")]
    assert line.startswith(message)
    assert "Traceback" not in result.err
