"""Measures how well the judge detects irrelevant and incomplete replies.

    python -m benchmarks.judging.answer_relevance [FILE]

For each question, FILE (default: ``answers.txt``) has a line for the document (D), the question (Q), a direct answer
(G), an answer in other words (P), a true statement that answers a different question (O), an evasive or partial answer
(H) and a refusal (R). The embedded judge compares each reply with its document. The direct answer to a different
question serves as another off-topic reply (X).
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from judges.answer_relevance import answer_relevance, answered_parts, question_parts
from judges.checker import GroundingChecker
from judges.cross_encoder.factory import open_scorer
from judges.label_thresholds import Thresholds
from judges.training.evaluation.metrics import roc_auc
from judges.types import Chunk, ClaimVerdict

_ELSEWHERE = 7
_LOW = 0.2

Item = Mapping[str, str]


def items(path: Path) -> list[dict[str, str]]:
    """Return the questions in a file, each with its other lines."""
    found: list[dict[str, str]] = []
    for line in path.read_text("utf-8").splitlines():
        kind, _, text = line.partition(" ")
        if kind == "D":
            found.append({})
        found[-1][kind] = text
    for place, item in enumerate(found):
        item["X"] = found[(place + _ELSEWHERE) % len(found)]["G"]
    return found


async def _judged(checker: GroundingChecker, item: Item, kind: str) -> Sequence[ClaimVerdict]:
    evidence = await checker.prepare([Chunk(id="d", text=item["D"])])
    reply = checker.reply(evidence, thresholds=Thresholds(), question=item["Q"], conversation=item["Q"])
    verdicts = [await reply.check(sentence) for sentence in [*reply.push(item[kind]), *reply.flush()]]
    return [claim for verdict in verdicts for claim in verdict.claims]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=Path(__file__).with_name("answers.txt"))
    given = items(parser.parse_args().file)
    scorer = open_scorer("embedded")
    assert scorer is not None
    checker = GroundingChecker(scorer)
    await checker.start()
    claims = {(n, kind): await _judged(checker, item, kind) for n, item in enumerate(given) for kind in "GPOHRX"}
    await checker.aclose()
    scores = {kind: [answer_relevance(item["Q"], claims[n, kind]) for n, item in enumerate(given)] for kind in "GPOHRX"}
    known = {kind: [score for score in found if score is not None] for kind, found in scores.items()}
    for kind, found in known.items():
        low = sum(score < _LOW for score in found)
        print(f"{kind}: {len(found)} of {len(given)} scored, {low} below {_LOW}")
    for good, bad in (("G", "O"), ("P", "O"), ("GP", "O"), ("GP", "X"), ("GP", "H")):
        found, wrong = ([score for kind in kinds for score in known[kind]] for kinds in (good, bad))
        positive = np.arange(len(found) + len(wrong)) < len(found)
        print(f"ROC-AUC {good} against {bad}: {roc_auc(np.array([*found, *wrong]), positive):.3f}")
    several = [n for n, item in enumerate(given) if item["Q"].count(" and ") and len(question_parts(item["Q"])) > 1]
    for kind in "GPH":
        missing = sum(_lacks(given[n], claims[n, kind]) for n in several)
        print(f"{kind}: a part is reported as unanswered in {missing} of {len(several)} replies to several questions")


def _lacks(item: Item, claims: Sequence[ClaimVerdict]) -> bool:
    parts = answered_parts(item["Q"], claims, [Chunk(id="d", text=item["D"])])
    return any(part.in_documents and not part.in_reply for part in parts)


if __name__ == "__main__":
    asyncio.run(main())
