"""Claims made by rule in which who did what to whom is told otherwise, with the sentence's own words.

Rules are as in augment.py: each takes a sentence and gives another, or None where it does not apply.
"""

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from judges.training.data import Row, Target

_TRIED: Final = 24
"""Sentences of a passage that are looked at."""
_TURNED: Final = 0.4
_WORDS: Final = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_PAST: Final[Mapping[str, str]] = {
    **{verb: verb for verb in _WORDS["directed"]},
    **{participle: past for _, past, participle in _WORDS["verbs"]},
}
"""The past tense of a verb that one does to another, by its participle."""
_PARTICIPLE: Final[Mapping[str, str]] = {past: participle for participle, past in _PAST.items()}
_PASSIVE: Final = "|".join(_PAST)
_ACTIVE: Final = "|".join(_PARTICIPLE)

_INNER: Final = rf"(?!(?:{'|'.join(_WORDS['inner'])}|\w+ly)\b)"
_OUTER: Final = rf"(?!(?:{'|'.join(_WORDS['outer'])}|\w+ly)\b)"
_SUBJECT: Final = rf"{_OUTER}(?:(?:The|An?|His|Her|Their|Its) )?(?:{_INNER}[\w.'’-]+ ){{0,4}}?{_INNER}[\w'’-]+"
_NAMED: Final = r"[A-Z][\w.'’-]*(?: (?:of (?:the )?)?[A-Z][\w.'’-]*)*"
_OBJECT: Final = rf"(?:(?:the|an?) (?:{_INNER}[\w'’-]+ ){{0,3}}?{_INNER}[\w'’-]+|{_NAMED})"
_REST: Final = r"(?P<rest>(?:,? (?:in|on|at|for|during|after|before|since|as|because|when|while)\b[^;]*)?\s?\.)"
_DONE_BY: Final = re.compile(
    rf"(?P<one>{_SUBJECT}) (?P<was>was|were|is|are|has been|have been|had been) (?P<verb>{_PASSIVE}) by "
    rf"(?P<other>{_OBJECT}){_REST}"
)
_DOES: Final = re.compile(rf"(?P<one>{_SUBJECT}) (?P<verb>{_ACTIVE}) (?P<other>{_OBJECT}){_REST}")
_THAN: Final = re.compile(
    rf"(?P<one>{_SUBJECT}) (?P<is>is|was|are|were|has|had|have) (?P<more>(?:[\w'’-]+ ){{0,3}}?(?:\w+er|more|less|fewer)"
    rf"(?: [\w'’-]+){{0,3}}?) than (?P<other>{_OBJECT}){_REST}"
)

_PROPER: Final = r"(?>[A-Z][\w.-]*\w(?: (?:of (?:the )?)?[A-Z][\w.-]*\w)*)"
_HELPING: Final = r"(?:(?:was|were|is|are|has|had|have|been|also|later|then|first|eventually|successfully) ){0,3}"
_LINK: Final = r"(?:(?:by|to|from|the|at|for|as|a|his|her|former|president) ){0,3}?"
_TWO_NAMED: Final = re.compile(
    rf"(?:^|(?<=[a-z,;] ))(?P<one>{_OUTER}(?!(?:The|An?) [a-z]){_PROPER}) "
    rf"(?P<between>{_HELPING}(?:{_PASSIVE}|{_ACTIVE}|(?:[a-z]+er|more [a-z]+) than) {_LINK})"
    rf"(?P<other>{_PROPER})(?! (?:and|or|of)\b|['’]|, [A-Z]| [a-z]+ers?\b)"
)
"""Names that end where they end: no half of one, none that owns something, none of an enumeration."""
_CHANGED: Final = (
    r"rose|fell|grew|dropped|declined|went|changed|increased|decreased|reduced|raised|cut|moved|transferred|travelled|"
    r"traveled|converted|switched|upgraded|promoted|flew|sailed|migrated"
)
_GROWN: Final = r"(?: (?:[A-Z][\w'’-]*|million|billion|percent|per cent|%))*"
_FROM_TO: Final = re.compile(
    rf"\b(?P<verb>(?:{_CHANGED})\b(?: [\w'’-]+){{0,3}}?) from (?P<one>[A-Z$€£\d][\w.,%'’-]*{_GROWN}) to "
    rf"(?P<other>[A-Z$€£\d](?:[\w%'’-]|[.,](?=\d))*{_GROWN})"
)
_DATED: Final = re.compile(rf"\b(?:{'|'.join(set(_WORDS['months']) - {'May'})}|\d+)\b")
_OWN: Final = ("The", "A", "An", "His", "Her", "Their", "Its")


def roles(passage: Sequence[str], rng: random.Random) -> list[Row]:
    """Who did what to whom, of one of these sentences: told as it was, and with the two exchanged."""
    for sentence in rng.sample(passage, min(len(passage), _TRIED)):
        if false := exchanged(sentence, rng):
            true = turned(sentence, rng) or sentence
            return [Row(true, Target.ENTAILED, "made-turned"), Row(false, Target.CONTRADICTED, "made-exchanged")]
    return []


def turned(sentence: str, rng: random.Random) -> str | None:
    """ "A was written by B" as "B wrote A", and the other way."""
    if found := _between_two(_DONE_BY, sentence):
        one, other, verb, rest = found["one"], found["other"], found["verb"], found["rest"]
        told_before = found["was"] in ("was", "were", "had been")
        return f"{_first(other)} {_PAST[verb]} {_inner(one)}{rest}" if told_before else None
    if found := _between_two(_DOES, sentence):
        one, other, verb, rest = found["one"], found["other"], found["verb"], found["rest"]
        return f"{_first(other)} {_were(other)} {_PARTICIPLE[verb]} by {_inner(one)}{rest}"
    return None


def exchanged(sentence: str, rng: random.Random) -> str | None:
    """What one did to another is said of the other, in the same voice or in the other voice."""
    turn = rng.random() < _TURNED
    if found := _between_two(_DONE_BY, sentence):
        one, other, verb, rest = found["one"], found["other"], found["verb"], found["rest"]
        if turn and found["was"] in ("was", "were", "had been"):
            return f"{one} {_PAST[verb]} {other}{rest}"
        return f"{_first(other)} {found['was']} {verb} by {_inner(one)}{rest}"
    if found := _between_two(_DOES, sentence):
        one, other, verb, rest = found["one"], found["other"], found["verb"], found["rest"]
        if turn:
            return f"{one} {_were(one)} {_PARTICIPLE[verb]} by {other}{rest}"
        return f"{_first(other)} {verb} {_inner(one)}{rest}"
    if (found := _between_two(_THAN, sentence)) and not _DATED.search(found["other"]):
        return f"{_first(found['other'])} {found['is']} {found['more']} than {_inner(found['one'])}{found['rest']}"
    if found := _TWO_NAMED.search(sentence):
        one, other = found["one"], found["other"]
        if one not in other and other not in one and not _DATED.search(f"{one} {other}"):
            return f"{sentence[: found.start()]}{other} {found['between']}{one}{sentence[found.end() :]}"
    if found := _FROM_TO.search(sentence):
        swapped = f"{found['verb']} from {found['other']} to {found['one']}"
        return sentence[: found.start()] + swapped + sentence[found.end() :]
    return None


def _between_two(pattern: re.Pattern[str], sentence: str) -> re.Match[str] | None:
    """A match of the whole sentence between two that are different and no dates."""
    found = pattern.fullmatch(sentence)
    if found is None or found["one"].lower() in found["other"].lower() or _DATED.search(found["one"]):
        return None
    return None if found["other"].endswith("ing") or found["one"].endswith("ing") else found


def _were(nouns: str) -> str:
    last = nouns.split()[-1]
    several = last.endswith("s") and not last.endswith(("ss", "us", "is")) and last[0].islower()
    return "were" if several and not nouns.lower().startswith(("a ", "an ")) else "was"


def _first(nouns: str) -> str:
    return nouns[0].upper() + nouns[1:]


def _inner(nouns: str) -> str:
    first, _, rest = nouns.partition(" ")
    return f"{first.lower()} {rest}" if first in _OWN and rest else nouns
