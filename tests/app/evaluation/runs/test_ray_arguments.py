"""What the judges on a Ray cluster receive, without a cluster."""

import orjson
import pytest
from pydantic import SecretStr

from app.evaluation.judging.case_judge import open_judge
from app.evaluation.runs.ray_engine import BatchJudge, judge_arguments
from app.settings import Settings
from judges.label_thresholds import Thresholds


def test_settings_are_passed_without_database_and_administration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = Settings(
        _env_file=None,
        openai_api_key=SecretStr("sk-judge"),
        admin_token=SecretStr("t" * 40),
        database_url="postgresql+asyncpg://user:password@host/db",
        llm_judge_model="gpt-4o-mini",
        max_sentence_chars=500,
    )
    arguments = judge_arguments(sent, open_judge(sent, thresholds=Thresholds(entailment=0.9)))
    assert b"password" not in arguments
    assert b"t" * 40 not in arguments
    received: list[object] = []

    def worker(*given: object) -> None:
        received.extend(given)

    monkeypatch.setattr("app.evaluation.runs.ray_engine.Worker", worker)
    monkeypatch.setenv("GROUNDLANE_MAX_SENTENCE_CHARS", "9")  # the node's setting is ignored
    BatchJudge(arguments)
    defaults = {name: Settings.model_fields[name].default for name in ("admin_token", "secret_key", "database_url")}
    assert received[0] == sent.model_copy(update=defaults)
    assert received[1:3] == ["cross-encoder", Thresholds(entailment=0.9)]
    assert received[3] == orjson.loads(arguments)["name"]
