"""The gateway with a judge that takes no time and finds every claim supported, so that only the cost of the gateway
remains.
"""

from collections.abc import Sequence

from fastapi import FastAPI

from app.cli.serve import to_serve
from app.main import create_app
from app.observability import configure_logging
from app.settings import load_settings
from judges.testing import entails
from judges.types import Probabilities


class FreeJudge:
    name = "free"
    max_tokens = 512

    def count_tokens(self, text: str) -> int:
        return len(text) // 4 + 1

    async def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Probabilities]:
        return [entails()] * len(pairs)

    async def start(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def build_app() -> FastAPI:
    settings = load_settings()
    configure_logging(settings.log_level, settings.log_format)
    return to_serve(create_app(settings, scorer=FreeJudge()))
