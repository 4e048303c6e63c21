"""Fuzz one target, guided by what of the code each input reaches; stops at the first input that fails.

    python -m tests.fuzz sse|splitter|requests|replies|answers [options of libFuzzer, such as -max_total_time=600]

Needs ``atheris``, which is not among the project's dependencies. An input that failed is written to a file
``crash-...`` in the folder where this runs; give that as an argument to run it again.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import atheris

TARGETS: Mapping[str, Sequence[str]] = {
    "sse": ("app.sse",),
    "splitter": (
        "judges.sentences", "judges.boundaries", "judges.lookahead", "judges.enclosures", "judges.markdown",
        "judges.claims", "judges.numbers", "judges.language",
    ),
    "requests": ("app.intake", "app.inject", "app.forwarding"),
    "answers": ("app.upstream",),
    "replies": ("app.dialects", "app.enforcement", "app.choice", "app.held", "app.reply", "app.repair", "app.citing"),
}  # fmt: skip
"""What of our code each of them is to find its way through."""


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(__doc__)
    with atheris.instrument_imports(include=list(TARGETS[name])):
        check = import_module(f"tests.fuzz.{name}").check
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


main()
