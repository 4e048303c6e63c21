"""Claims made by rule that change how a sentence is meant: a bound, a condition, an exception, what is yet to come.

Rules are as in augment.py: each takes a sentence and gives another, or None where it does not apply.
"""

import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from judges.training.data import Target

_TRIED: Final = 12
"""Sentences of a passage that are looked at."""
_WORDS: Final = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_OTHER_BOUND: Final[Mapping[str, str]] = {
    **{other: one for one, other in reversed(_WORDS["bounds"])},
    **{one: other for one, other in reversed(_WORDS["bounds"])},
}
_BOUND: Final = re.compile(
    rf"(?<![-\w])(?:{'|'.join(sorted(_OTHER_BOUND, key=len, reverse=True))})"
    r"(?= [$€£]?\d| (?:two|three|four|five|six|seven|eight|nine|ten|half)\b)"
)
_IN_TIME: Final = re.compile(r"(?:over|under) (?:[\w,.]+) (?:second|minute|hour|day|week|month|year)")

_IF: Final = re.compile(r"^If (?!not\b)|, if (?!not\b|any|possible|necessary|so\b)")
_UNLESS: Final = re.compile(r"\b([Uu])nless\b")
_EXCEPT: Final = re.compile(
    r"\b(?:except(?: for)?|excluding|with the exception of)(?= [a-z\d])(?! (?:when|if|in|where|that|as|for|to|by)\b)"
)
_COUNTED: Final = r"one|two|three|four|five|six|seven|eight|nine|ten"
_INCLUDING: Final = re.compile(rf", including (?!without|but|by|for|in\b|(?:{_COUNTED})\b)(?=[a-z][^,;]{{3,60}}\.$)")

_CONDITION: Final = re.compile(
    r"(?P<main>[^;:]{20,}?\w),? "
    r"(?:if|unless|provided that|as long as|only if|only when|only where|except (?:when|if|in|where)) "
    r"(?!any\b|possible|necessary|so\b)[^,;]{10,}\.$"
)
_FRONT: Final = re.compile(r"(?:If|Unless|Provided that|As long as) [^,;]{8,}, (?:then )?(?P<main>[^;]{20,})$")
_NO_CONDITION: Final = re.compile(
    r"\b(?:as|even|ask(?:s|ed)?|see|know|knows|wonder(?:s|ed)?|what|whether|determin(?:e|es|ed|ing)|check|doubt|sure|say|test|tell|learn|"
    r"find out|not|decide|consider)\b[^,]{0,20} if\b|\b(?:even|as|not|and|or|but) if\b|\b(?:would|had|whether)\b"
)
"""Where "if" asks, or supposes what is not so."""
_OPEN: Final = re.compile(r"(?:and|or|but|he|she|they|it|we|you|please|this|that|these|those|such)\b", re.IGNORECASE)

_DONE: Final[Mapping[str, str]] = dict(_WORDS["finished"])
_NO_NOUN: Final = r"(?<!\bno )(?<!\bthe )(?<!\bits )(?<!\bhis )(?<!\bher )(?<!\btheir )(?<!\bof )(?<!ed )\b"
_PLANNED: Final = re.compile(
    rf"{_NO_NOUN}(?:plans|intends|aims|hopes|wants|proposes|promises|expects|is planning|is expected|is set|is due|"
    r"is likely|is about) to (?P<verb>[a-z]+)\b"
)
_PLANNED_BE: Final = re.compile(
    r"\b(?P<is>is|are|was|were) (?:expected|planned|set|due|scheduled|likely|supposed|intended|going) to be (?=\w+ed\b)"
)
_WILL_BE: Final = re.compile(r"(?P<head>\w+) will be (?=\w+ed\b)")
_DEPENDS: Final = re.compile(r"\b(?:if|unless|until|how|when|that)\b")
_SOME_USE: Final = re.compile(
    r"\b(?:is|are|can be) (?=(?:used|available|given|sold|allowed|taken|performed|offered|applied)\b)"
)
_LIMITED: Final = re.compile(r"\b(?:only|always|not|never|usually|often|sometimes|also|n't|no|No|exclusively)\b")


def bounded(sentence: str, rng: random.Random) -> str | None:
    """ "At least" made "at most", and the like."""
    found = [match for match in _BOUND.finditer(sentence) if not _IN_TIME.match(sentence, match.start())]
    if not found:
        return None
    match = rng.choice(found)
    return sentence[: match.start()] + _OTHER_BOUND[match[0]] + sentence[match.end() :]


def reversed_condition(sentence: str, rng: random.Random) -> str | None:
    """ "If" made "unless", "except" made "including", and the other way."""
    if found := _UNLESS.search(sentence):
        return sentence[: found.start()] + ("If" if found[1] == "U" else "if") + sentence[found.end() :]
    if found := _EXCEPT.search(sentence):
        return sentence[: found.start()] + "including" + sentence[found.end() :]
    if found := _INCLUDING.search(sentence):
        return sentence[: found.start()] + ", except for " + sentence[found.end() :]
    if (found := _IF.search(sentence)) and not _NO_CONDITION.search(sentence):
        unless = "Unless " if found[0] == "If " else ", unless "
        return sentence[: found.start()] + unless + sentence[found.end() :]
    return None


def unbound(sentence: str, rng: random.Random) -> str | None:
    """The statement without the condition that it stands under."""
    if _NO_CONDITION.search(sentence):
        return None
    if found := _FRONT.match(sentence):
        main = found["main"]
        return None if _OPEN.match(main) else main[0].upper() + main[1:]
    found = _CONDITION.match(sentence)
    return found["main"] + "." if found and len(found["main"].split()) >= 5 else None


def done(sentence: str, rng: random.Random) -> str | None:
    """What is planned, expected or to come told as done."""
    if (found := _PLANNED.search(sentence)) and found["verb"] in _DONE:
        return f"{sentence[: found.start()]}has {_DONE[found['verb']]}{sentence[found.end() :]}"
    if found := _PLANNED_BE.search(sentence):
        was = {"is": "was", "are": "were"}.get(found["is"], found["is"])
        return f"{sentence[: found.start()]}{was} {sentence[found.end() :]}"
    if (found := _WILL_BE.search(sentence)) and not _DEPENDS.search(sentence):
        have = "have" if found["head"].endswith("s") or found["head"] in ("they", "we", "you") else "has"
        return f"{sentence[: found.start()]}{found['head']} {have} been {sentence[found.end() :]}"
    return None


def narrowed(sentence: str, rng: random.Random) -> str | None:
    """ "Is used for" made "is only used for": more than was said."""
    found = _SOME_USE.search(sentence)
    if not found or _LIMITED.search(sentence):
        return None
    verb = "can only be " if found[0] == "can be " else found[0] + "only "
    return sentence[: found.start()] + verb + sentence[found.end() :]


_RULES: Final[Sequence[tuple[Callable[[str, random.Random], str | None], Target, int]]] = (
    (bounded, Target.CONTRADICTED, 1),
    (reversed_condition, Target.CONTRADICTED, 1),
    (unbound, Target.NEUTRAL, 2),
    (done, Target.NEUTRAL, 2),
    (narrowed, Target.NEUTRAL, 1),
)
"""Each with what its claims are, and how often it is tried first."""


def conditional(passage: Sequence[str], rng: random.Random) -> tuple[str, Target, str] | None:
    """A claim from one of these sentences, with its label and the name of its rule; None where no rule applies."""
    rules = sorted(_RULES, key=lambda rule: rng.random() ** (1 / rule[2]), reverse=True)
    tried = rng.sample(passage, min(len(passage), _TRIED))
    for rule, target, _ in rules:
        for sentence in tried:
            if (text := rule(sentence, rng)) is not None:
                return text, target, rule.__name__
    return None
