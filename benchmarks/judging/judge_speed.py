"""Compares the speed of the judge with that of a plain cross-encoder that has the same weights, on the same pairs and
one core.

    python -m benchmarks.judging.judge_speed --plain FOLDER

``FOLDER`` contains ``fp32.onnx`` and ``int8.onnx``, which ``python -m judges.training plain`` writes. Each model judges
a reply of ten sentences against five chunks of 150 words. The models take turns in one run, and the CPU time includes
reading the evidence.
"""

import argparse
import asyncio
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.support.generated_texts import chunk, sentence
from judges import embedded
from judges.checker import GroundingChecker
from judges.cross_encoder import CachedEvidenceScorer
from judges.label_thresholds import Thresholds
from judges.types import Chunk

_ROUNDS = 7
_CHUNKS = 5
_SENTENCES = 10


async def main(folder: Path) -> None:
    """Measure the CPU times and print a table."""
    chunks = [Chunk(id=str(number), text=chunk(number)) for number in range(_CHUNKS)]
    reply = " ".join(sentence(number * 5 + 2) for number in range(_SENTENCES))
    scorer = CachedEvidenceScorer(embedded.FOLDER, threads=1)
    await scorer.start()
    bare = {name: _bare(folder / f"{name}.onnx", scorer, chunks, reply) for name in ("fp32", "int8")}
    times: dict[str, list[float]] = {name: [] for name in ("fp32", "int8", "judge", "judge, evidence read before")}
    for _ in range(_ROUNDS):
        for name, run in bare.items():
            times[name].append(await _timed(run))
        fresh = CachedEvidenceScorer(embedded.FOLDER, threads=1)
        checker = GroundingChecker(fresh)
        await checker.start()
        times["judge"].append(await _timed(lambda checker=checker: _judge(checker, chunks, reply)))
        times["judge, evidence read before"].append(
            await _timed(lambda checker=checker: _judge(checker, chunks, reply))
        )
        await checker.aclose()
    base = statistics.median(times["fp32"])
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:30} {middle * 1e3:8.1f} ms   {middle / base:6.1%} of fp32   {base / middle:5.1f} times as fast")
    print(
        f"peak resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB (both kinds loaded)"
    )


def _bare(file: Path, scorer: CachedEvidenceScorer, chunks: list[Chunk], reply: str) -> Callable[[], Awaitable[None]]:
    """Return a function that loops over all pairs of a sentence and a window, five at a time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    claims = [scorer.tokens(part + ".") for part in reply.split(". ")]
    windows = [scorer.tokens(one.text)[:128] for one in chunks]
    rest = [scorer.tokens(one.text)[128:] for one in chunks]
    width = max(len(claim) for claim in claims)

    async def run() -> None:
        for claim in claims:
            ids = np.array([[101, *claim, *([102] * (width - len(claim))), 102]] * len(windows), dtype=np.int64)
            for part in (windows, rest):
                size = max(len(window) for window in part)
                evidence = np.array(
                    [[*window, *([102] * (size - len(window))), 102] for window in part], dtype=np.int64
                )
                session.run(None, {"ids": ids, "evidence_ids": evidence})

    return run


async def _judge(checker: GroundingChecker, chunks: list[Chunk], reply: str) -> None:
    index = await checker.prepare(chunks)
    check = checker.reply(index, thresholds=Thresholds())
    sentences = [*check.push(reply), *check.flush()]
    for one in sentences:
        await check.check(one)


async def _timed(run: Callable[[], Awaitable[None]]) -> float:
    before = time.process_time()
    await run()
    return time.process_time() - before


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", type=Path, required=True)
    asyncio.run(main(parser.parse_args().plain))
