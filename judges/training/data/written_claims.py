"""Claims written for training: true ones worded very differently from the passage, and false ones that differ from it
in one detail.

They cover what public data sets and rules rarely produce, such as swapped roles, dropped conditions, plans presented as
facts, and properties attributed to the wrong thing. Each false claim comes with a true claim in similar words, as in
the synthetic claims of MiniCheck (Tang et al. 2024). Some claims are about passages in the public data sets, referenced
by digest; others include their own passages.
"""

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from judges.training.data.datasets import WRITTEN, Group, Row, Target

FOLDER: Final = Path(__file__).with_name("written")
REPLIES: Final = Path(__file__).with_name("replies.jsonl")
PARAPHRASES: Final = Path(__file__).with_name("paraphrases.jsonl")
ANSWERS: Final = Path(__file__).with_name("answers.jsonl")
LANGUAGES: Final = Path(__file__).with_name("languages.jsonl")
_LISTS: Final = (
    ("entailed", Target.ENTAILED),
    ("contradicted", Target.CONTRADICTED),
    ("neutral", Target.NEUTRAL),
)


def load(groups: Sequence[Group], folder: Path = FOLDER) -> list[Group]:
    """Return the claims in the ``*.jsonl`` files in ``folder``. Each line is an object for one passage, with a list of
    claims for each label. The passage is given as ``premise``, or as the ``digest`` of a premise in ``groups``; claims
    about passages that aren't in ``groups`` are skipped. Raises ValueError for an object with neither, or without
    claims.
    """
    known = {digest(group.premise): group.premise for group in groups}
    found: list[Group] = []
    for file in sorted(folder.rglob("*.jsonl"), key=lambda file: file.name):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            one = json.loads(line)
            rows = tuple(Row(claim, target, WRITTEN) for name, target in _LISTS for claim in one.get(name, ()))
            if not rows or not one.keys() & {"premise", "digest"}:
                raise ValueError(f"{file.name}, line {number}: expected a premise or a digest, and claims")
            if premise := one.get("premise") or known.get(one["digest"]):
                found.append(Group(premise, rows, WRITTEN))
    return found


def rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the handwritten claims in ``groups``, as rows to judge."""
    return [
        {"premise": group.premise, "hypothesis": row.claim, "label": row.target.name.lower(), "source": "twins"}
        for group in groups
        if group.source == WRITTEN
        for row in group.rows
    ]


def measured(file: Path) -> list[dict[str, Any]]:
    """Return claims about invented documents, as rows to judge. ``REPLIES`` has sentences from an assistant's answers
    about several documents. ``PARAPHRASES`` has true and false paraphrases of a single passage. ``ANSWERS`` has
    sentences from fluent answers that were written after the judge was trained. ``LANGUAGES`` has such sentences in
    eight other languages, with the language as their source.

    The claims are used only for evaluation, never for training, and their authors didn't write the training claims.
    """
    cases = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        {"documents": case["documents"], "hypothesis": claim, "label": name, "source": case.get("language", file.stem)}
        for case in cases
        for name, _ in _LISTS
        for claim in case.get(name, ())
    ]


def digest(premise: str) -> str:
    """Return the digest that identifies a premise."""
    return blake2b(premise.encode(), digest_size=8).hexdigest()
