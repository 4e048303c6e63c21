"""Claims written for training: true ones in quite other words, and false ones that differ in one thing.

What public sets hardly have and rules hardly make: roles exchanged, conditions dropped, plans told as done, one thing's
property told of another, each beside a true claim in much the same words (after the synthetic claims of MiniCheck, Tang
et al. 2024). Some are about passages of the pool, which stay there: a digest says which. Others bring their own.
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
_LISTS: Final = (
    ("entailed", Target.ENTAILED),
    ("contradicted", Target.CONTRADICTED),
    ("neutral", Target.NEUTRAL),
)


def load(groups: Sequence[Group], folder: Path = FOLDER) -> list[Group]:
    """The claims of ``folder``'s ``*.jsonl``: an object a passage, with lists of claims by what they are to it.

    A passage stands there as ``premise``, or as the ``digest`` of a premise of ``groups``; claims about passages that
    are not among them are left out. Raises ValueError for an object that has neither, or no claim.
    """
    known = {digest(group.premise): group.premise for group in groups}
    found: list[Group] = []
    for file in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            one = json.loads(line)
            rows = tuple(Row(claim, target, WRITTEN) for name, target in _LISTS for claim in one.get(name, ()))
            if not rows or not one.keys() & {"premise", "digest"}:
                raise ValueError(f"{file.name}, line {number}: expected a premise or a digest, and claims")
            if premise := one.get("premise") or known.get(one["digest"]):
                found.append(Group(premise, rows, WRITTEN))
    return found


def rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The written claims of ``groups``, as rows to judge."""
    return [
        {"premise": group.premise, "hypothesis": row.claim, "label": row.target.name.lower(), "source": "twins"}
        for group in groups
        if group.source == WRITTEN
        for row in group.rows
    ]


def measured(file: Path) -> list[dict[str, Any]]:
    """Claims about invented documents, as rows to judge: sentences of an assistant's answers over several
    (``REPLIES``), or true and false ones in other words about a single passage (``PARAPHRASES``).

    They were written to measure with, by others than the claims to train on, and are never trained on.
    """
    cases = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        {"documents": case["documents"], "hypothesis": claim, "label": name, "source": file.stem}
        for case in cases
        for name, _ in _LISTS
        for claim in case.get(name, ())
    ]


def digest(premise: str) -> str:
    """What stands for a premise of the pool."""
    return blake2b(premise.encode(), digest_size=8).hexdigest()
