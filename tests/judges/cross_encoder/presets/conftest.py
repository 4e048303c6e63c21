"""Opens presets on tiny models of the same architecture."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from judges.cross_encoder import open_scorer
from judges.protocols import PairScorer


@pytest.fixture
async def open_preset() -> AsyncIterator[Callable[..., Awaitable[PairScorer]]]:
    """Opens and starts a preset on the model in a folder; closes it after the test."""
    async with AsyncExitStack() as stack:

        async def open_(name: str, model: Path, **options: str) -> PairScorer:
            query = "&".join(
                f"{key}={value}" for key, value in {"model": str(model), "device": "cpu", **options}.items()
            )
            scorer = open_scorer(f"preset:{name}?{query}", threads=1)
            assert scorer is not None
            stack.push_async_callback(scorer.aclose)
            await scorer.start()
            return scorer

        yield open_
