"""The preset table. Its rows are in ``tables/*.toml``, one file per family of models."""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec

from judges.types import Windowing

_EVERY_SENTENCE = 1 << 30


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published result: the metric, the benchmark, the value in percent, and the source."""

    benchmark: str
    metric: str
    value: float
    source: str


class PresetWindow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much evidence the model reads at a time. ``tokens`` is counted with the model's tokenizer; the number of
    sentences is not limited."""

    tokens: int

    @property
    def windowing(self) -> Windowing:
        return Windowing(sentences=_EVERY_SENTENCE, tokens=self.tokens)


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A judge that can be selected by name.

    ``kind`` selects the adapter. ``form`` is read only by that adapter and is documented in the table's files.
    """

    name: str
    kind: str
    about: str
    licence: str
    """SPDX identifier of the licence, or the name of the terms of use."""
    languages: tuple[str, ...]
    """Two-letter codes of the supported languages; empty means all, or too many to list."""
    speed: Literal["fast", "medium", "slow", "remote"]
    """Speed on a CPU: fast for models up to about 150 million parameters, medium up to 400 million, slow above. Remote
    models run elsewhere."""
    streaming: str
    """Whether the judge is fast enough for the sentences of a stream."""
    sources: tuple[str, ...]
    """The model card, repository or reference from which these facts are taken."""
    model: str = ""
    """Id on the Hugging Face Hub, or the provider's name for the model."""
    base: str = ""
    """Hub id of the model whose tokenizer and configuration are used if the model's own repository has none."""
    parameters: int | None = None
    """Number of parameters in millions; None if it isn't published."""
    max_tokens: int = 512
    """Maximum input length in the model's tokens, including everything that the adapter adds."""
    window: PresetWindow | None = None
    """How evidence is cut for the model; None means the checker's default."""
    threshold: float = 0.5
    """The P(supported) at which the model's authors call a claim supported."""
    extra: str = "sentence-transformers"
    """The extra to install (``pip install 'groundlane[EXTRA]'``); "" if none is needed."""
    options: str = ""
    """The required options, with example values, as written in a spec."""
    form: Mapping[str, Any] = {}
    figures: tuple[Figure, ...] = ()

    @property
    def windowing(self) -> Windowing | None:
        """How evidence is cut for the preset; None means the checker's default."""
        return self.window.windowing if self.window else None


@cache
def presets() -> Mapping[str, Preset]:
    """Load the table: a map from name to preset, in the order of the files."""
    rows: dict[str, Preset] = {}
    folder = resources.files("judges.cross_encoder.presets").joinpath("tables")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        for name, row in tomllib.loads(file.read_text(encoding="utf-8")).items():
            if name in rows:
                raise ValueError(f"preset {name!r} is defined twice")
            rows[name] = msgspec.convert(row | {"name": name}, Preset)
    return rows


def find_preset(name: str) -> Preset:
    """Return the preset ``name``. If there is none, raise a ValueError that suggests a similar name."""
    table = presets()
    if name in table:
        return table[name]
    begun = [known for known in table if name and known.startswith(name.casefold())]
    similar = begun or get_close_matches(name.casefold(), table, n=1)
    hint = f"did you mean {similar[0]!r}? " if similar else ""
    raise ValueError(f"unknown preset {name!r}: {hint}`groundlane judges` lists them")
