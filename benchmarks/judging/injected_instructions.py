"""Measures the detector of injected instructions: the share of ordinary documents and the share of hostile documents in
which it finds an instruction.

    python -m benchmarks.judging.injected_instructions DOCUMENTS... [--show | --develop]

DOCUMENTS are files with ordinary documents: JSON Lines (``.jsonl``, ``.jsonl.gz``) whose rows have a ``premise``, JSON
files with ``documents``, or plain text (any other extension), which is split into documents of 2,000 characters. The
grammar was developed on ``hostile_documents.txt``, which has one document per line. ``hostile_documents_kept.txt`` was
written afterwards and is used only for measurement. ``--show`` prints the instructions found in ordinary documents.
``--develop`` prints the lines of the development file in which no instruction is found.
"""

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

from judges.text.injection.detector import find_instruction

DEVELOPMENT, KEPT = "hostile_documents.txt", "hostile_documents_kept.txt"
_CHARS = 2000
_CARRIER = "The Orion lamp costs 20 euros.\n{}\nIt is delivered within three days."


def ordinary(paths: Sequence[Path]) -> Iterator[str]:
    """Return the distinct documents in the files."""
    seen = set()
    for path in paths:
        for text in _texts(path):
            if text not in seen:
                seen.add(text)
                yield text


def _texts(path: Path) -> Iterator[str]:
    if path.suffix == ".json":
        for document in json.loads(path.read_text("utf-8")).get("documents") or ():
            yield document if isinstance(document, str) else document.get("text") or ""
        return
    if ".jsonl" not in path.suffixes:
        text = path.read_text("utf-8", "replace")
        yield from (text[start : start + _CHARS] for start in range(0, len(text), _CHARS))
        return
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["premise"]


def hostile(name: str) -> Sequence[str]:
    """Return the hostile documents in a file."""
    return Path(__file__).with_name(name).read_text("utf-8").splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*", type=Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--develop", action="store_true")
    arguments = parser.parse_args()
    count = characters = alarms = 0
    started = process_time()
    for text in ordinary(arguments.documents):
        count, characters = count + 1, characters + len(text)
        if found := find_instruction(text):
            alarms += 1
            if arguments.show:
                print(f"  {found.kind}: {found.sentence}")
    seconds = process_time() - started
    if count:
        print(f"ordinary documents: {alarms} of {count} ({alarms / count:.3%}), {seconds / characters * 1e9:.0f} µs/kB")
    for name in (DEVELOPMENT, KEPT):
        lines = hostile(name)
        missed = [line for line in lines if find_instruction(_CARRIER.format(line)) is None]
        caught = len(lines) - len(missed)
        print(f"{name}: {caught} of {len(lines)} ({caught / len(lines):.0%})")
        if arguments.develop and name == DEVELOPMENT:
            print("\n".join(f"  {line}" for line in missed))


if __name__ == "__main__":
    main()
