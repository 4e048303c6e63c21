"""The short text that names a judge, taken apart: ``<kind>:<what>?<option>=<value>&...``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

EXPECTED = "expected 'embedded', 'onnx:<folder>', 'st:<hub id or path>', 'http:<url>' or 'none'"

_OPTIONS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "embedded": frozenset({"languages"}),
    "onnx": frozenset({"languages"}),
    "st": frozenset({"backend", "languages"}),
    "http": frozenset({"model", "template", "labels", "max_tokens", "tokenizer", "languages", "concurrency"}),
}
"""Kinds of judge, and the options of each."""
_BARE = frozenset({"none", "embedded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """``kind`` is a key of the table above; ``what`` a folder, a model or a URL without options, empty for the kinds
    that need none."""

    kind: str
    what: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def languages(self) -> frozenset[str] | None:
        """The languages that the option names; None where it is not given."""
        given = self.options.get("languages")
        return None if given is None else frozenset(split_list(given))


def parse_spec(text: str) -> Spec:
    """Take ``text`` apart. Raises ValueError, with what is expected, for a kind or an option that does not exist."""
    whole = text.strip()
    head, mark, query = whole.partition("?")
    kind, colon, what = head.partition(":")
    if kind in ("http", "https") and what.startswith("//"):
        kind, what = "http", head
    if kind not in _OPTIONS or bool(what) == (kind in _BARE) or (kind in _BARE and colon):
        raise ValueError(f"judge {text!r}: {EXPECTED}")
    options = dict(parse_qsl(query, keep_blank_values=True)) if mark else {}
    for name, value in options.items():
        if name not in _OPTIONS[kind]:
            allowed = ", ".join(sorted(_OPTIONS[kind])) or "none"
            raise ValueError(f"judge {text!r}: there is no option {name!r} here; options: {allowed}")
        if not value.strip():
            raise ValueError(f"judge {text!r}: the option {name!r} is empty")
    return Spec(kind=kind, what=what, options=options)


def split_list(value: str) -> list[str]:
    """The parts of a list with commas, in order."""
    return [part.strip() for part in value.split(",") if part.strip()]
