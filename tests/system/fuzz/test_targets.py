"""The fuzz targets without the fuzzer: inputs that once failed, and random ones, the same each time."""

import random
from importlib import import_module

import pytest

FOUND = [
    # A call whose ``type`` is a list, among the tool results.
    ("requests", "85a7e46e9e3e704b29a8bfcdc5bff1d725db5f764704fee40a758ab8e0d56d7ab6e7999ef7"),
    # A text blocked while it streams, of an item that was never announced.
    ("replies", "29b60d62e8cdb733946e48921820c5e426845db615c0251c1f"),
    # A stream in place of a whole reply, with a choice that isn't an object.
    ("replies", "000000000000000000b5b5b5b5c6b5b5b5b5b5b5b5b5b5b5b5b5b50000000000000000000000000000000000080001ad10"),
    # A sentence that is parsed on a thread, because it is long.
    ("splitter", "320a898989898989898989898989899191919191919191919191919191919191919191919191919191919191919191919191"
     "91919191919191919191919191918989898989898989898989898989890a"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "data"), FOUND)
def test_earlier_failures_stay_fixed(target: str, data: str) -> None:
    import_module(f"tests.system.fuzz.{target}").check(bytes.fromhex(data))


@pytest.mark.parametrize("target", ["sse", "splitter", "requests", "replies", "unread"])
def test_random_inputs_pass(target: str) -> None:
    check = import_module(f"tests.system.fuzz.{target}").check
    chance = random.Random(target)
    for longest in [120] * 150 + [400] * 20:
        check(chance.randbytes(chance.randint(0, longest)))
