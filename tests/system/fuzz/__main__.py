"""Fuzz one target, guided by what of the code each input reaches; stops at the first input that fails.

    python -m tests.system.fuzz sse|splitter|requests|replies|unread [options of libFuzzer, as -max_total_time=600]

Needs ``atheris``, which is not among the project's dependencies. A failing input is written to a file ``crash-...``
in the current folder; pass that file as an argument to run it again.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import atheris

TARGETS: Mapping[str, Sequence[str]] = {
    "sse": ("app.protocols.common.sse",),
    "splitter": (
        "judges.sentences.splitter", "judges.sentences.boundaries", "judges.sentences.lookahead",
        "judges.text.markdown", "judges.claims.extraction", "judges.features.numbers",
        "judges.text.languages.rules",
    ),
    "requests": ("app.protocols.documents", "app.protocols.common.document_prompt", "app.gateway.upstream_call"),
    "replies": (
        "app.protocols", "app.reply.stream_guard", "app.reply.choice", "app.reply.text_buffer",
        "app.reply.grounding_object", "app.reply.delivered_text", "app.reply.citation_annotations",
    ),
    "unread": ("judges.text.fragments", "judges.claims", "judges.text_coverage", "app.reply"),
}  # fmt: skip
"""The modules of ours that each target explores."""


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(__doc__)
    with atheris.instrument_imports(include=list(TARGETS[name])):
        check = import_module(f"tests.system.fuzz.{name}").check
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


main()
