"""Three claims about a text, and the verdicts that the stand-in servers give on them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from judges.cross_encoder.remote.http_scorer import HttpScorer
from tests.support.judging.stub_models import Standin

EVIDENCE = "A cat is sleeping on the red sofa."
SAID, DENIED, OTHER = "A cat is sleeping.", "No cat is sleeping.", "A dog barks."
PAIRS = [(EVIDENCE, SAID), (EVIDENCE, DENIED), (EVIDENCE, OTHER)]
THREE_WAY = [(0.8, 0.1, 0.1), (0.1, 0.1, 0.8), (0.1, 0.8, 0.1)]


@asynccontextmanager
async def opened(server: Standin, url: str = "http://judge", **named: Any) -> AsyncIterator[HttpScorer]:
    scorer = HttpScorer(url, transport=server.transport, **named)
    try:
        await scorer.start()
        yield scorer
    finally:
        await scorer.aclose()


def rounded(scores: Any) -> list[tuple[float, float, float]]:
    return [(round(one.entailed, 4), round(one.neutral, 4), round(one.contradicted, 4)) for one in scores]
