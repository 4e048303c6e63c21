"""Parses the spec that names a judge: ``<kind>:<what>?<option>=<value>&...``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

EXPECTED = (
    "expected 'embedded', 'embedded-large', 'onnx:<folder>', 'st:<hub id or path>', 'http:<url>', 'preset:<name>' or "
    "'none'"
)

_OPTIONS: Mapping[str, frozenset[str] | None] = {
    "none": frozenset(),
    "embedded": frozenset({"languages"}),
    "embedded-large": frozenset({"languages"}),
    "onnx": frozenset({"languages"}),
    "st": frozenset({"backend", "device", "languages"}),
    "preset": None,
    "http": frozenset({"model", "template", "labels", "max_tokens", "tokenizer", "languages", "concurrency"}),
}
"""The options for each kind of judge; None if they depend on the preset."""
_BARE = frozenset({"none", "embedded", "embedded-large"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """A parsed spec. ``kind`` is a key in ``_OPTIONS``; ``what`` is a folder, a model, a preset, or a URL without
    options, or "" for kinds that need none of these."""

    kind: str
    what: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def languages(self) -> frozenset[str] | None:
        """The ``languages`` option, or None if it is not given."""
        given = self.options.get("languages")
        return None if given is None else frozenset(split_list(given))


def parse_spec(text: str) -> JudgeSpec:
    """Parse ``text``. An unknown kind or option raises a ValueError that says what is expected."""
    whole = text.strip()
    head, mark, query = whole.partition("?")
    kind, colon, what = head.partition(":")
    if kind in ("http", "https") and what.startswith("//"):
        kind, what = "http", head
    if kind not in _OPTIONS or bool(what) == (kind in _BARE) or (kind in _BARE and colon):
        raise ValueError(f"judge {text!r}: {EXPECTED}")
    options = dict(parse_qsl(query, keep_blank_values=True)) if mark else {}
    allowed = _OPTIONS[kind]
    for name, value in options.items():
        if allowed is not None and name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise ValueError(f"judge {text!r}: unknown option {name!r}; options: {known}")
        if not value.strip():
            raise ValueError(f"judge {text!r}: option {name!r} is empty")
    return JudgeSpec(kind=kind, what=what, options=options)


def split_list(value: str) -> list[str]:
    """Split a comma-separated list into its items, in order."""
    return [part.strip() for part in value.split(",") if part.strip()]
