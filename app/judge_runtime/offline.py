"""Builds the judges from the settings, for commands that need no gateway and no database."""

from app.config import load_config
from app.judge_runtime.llm import open_llm_judge
from app.judge_runtime.remote_access import judge_access
from app.settings import Settings, SettingsError
from judges.cross_encoder import open_scorer
from judges.llm import LlmJudge
from judges.protocols import PairScorer

_TIMEOUT_S = 60.0
"""Time limit per request to a remote judge. It is long, because no user waits for the result, and a service may ask for
pauses between requests.
"""


class JudgeMissingError(Exception):
    """The judge is unavailable. The message says why."""


def open_cross_encoder(settings: Settings) -> PairScorer | None:
    """Build the cross-encoder named in the settings, without loading it. Raises SettingsError if it is unknown."""
    try:
        access = judge_access(settings, timeout_s=_TIMEOUT_S)
        return open_scorer(settings.judge, threads=settings.judge_threads, access=access)
    except ValueError as error:
        raise SettingsError(f"GROUNDLANE_JUDGE: {error}") from None


def open_llm(settings: Settings) -> LlmJudge:
    """Build the LLM judge from the settings, without keys stored as secrets. Raises SettingsError."""
    upstreams = load_config(settings).upstreams if settings.llm_judge_model is not None else ()
    return open_llm_judge(settings, upstreams, _NoSecrets(), lambda _call: None)


class _NoSecrets:
    """An empty source of secrets. Secrets are stored in the gateway's database, which is not open here."""

    def key(self, name: str) -> str | None:
        return None
