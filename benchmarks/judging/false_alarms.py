"""Judges ordinary, grounded answers. Each claim that the judge doesn't find supported is a false alarm.

    python -m benchmarks.judging.false_alarms [--judge embedded] [--show]

Reports the share of supported claims. Also reports how many answers would be delivered completely if contradicted
claims, unsupported claims or unjudged text blocked a reply.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from judges.checker import GroundingChecker
from judges.cross_encoder.factory import open_scorer, spec_languages
from judges.label_thresholds import Thresholds
from judges.types import Chunk, GroundingReport, Label
from policies.citations.document_names import DocumentNames
from policies.citations.markers import names_only_documents

ANSWERS = Path(__file__).parents[2] / "tests" / "judges" / "data" / "ordinary_answers.jsonl"


async def judge(checker: GroundingChecker, row: dict[str, Any]) -> GroundingReport:
    """Return the report on one answer, which is read as in the gateway."""
    given = [Chunk(id=one["id"], text=one["text"], source=one["id"]) for one in row["documents"]]
    names = DocumentNames(given)
    reply = checker.reply(
        await checker.prepare(given),
        thresholds=Thresholds(),
        question=row["question"],
        message=row["question"],
        conversation=row["question"],
        resolves=lambda bracket: names_only_documents(bracket, names),
    )
    for sentence in [*reply.push(row["answer"]), *reply.flush()]:
        await reply.check(sentence)
    return reply.report()


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "none"


async def measure(arguments: argparse.Namespace) -> int:
    checker = GroundingChecker(open_scorer(arguments.judge), languages=spec_languages(arguments.judge), timeout_s=60.0)
    await checker.start()
    if checker.error is not None:
        print(checker.error)
        return 2
    rows = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
    labels: Counter[Label] = Counter()
    kinds: Counter[str | None] = Counter()
    whole: Counter[str] = Counter()
    for row in rows:
        report = await judge(checker, row)
        labels.update(claim.label for claim in report.claims)
        kinds.update({part.kind for part in report.unjudged})
        whole["contradicted claims"] += not report.contradicted_count
        whole["unsupported claims"] += report.supported_count == len(report.claims)
        whole["unjudged text"] += not report.unjudged
        if arguments.show:
            for claim in report.claims:
                if claim.label is not Label.SUPPORTED:
                    print(claim.label.value, claim.reason or "-", repr(claim.claim.text), sep="\t")
    await checker.aclose()
    print(f"{checker.name}: {len(rows)} answers, {labels.total()} claims")
    for label, count in labels.most_common():
        print(f"{label.value:14} {share(count, labels.total())}")
    for what, count in whole.items():
        print(f"answers delivered completely if {what} block: {share(count, len(rows))}")
    print(f"kinds of unjudged text, in answers: {dict(kinds)}")
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--show", action="store_true", help="print the claims that are not supported")
    sys.exit(asyncio.run(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
