"""Every regular expression of ours, on text made to slow it down: at the maximum length of a sentence, it takes about
as long as a plain pattern, however it is matched."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import product
from re import _parser as parser
from time import process_time
from types import ModuleType
from typing import Any

import app
import judges
import policies
from judges.text.languages.rules import LANGUAGES, claim_rules, split_rules

LENGTH = 4_000
"""The default of ``GROUNDLANE_MAX_SENTENCE_CHARS``."""
SLOWEST = 150
"""Relative to the time of a plain pattern on the same text. A pattern with two ways through each character would never
finish, and one that starts at every position and runs to the end takes thousands of times as long."""
NEUTRAL = " a1.\0"
SKIPPED = ("judges.training",)
Compiled = re.Pattern[Any]


def test_no_pattern_takes_superlinear_time() -> None:
    found = patterns()
    assert len(found) > 100
    texts = ["a1. " * (LENGTH // 4)] * 3
    plain = min(_cost(re.compile(r"\w+ \d"), text, True) for text in texts) + 1e-5
    slow = [name for (name, pattern, scans) in found if worst(pattern, scans, SLOWEST * plain) > SLOWEST * plain]
    assert slow == []


def worst(pattern: Compiled, scans: bool, limit: float) -> float:
    """The seconds for the worst of the texts; the first that exceeds ``limit`` twice counts as the worst."""
    most = 0.0
    for text in hostile(pattern):
        cost = _cost(pattern, text, scans)
        if cost > limit:
            cost = min(cost, _cost(pattern, text, scans))
        if (most := max(most, cost)) > limit:
            break
    return most


def hostile(pattern: Compiled) -> Iterator[Any]:
    """Texts made of the pattern's parts, repeated, with an end that it may not expect."""
    characters = list(dict.fromkeys(_characters(pattern)))[:8]
    units = [*characters, *("".join(pair) for pair in product(characters[:6], repeat=2))]
    for unit, end in product(units, ("", "\0")):
        text = (unit * (LENGTH // len(unit))) + end
        yield text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text


def _cost(pattern: Compiled, text: Any, scans: bool) -> float:
    started = process_time()
    for _ in pattern.finditer(text) if scans else ():
        pass
    pattern.match(text)
    pattern.fullmatch(text)
    return process_time() - started


def _characters(pattern: Compiled) -> Iterator[str]:
    """A character for each element of the pattern, and some that may match none."""
    flags = pattern.flags & ~re.DEBUG
    yield from _of(parser.parse(pattern.pattern, flags if isinstance(pattern.pattern, str) else flags & ~re.UNICODE))
    yield from NEUTRAL


_CATEGORY = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_DIGIT": "a",
             "CATEGORY_NOT_SPACE": "a", "CATEGORY_NOT_WORD": "-"}  # fmt: skip


def _of(parsed: Any) -> Iterator[str]:
    for node in parsed:
        match node:
            case (parser.LITERAL, int(code)) | (parser.RANGE, (int(code), _)):
                yield chr(code)
            case (parser.CATEGORY, category):
                yield _CATEGORY[str(category)]
            case (parser.NOT_LITERAL | parser.ANY, _):
                yield "a"
            case (parser.IN, inner):
                # A negated set matches most characters; two of them stand for all.
                yield from "a -" if inner[0][0] is parser.NEGATE else [next(_of(inner), "a")]
            case (parser.BRANCH, (_, parts)) | (_, tuple(parts)):
                for part in parts:
                    if isinstance(part, parser.SubPattern):
                        yield from _of(part)
            case (_, parser.SubPattern() as part):
                yield from _of(part)


def patterns() -> Sequence[tuple[str, Compiled, bool]]:
    """The patterns in our modules: their names, and whether they are searched for or matched at the start."""
    found: dict[Compiled, tuple[str, str]] = {}
    sources: dict[str, str] = {}
    for package in (app, policies, judges):
        for module in modules(package):
            sources[module.__name__] = inspect.getsource(module) if module.__file__ else ""
            for name, value in vars(module).items():
                for pattern in _within(value, 4):
                    found.setdefault(pattern, (module.__name__, name))
    for rules in (claim_rules(tuple(LANGUAGES)), split_rules(tuple(LANGUAGES))):
        for field in fields(rules):
            for pattern in _within(getattr(rules, field.name), 3):
                found.setdefault(pattern, ("judges.text.languages.rules", f"rules.{field.name}"))
    every = "\n".join(sources.values())
    return [
        (f"{module}.{name}", pattern, _scans(name, sources[module] if name[0] == "_" else every))
        for pattern, (module, name) in found.items()
    ]


def _scans(name: str, source: str) -> bool:
    """Whether the pattern with this name is searched for anywhere in text, or only matched at the start."""
    name = re.escape(name)
    anywhere = rf"{name}\.(?:search|finditer|findall|subn?|split)\(|\w\({name}[,)]"
    return re.search(anywhere, source) is not None or re.search(rf"{name}\.(?:full)?match\(", source) is None


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not info.name.startswith(SKIPPED) and not info.name.endswith("__main__"):
            try:
                yield importlib.import_module(info.name)
            except ModuleNotFoundError:  # an extra that is not installed
                continue


def _within(value: Any, depth: int) -> Iterator[Compiled]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | frozenset | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _within(part, depth - 1)
    elif depth and is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _within(getattr(value, field.name, None), depth - 1)
