"""Builds the judges from the settings, for commands that need no gateway and no database."""

from app.config import load_config
from app.judge_runtime.llm import open_llm_judge
from app.settings import Settings, SettingsError
from judges.cross_encoder import open_scorer
from judges.llm import LlmJudge
from judges.protocols import PairScorer


class JudgeMissingError(Exception):
    """The judge is unavailable. The message says why."""


def open_cross_encoder(settings: Settings) -> PairScorer | None:
    """Build the cross-encoder named in the settings, without loading it. Raises SettingsError if it is unknown."""
    try:
        key = settings.judge_api_key.get_secret_value() if settings.judge_api_key else None
        return open_scorer(settings.judge, threads=settings.judge_threads, api_key=key)
    except ValueError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None


def open_llm(settings: Settings) -> LlmJudge:
    """Build the LLM judge from the settings, without keys stored as secrets. Raises SettingsError."""
    upstreams = load_config(settings).upstreams if settings.llm_judge_model is not None else ()
    return open_llm_judge(settings, upstreams, _NoSecrets(), lambda _call: None)


class _NoSecrets:
    """An empty source of secrets: they are in the gateway's database, which is not open here."""

    def key(self, name: str) -> str | None:
        return None
