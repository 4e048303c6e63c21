"""Measures how the CPU time for reading text grows with its length. For any kind of text, four times as much may take
at most five times as long.

    python -m benchmarks.growth [--full] [--sizes N,4N,...] [--only SHAPE,...] [--stages STAGE,...] [--loop]

Each shape of text is designed to provoke quadratic work, such as tables, short sentences, unclosed brackets, or one
long word. A shape is read in seven ways:

reply a reply that arrives in deltas, by ``GroundingChecker`` with a scripted judge whole the same reply in one piece
json a JSON reply that contains the shape as a string, unless the shape is JSON itself gateway a streamed reply that an
in-process gateway holds, judges and records unary the same, but not streamed and without a supported claim, so that all
of it is left out document a document, which is cut into windows, indexed and compared with a claim request the body of
a request, with the shape as message and as document

The table shows the CPU seconds (``time.process_time``) for each size, and the ratio to the previous size, which is a
quarter as long. Work that takes less than a second is measured three times, and the median counts. The exit status is 1
if a ratio exceeds 5. Work under 50 ms is not compared. With ``--loop``, the benchmark instead measures the CPU time of
the longest step on the event loop. The exit status is then 1 if a step takes more than 20 ms.
"""

import argparse
import asyncio
import gc
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from app.cli.process_tuning import tune
from app.events.records import RecordedRequest
from app.protocols.documents import Limits, read_chat
from judges.checker import GroundingChecker
from judges.concurrency import MAX_INLINE_SPLIT_CHARS, run
from judges.label_thresholds import Thresholds
from judges.testing import ScriptedJudge, entails
from judges.types import Chunk
from tests.support.gateways.in_process_gateway import TRUE, Bench, bench, policy, said
from tests.support.gateways.in_process_gateway import whole as completion

MAX_RATIO = 5.0
MAX_STEP_S = 0.02
QUICK, FULL = (20_000, 80_000), (20_000, 80_000, 320_000, 1_280_000)
_LEAST_S = 0.05
"""Work that takes less CPU time is too short to measure growth."""
_SHORT_S = 1.0
"""Work that takes less CPU time is measured repeatedly, because other programs on the machine can slow down a single
run."""
_REPEATS = 3
_WARM_UP = 2_000
_DELTA = 64
_DOCUMENT = f"{TRUE} The canteen opens at 8:00 and closes at 14:30. A parking permit costs 12 euros a month."
_CLAIM = "The canteen opens at 8:00 and a parking permit costs 12 euros."


def _repeated(text: str) -> Callable[[int], str]:
    return lambda size: (text * (size // len(text) + 1))[:size]


def _numbered(line: Callable[[int], str], before: str = "") -> Callable[[int], str]:
    def make(size: int) -> str:
        lines, length = [before], len(before)
        for number in itertools.count():
            if length >= size:
                return "".join(lines)
            lines.append(line(number))
            length += len(lines[-1])
        raise AssertionError

    return make


def _wide_table(size: int) -> str:
    columns = size // 24
    names = "|".join(f"Column {number}" for number in range(columns))
    values = "|".join(str(number) for number in range(columns))
    return f"|{names}|\n|{'---|' * columns}\n|{values}|\n"


def _deep_json(size: int) -> str:
    depth = size // 12
    return '{"level": ' * depth + "24" + "}" * depth


def _wide_json(size: int) -> str:
    return json.dumps({f"key_{number}": number for number in range(size // 20)})


def _array_json(size: int) -> str:
    return json.dumps([f"The permit {number} costs 12 euros a month." for number in range(size // 44)])


SHAPES: dict[str, Callable[[int], str]] = {
    "prose": _numbered(lambda n: f"In the year {1900 + n % 120} the library counted {n} maps before noon. "),
    "long table": _numbered(
        lambda n: f"| Town {n} | {n * 7} | {n % 100}.5 % |\n", "| Name | Inhabitants | Share |\n|---|---|---|\n"
    ),
    "wide table": _wide_table,
    "rows in one line": _repeated("| a "),
    "short sentences": _repeated("It is so. "),
    "shorter sentences": _repeated("A. B! "),
    "pronouns": _repeated("It costs 5 euros. They said that. "),
    "lines": _repeated("yes\n"),
    "blank lines": _repeated("\n"),
    "spaces": _repeated(" "),
    "one word": _repeated("a"),
    "nested brackets": _repeated("("),
    "brackets": _repeated("[1] (a) "),
    "open brackets": _repeated("[a "),
    "closing brackets": _repeated("a] "),
    "quotes": _repeated("\"a\" 'b' “c "),
    "digits": _repeated("7"),
    "numbers": _repeated("12 3.5 "),
    "decimals": _repeated("1.5."),
    "dates": _repeated("1 May 2020, 3/4/2021 "),
    "markers": _repeated("[1][2] "),
    "spaced markers": _repeated("[1]  "),
    "markers on lines": _repeated("[1] \n"),
    "closed markers": _repeated("[1])"),
    "unknown markers": _repeated("It is so [source: xyz.pdf]. "),
    "entities": _repeated("&amp;&#65;"),
    "backticks": _repeated("`a` `` "),
    "asterisks": _repeated("*a **b "),
    "underscores": _repeated("_a __b_"),
    "links": _repeated("[a](http://x.yz/b) "),
    "open links": _repeated("[a](b "),
    "nested links": _repeated("[a [b](c) d](e 'f') ![g [h](i)](j) "),
    "open images": _repeated("![a [b ![c](d "),
    "definitions": _repeated("[a]: # (b)\n> [c\n> d]: <e>\n> 'f'\n"),
    "open definitions": _repeated('[a b]: # "c\n[d\n- [e]: <f\n'),
    "tags": _repeated("<b>a</i> "),
    "open tags": _repeated("<a b "),
    "comments": _repeated("<!-- a --> <!-- "),
    "items": _repeated("- Price: 5 euros\n"),
    "items in items": _numbered(lambda n: f"{' ' * (n % 40)}- part {n}:\n"),
    "headings": _numbered(lambda n: f"# Part {n}\n"),
    "labels": _repeated("# The canteen\n## The permit\nThe canteen:\n"),
    "announcements": _repeated("Let's start with the canteen. "),
    "sources": _numbered(lambda n: f'[{n}]: https://example.com/{n} "Title"\n', "Sources:\n"),
    "invisible": _repeated("a\u200b\u00ad"),
    "surrogates": _repeated("a\U000e0041"),
    "Chinese": _repeated("图书馆在山上计算地图"),
    "Chinese sentences": _repeated("图书馆八点开门。"),
    "fences": _repeated("```\nx = 1 # the price is 5 euros\n```\n"),
    "open fence": _numbered(lambda n: f"x_{n} = {n}\n", "```python\n"),
    "semicolons": _repeated("the price is 5 euros; "),
    "commas": _repeated("and 5, or "),
    "colons": _repeated("Note: the "),
    "courtesies": _repeated("Thank you for asking, "),
    "questions": _repeated("Did you know that it is so? "),
    "no": _repeated("not no never "),
    "names": _repeated("Jane Roe and John Doe "),
    "deep JSON": _deep_json,
    "wide JSON": _wide_json,
    "array JSON": _array_json,
    "JSON number": lambda size: f'{{"a": {"7" * size}}}',
}


def _checker() -> GroundingChecker:
    return GroundingChecker(ScriptedJudge(default=entails()))


async def _check(text: str, *, delta: int, is_json: bool = False) -> None:
    checker = _checker()
    await checker.start()
    evidence = await checker.prepare([Chunk(id="a", text=_DOCUMENT)])
    reply = checker.reply(
        evidence, thresholds=Thresholds(), is_json=is_json, question="How much leave is there?", max_claims=100_000
    )
    for start in range(0, len(text), delta):
        for sentence in await run(delta <= MAX_INLINE_SPLIT_CHARS, reply.push, text[start : start + delta]):
            await reply.check(sentence)
    for sentence in reply.flush():
        await reply.check(sentence)
    await asyncio.to_thread(reply.report)


async def reply(text: str) -> None:
    await _check(text, delta=_DELTA)


async def whole(text: str) -> None:
    await _check(text, delta=max(1, len(text)))


async def json_reply(text: str) -> None:
    await _check(
        text if text[0] in "{[" else json.dumps({"answer": text}, ensure_ascii=False), delta=_DELTA, is_json=True
    )


async def gateway(text: str) -> None:
    pieces = [text[start : start + _DELTA] for start in range(0, len(text), _DELTA)]
    at = await bench(said(*pieces), policy(contradiction_action="block"), judge=ScriptedJudge(default=entails()))
    await asyncio.sleep(0)
    with _recording_on_a_thread(at):
        await at.stream_bytes()


async def unary(text: str) -> None:
    at = await bench(
        completion(text),
        policy(unverifiable_action="strip", unjudged_action="strip"),
        judge=ScriptedJudge(),
    )
    await asyncio.sleep(0)
    with _recording_on_a_thread(at):
        await at.ask()


def _recording_on_a_thread(at: Bench) -> AbstractContextManager[object]:
    """Build the event in a thread, as the writer does."""

    async def append(record: RecordedRequest) -> None:
        await asyncio.to_thread(record.event)

    return mock.patch.object(at.events, "append", append)


async def document(text: str) -> None:
    checker = _checker()
    await checker.start()
    evidence = await checker.prepare([Chunk(id="a", text=text)])
    check = checker.reply(evidence, thresholds=Thresholds(), question="When?")
    for sentence in [*check.push(f"# Canteen\n\n{_CLAIM}"), *check.flush()]:
        await check.check(sentence)


async def request(text: str) -> None:
    await asyncio.sleep(0)
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "documents": [{"id": "a", "text": f"A document: {text}", "source": "a.pdf"}],
    }
    limits = Limits(documents=100, document_chars=10 * len(text) + 10, total_chars=100 * len(text) + 10)
    read_chat(json.dumps(body).encode(), {}, limits)


STAGES: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
    "reply": reply,
    "whole": whole,
    "json": json_reply,
    "gateway": gateway,
    "unary": unary,
    "document": document,
    "request": request,
}


def shaped(shape: str, size: int) -> str:
    """Return about ``size`` characters of ``shape``."""
    return SHAPES[shape](size)


def cpu_s(stage: str, shape: str, size: int) -> float:
    """Return the CPU seconds for reading ``size`` characters of ``shape``: the median of several runs if they are
    short."""
    text = shaped(shape, size)
    times = [_run_s(stage, text)]
    if times[0] < _SHORT_S:
        times += [_run_s(stage, text) for _ in range(_REPEATS - 1)]
    return statistics.median(times)


def _run_s(stage: str, text: str) -> float:
    gc.collect()
    begun = time.process_time()
    asyncio.run(STAGES[stage](text))
    return time.process_time() - begun


def longest_step_s(stage: str, shape: str, size: int) -> float:
    """Return the CPU seconds of the longest step on the event loop. A step is a callback, during which no other task
    can run."""
    asyncio.run(STAGES[stage](shaped(shape, _WARM_UP)))
    text = shaped(shape, size)
    tune()  # as the server does
    steps: list[float] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begun = time.thread_time()
        run(handle)
        steps.append(time.thread_time() - begun)

    with mock.patch.object(asyncio.Handle, "_run", timed):
        asyncio.run(STAGES[stage](text))
    return max(steps[1:])  # The first step sets up the stage.


def _grown(stages: Sequence[str], shapes: Sequence[str], sizes: Sequence[int]) -> int:
    faults = 0
    print(f"{'shape':20} {'stage':9}" + "".join(f"{size // 1000:>7} kB" for size in sizes) + "   ratio to a quarter")
    for shape, stage in itertools.product(shapes, stages):
        times = [cpu_s(stage, shape, size) for size in sizes]
        ratios = [after / before if after >= _LEAST_S else 0.0 for before, after in itertools.pairwise(times)]
        over = any(ratio > MAX_RATIO for ratio in ratios)
        faults += over
        row = (
            "".join(f"{used:10.3f}" for used in times) + "  " + "".join(f"{r:6.1f}" if r else "     –" for r in ratios)
        )
        print(f"{shape:20} {stage:9}{row}{'  over' if over else ''}", flush=True)
    print(f"{faults} of {len(stages) * len(shapes)} measurements grow faster than the text")
    return faults


def _blocked(stages: Sequence[str], shapes: Sequence[str], size: int) -> int:
    faults = 0
    for shape, stage in itertools.product(shapes, stages):
        longest = longest_step_s(stage, shape, size)
        over = longest > MAX_STEP_S
        faults += over
        print(f"{shape:20} {stage:9}{longest * 1000:8.1f} ms{'  over' if over else ''}", flush=True)
    print(
        f"{faults} of {len(stages) * len(shapes)} measurements block the event loop for more than "
        f"{MAX_STEP_S * 1000:.0f} ms"
    )
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="test texts of up to 1 MB")
    parser.add_argument("--sizes", help="comma-separated lengths in characters, each four times the previous one")
    parser.add_argument("--only", help="comma-separated shapes to test")
    parser.add_argument("--stages", help="comma-separated ways to read the text")
    parser.add_argument("--loop", action="store_true", help="measure the longest step on the event loop")
    given = parser.parse_args()
    stages = given.stages.split(",") if given.stages else list(STAGES)
    shapes = given.only.split(",") if given.only else list(SHAPES)
    sizes = [int(size) for size in given.sizes.split(",")] if given.sizes else list(FULL if given.full else QUICK)
    if not given.loop:
        sys.exit(1 if _grown(stages, shapes, sizes) else 0)
    sys.exit(1 if _blocked(stages, shapes, sizes[-1]) else 0)


if __name__ == "__main__":
    main()
