"""Fuzz one target, guided by what of the code each input reaches; stops at the first input that fails.

    python -m tests.system.fuzz sse|splitter|requests|replies|unread [options of libFuzzer, as -max_total_time=600]

Needs ``atheris``, which is not among the project's dependencies. An input that failed is written to a file
``crash-...`` in the folder where this runs; give that as an argument to run it again.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import atheris

TARGETS: Mapping[str, Sequence[str]] = {
    "sse": ("app.protocols.common.sse",),
    "splitter": (
        "judges.sentences.splitter", "judges.sentences.boundaries", "judges.sentences.lookahead",
        "judges.sentences.brackets", "judges.text.markdown", "judges.claims.extraction", "judges.features.numbers",
        "judges.text.languages.rules",
    ),
    "requests": ("app.protocols.documents", "app.protocols.common.document_prompt", "app.gateway.upstream_request"),
    "replies": (
        "app.protocols", "app.reply.stream_guard", "app.reply.choice", "app.reply.text_buffer",
        "app.reply.grounding_object", "app.reply.edits", "app.reply.citations",
    ),
    "unread": ("judges.text.fragments", "judges.claims", "judges.coverage", "app.reply"),
}  # fmt: skip
"""What of our code each of them is to find its way through."""


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(__doc__)
    with atheris.instrument_imports(include=list(TARGETS[name])):
        check = import_module(f"tests.system.fuzz.{name}").check
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


main()
