"""Groups the rows of public data sets into claims about the same premise."""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import Final

SNLI: Final = "SNLI"
"""The caption data set, which is used only to train the encoder."""
WRITTEN: Final = "written"
"""The handwritten training claims (see ``judges.training.data.written_claims``)."""
HELD_OUT: Final = 0.06
"""The share of premises held out from the encoder's training. The combiner is fitted on them."""


class Target(IntEnum):
    """The label of a claim, given its premise. ``OTHER`` means neutral or contradicted, in sources with only two
    classes."""

    ENTAILED = 0
    NEUTRAL = 1
    CONTRADICTED = 2
    OTHER = 3


_TARGETS: Final = {
    "entailed": Target.ENTAILED,
    "supported": Target.ENTAILED,
    "neutral": Target.NEUTRAL,
    "contradicted": Target.CONTRADICTED,
    "unsupported": Target.OTHER,
}

SHARES: Final[Mapping[str, float]] = {
    "AggreFact-xsumfaith": 0.1,
    "BEGIN": 1.5,
    "BUMP": 2.5,
    "BreakingNLI": 0.15,
    "CLIMATE-FEVER": 1.0,
    "COVID-Fact": 0.6,
    "ConjNLI": 0.15,
    "ContractNLI-window": 2.5,
    "FactCC-annotated": 1.5,
    "FactCC-inconsistent": 1.5,
    "FactCG-cg2c_doc": 3.0,
    "FEVER-binary": 0.35,
    "FEVER-gold": 0.5,
    "FIB-xsum": 0.15,
    "FoolMeTwice": 2.5,
    "HELP": 0.1,
    "HealthVer": 2.0,
    "InfoTabs": 0.8,
    "MCTest-NLI": 0.4,
    "MED": 0.1,
    "MNLI-binary": 0.35,
    "MoNLI": 0.1,
    "NLI4CT": 1.5,
    "Polytope": 1.5,
    "Q2-WoW": 1.5,
    "SNLI": 0.04,
    "SciFact-RTE": 2.5,
    "WiCE-subclaim-partial": 0.7,
    WRITTEN: 3.0,
}
"""Number of times that a source's rows are used per epoch; 1 for sources that aren't listed. It is higher for passages
with human labels and for handwritten claims, and lower for single sentences, rule-generated claims, captions, and data
sets that consist almost entirely of one class.
"""

NO_LICENCE_STATED: Final = frozenset(
    {
        "AggreFact-xsumfaith",
        "CLIFF-cnndm",
        "CLIFF-xsum",
        "CLIMATE-FEVER",
        "COVID-Fact",
        "FEVER-gold",
        "Goyal21",
        "HealthVer",
        "MoNLI",
        "NLI4CT",
        "SciFact-RTE",
    }
)
"""Sources whose repositories state no licence; ``load`` can leave them out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled claim."""

    claim: str
    target: Target
    source: str


@dataclass(frozen=True, slots=True)
class Group:
    """A premise with the claims about it."""

    premise: str
    rows: tuple[Row, ...]
    source: str


def read(file: Path, *, source: str | None = None) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a gzipped JSON-lines file. ``source`` is the source of rows that don't name one."""
    with gzip.open(file, mode="rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield {**row, "source": row.get("source") or source} if source else row


def load(folder: Path, *, stated_only: bool = False) -> list[Group]:
    """Group ``train.jsonl.gz`` and ``snli.jsonl.gz`` of ``folder`` by premise.

    With ``stated_only``, sources that state no licence are left out. Raises FileNotFoundError if a file is missing, and
    ValueError for a row without a premise, a hypothesis or a known label.
    """
    rows = [*read(folder / "train.jsonl.gz")]
    if (snli := folder / "snli.jsonl.gz").is_file():
        rows.extend({**row, "source": SNLI} for row in read(snli))
    return group(row for row in rows if not (stated_only and row["source"] in NO_LICENCE_STATED))


def group(rows: Iterable[Mapping[str, str]]) -> list[Group]:
    """Group claims by premise, in the order in which the premises first appear."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.get("label") not in _TARGETS or not row.get("premise") or not row.get("hypothesis"):
            raise ValueError(f"row {row.get('id')!r}: expected a premise, a hypothesis and a label of {set(_TARGETS)}")
        key = (row["source"], row["premise"])
        found.setdefault(key, []).append(Row(row["hypothesis"], _TARGETS[row["label"]], row["source"]))
    return [Group(premise, tuple(claims), source) for (source, premise), claims in found.items()]


def held_out(group: Group) -> bool:
    """Return whether a premise is held out from the encoder's training. The premise's hash decides, so the result is
    the same in every run."""
    digest = blake2b(group.premise.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32 < HELD_OUT


def split(groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
    """Return the groups for training the encoder and those for fitting the combiner. All captions are in the first
    list."""
    kept = [one for one in groups if one.source != SNLI and held_out(one)]
    return [one for one in groups if one.source == SNLI or not held_out(one)], kept
