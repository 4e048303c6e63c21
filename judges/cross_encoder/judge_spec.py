"""Parses the spec that names a judge: ``<kind>:<what>?<option>=<value>&...``."""

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
"""The options for each kind of judge."""
_BARE = frozenset({"none", "embedded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """A parsed spec. ``kind`` is a key in ``_OPTIONS``; ``what`` is a folder, a model, or a URL without options, or ""
    for kinds that need none of these."""

    kind: str
    what: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def languages(self) -> frozenset[str] | None:
        """The ``languages`` option, or None if it is not given."""
        given = self.options.get("languages")
        return None if given is None else frozenset(split_list(given))


def parse_spec(text: str) -> JudgeSpec:
    """Parse ``text``. Raises ValueError, which says what is expected, for an unknown kind or option."""
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
            raise ValueError(f"judge {text!r}: unknown option {name!r}; options: {allowed}")
        if not value.strip():
            raise ValueError(f"judge {text!r}: option {name!r} is empty")
    return JudgeSpec(kind=kind, what=what, options=options)


def split_list(value: str) -> list[str]:
    """Split a comma-separated list into its items, in order."""
    return [part.strip() for part in value.split(",") if part.strip()]
