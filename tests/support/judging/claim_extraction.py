"""Extracts the claims in a whole text."""

import asyncio

from judges.claims.extraction import HeuristicClaimExtractor
from judges.sentences.splitter import IncrementalSplitter
from judges.types import Claim


def extract(text: str) -> list[Claim]:
    splitter, extractor = IncrementalSplitter(), HeuristicClaimExtractor(message="")
    sentences = [*splitter.push(text), *splitter.flush()]
    return [
        claim
        for place, sentence in enumerate(sentences)
        for claim in asyncio.run(extractor.extract(sentence, sentences[:place]))
    ]
