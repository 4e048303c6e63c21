"""Counts the code that one request executes. The streamed reply has two sentences, the second of which is blocked.

    python -m benchmarks.request_path [--functions]

Runs the request in-process with a scripted upstream and a scripted judge. Counts the modules and functions of this
repository that it enters, from parsing the request body to building the rows of its event. Comprehensions and lambdas
are counted separately. A first request fills the caches, so only the second counts.
"""

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.support.gateways.in_process_gateway import FALSE, TRUE, Bench, bench, policy, said

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("app", "policies", "judges")


async def _request(at: Bench) -> None:
    at.events.written.clear()
    await at.stream()
    assert at.event.request.action == "block"
    assert [claim.delivered for claim in at.event.claims] == [True, False]


async def entered() -> Counter[CodeType]:
    """Return the functions of this repository that the request enters, with the number of calls of each."""
    at = await bench(said(f"{TRUE} ", FALSE), policy(contradiction_action="block"))
    await _request(at)
    calls: Counter[CodeType] = Counter()

    def count(frame: FrameType, kind: str, _argument: Any) -> None:
        if kind == "call":
            calls[frame.f_code] += 1

    sys.setprofile(count)
    try:
        await _request(at)
    finally:
        sys.setprofile(None)
    return Counter({code: times for code, times in calls.items() if _is_ours(code)})


def _is_ours(code: CodeType) -> bool:
    path = Path(code.co_filename)
    return path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _PACKAGES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", action="store_true", help="also list the functions of each module")
    wants_functions = parser.parse_args().functions
    calls = asyncio.run(entered())
    by_module: dict[str, list[CodeType]] = {}
    for code in calls:
        by_module.setdefault(str(Path(code.co_filename).relative_to(_ROOT)), []).append(code)
    packages = Counter(module.split("/")[0] for module in by_module)
    for module, codes in sorted(by_module.items()):
        print(f"{len(codes):4}  {module}")
        if wants_functions:
            for code in sorted(codes, key=lambda code: code.co_firstlineno):
                print(f"          {code.co_qualname} ({calls[code]})")
    print(", ".join(f"{package}: {count}" for package, count in packages.items()))
    inner = sum(code.co_name.startswith("<") for code in calls)
    print(f"{len(by_module)} modules, {len(calls) - inner} functions, {inner} comprehensions and lambdas")


if __name__ == "__main__":
    main()
