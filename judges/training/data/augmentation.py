"""Uses rules to generate labelled claims from the sentences of a passage. The rules follow the entity, number and
negation swaps of FactCC (Kryściński et al. 2020) and the minimal pairs of BUMP (Ma et al. 2023): true claims are taken
from the passage, and false claims differ from it in one detail."""

import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from judges.sentences.splitter import IncrementalSplitter
from judges.training.data.datasets import Row, Target

Rule = Callable[[str, random.Random], str | None]

_LEAST_WORDS: Final = 5
_MOST_WORDS: Final = 45
_LED: Final = 0.12
"""The probability that a claim, whether true or false, gets a typical answer prefix. Verbatim sentences get none."""
_WORDS: Final = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_MONTHS: Final[Sequence[str]] = _WORDS["months"]
_WEEKDAYS: Final[Sequence[str]] = _WORDS["weekdays"]
_NUMERALS: Final[Sequence[str]] = _WORDS["numerals"]
_LEADS: Final[Sequence[str]] = _WORDS["leads"]
_OPPOSITE: Final[Mapping[str, str]] = {
    **{one: other for one, other in _WORDS["opposites"]},
    **{other: one for one, other in _WORDS["opposites"] if " " not in other},
}
_SAME: Final[Mapping[str, Sequence[str]]] = _WORDS["same"]
_WORD: Final = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_NUMBER: Final = re.compile(r"(?<![\w.,/-])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w/-])|(?<![\w.,/-])\d+(?:\.\d+)?(?![\w/-])")
_MONTH: Final = re.compile(r"\b(?:" + "|".join(_MONTHS) + r")\b")
_WEEKDAY: Final = re.compile(r"\b(?:" + "|".join(_WEEKDAYS) + r")\b")
_NUMERAL: Final = re.compile(r"\b(?:" + "|".join(_NUMERALS) + r")\b", re.IGNORECASE)
_NAME: Final = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}(?:[ -][A-Z][a-z]+)*")
_AUXILIARY: Final = re.compile(
    r"\b(is|are|was|were|can|could|will|would|should|may|has been|have been|had been|does|did|do)\b(?! not|n't| never)"
)
_NEGATED: Final = re.compile(r"\b(is|are|was|were|could|would|should|does|did|do|has|have|had|will|can)(?: not|n't) ")
_PARENTHESIS: Final = re.compile(r"\s*[(\[][^()\[\]]{2,120}[)\]]")
_TAIL: Final = re.compile(
    r"(?:, (?:which|who|where)|,? (?:because|although|while|whereas|when|after|before|so that)) [^,.;]{8,160}\.$"
)
_PARTICIPLE: Final = re.compile(r", [a-z]+ing [^,.;]{8,160}\.$")
_LEAD: Final = re.compile(
    r"^(?:In|On|At|After|During|Since|By|For|Under|According to|Despite|However|Moreover|In addition|Furthermore)"
    r"\b[^,.;]{0,70}, "
)
_APPOSITION: Final = re.compile(r"\b([A-Z][a-z]+(?: [A-Z][a-z]+){0,3}), ((?:a|an|the) [^,.;]{5,70}),")
_CLAUSES: Final = re.compile(r"(?:, (?:and|but|while) |; )")
_HEDGE: Final = re.compile(r"\b(may|might|could) (?!not)")
_SOME: Final = re.compile(r"\b(some|many|most|several|a few)\b", re.IGNORECASE)
_PERCENT: Final = re.compile(r"(\d)\s?%")
_PERCENT_WORD: Final = re.compile(r"(\d) per ?cent\b")
_ABBREVIATIONS: Final = [("do not", "don't"), ("does not", "doesn't"), ("did not", "didn't"), ("is not", "isn't"),
                         ("are not", "aren't"), ("was not", "wasn't"), ("cannot", "can't"), ("it is", "it's"),
                         ("will not", "won't")]  # fmt: skip


def sentences(passage: str) -> list[str]:
    """Return the sentences of ``passage`` that can be used as claims: 5 to 45 words, no questions, few unusual
    characters."""
    splitter = IncrementalSplitter()
    found = [sentence.plain for sentence in [*splitter.push(passage), *splitter.flush()]]
    return [text for text in found if _usable(text)]


def claims(passage: Sequence[str], others: Sequence[str], rng: random.Random, *, count: int) -> list[Row]:
    """Generate up to ``count`` claims about a passage that consists of the sentences ``passage``, about half of them
    true. ``others`` are the sentences of another passage, which provide names and numbers to insert, as well as
    unsupported statements."""
    found: list[Row] = []
    for _ in range(count * 3):
        if len(found) >= count or not passage:
            break
        text, target, rule = _one(passage, others, rng)
        if text is not None and (len(text.split()) >= 4) and all(text != row.claim for row in found):
            if rule != verbatim.__name__ and rng.random() < _LED:
                text = lead(text, rng)
            found.append(Row(text, target, f"made-{rule}"))
    return found


def _one(passage: Sequence[str], others: Sequence[str], rng: random.Random) -> tuple[str | None, Target, str]:
    sentence = rng.choice(passage)
    kind = rng.random()
    if kind < 0.44:
        if rng.random() < 0.17:
            return _reworded(merge(passage, rng), rng), Target.ENTAILED, "merge"
        rule = rng.choice(_TRUE)
        text = rule(sentence, rng)
        return text if rule is verbatim else _reworded(text, rng), Target.ENTAILED, rule.__name__
    if rng.random() < 0.35:
        sentence = shorten(sentence, rng) or synonyms(sentence, rng) or sentence
    if kind < 0.82:
        rule = rng.choice(_FALSE)
        if rule is swap_number and rng.random() < 0.5:
            return borrow_number(sentence, passage, rng), Target.CONTRADICTED, "borrow_number"
        return rule(sentence, rng), Target.CONTRADICTED, rule.__name__
    if kind < 0.90:
        return swap_name(sentence, _names([*passage, *others]), rng), Target.OTHER, "swap_name"
    if kind < 0.95:
        return overstate(sentence, rng), Target.NEUTRAL, "overstate"
    return (add_detail(sentence, others, rng) if others else None), Target.NEUTRAL, "add_detail"


def _reworded(text: str | None, rng: random.Random) -> str | None:
    return text and ((synonyms(text, rng) if rng.random() < 0.4 else None) or text)


def lead(sentence: str, rng: random.Random) -> str:
    """Return the sentence with an answer prefix, which states nothing."""
    return rng.choice(_LEADS) + _lowered(sentence)


# True claims


def verbatim(sentence: str, rng: random.Random) -> str | None:
    """Return the sentence unchanged."""
    return sentence


def merge(passage: Sequence[str], rng: random.Random) -> str | None:
    """Join two sentences into one."""
    if len(passage) < 2:
        return None
    first = rng.randrange(len(passage) - 1)
    second = first + 1 if rng.random() < 0.7 else rng.randrange(len(passage))
    if second == first:
        return None
    one, two = passage[first].rstrip("."), passage[second]
    if len(one.split()) + len(two.split()) > _MOST_WORDS:
        return None
    one = one.rstrip()
    return f"{one}{rng.choice([', and ', ' and ', '; ', ', while '])}{_lowered(two)}"


def shorten(sentence: str, rng: random.Random) -> str | None:
    """Remove an aside, an introductory phrase or a final clause."""
    cuts: list[tuple[re.Pattern[str], str]] = [
        (_PARENTHESIS, ""), (_LEAD, ""), (_TAIL, "."), (_PARTICIPLE, "."),
    ]  # fmt: skip
    rng.shuffle(cuts)
    for pattern, replacement in cuts:
        shorter = pattern.sub(replacement, sentence, count=1)
        if shorter != sentence and len(shorter.split()) >= 4 and not _conditional(sentence[len(shorter) - 1 :]):
            return shorter[0].upper() + shorter[1:]
    return None


def part(sentence: str, rng: random.Random) -> str | None:
    """Return one of two independent clauses."""
    parts = _CLAUSES.split(sentence)
    if len(parts) != 2 or any(len(one.split()) < 5 or not _AUXILIARY.search(one) for one in parts):
        return None
    chosen = rng.choice(parts)
    return chosen[0].upper() + chosen[1:].rstrip(".") + "."


def apposition(sentence: str, rng: random.Random) -> str | None:
    """Turn an apposition into a claim: "Ada Lovelace, a mathematician, wrote …" says that Ada Lovelace is a
    mathematician."""
    found = _APPOSITION.search(sentence)
    return f"{found[1]} is {found[2]}." if found else None


def synonyms(sentence: str, rng: random.Random) -> str | None:
    """Replace words with synonyms and other forms."""

    def other(match: re.Match[str]) -> str:
        choices = _SAME.get(match[0])
        return rng.choice(choices) if choices and rng.random() < 0.8 else match[0]

    changed = _WORD.sub(other, sentence)
    changed = _PERCENT.sub(r"\1 percent", changed) if "%" in changed else _PERCENT_WORD.sub(r"\1%", changed)
    for long, short in _ABBREVIATIONS:
        if rng.random() < 0.5:
            changed = changed.replace(long, short) if long in changed else changed.replace(short, long)
    return changed if changed != sentence else None


def approximate(sentence: str, rng: random.Random) -> str | None:
    """Replace a number with a rounded value or a bound, and adjust the wording."""
    found = [match for match in _NUMBER.finditer(sentence) if not _is_year(match[0])]
    if not found:
        return None
    match = rng.choice(found)
    value = float(match[0].replace(",", ""))
    if value < 20 or value != value // 1:
        if "." not in match[0]:
            return None
        text, value = f"about {round(value):,}", round(value)
    else:
        step = 10 ** (len(str(int(value))) - 1)
        rounded = round(value / step, 1) * step
        low, high = int(value // step * step), int(value // step * step + step)
        choices = [f"more than {low - (step // 10 or 1):,}", f"fewer than {high + (step // 10 or 1):,}"]
        if rounded != value:
            choices.append(f"about {int(rounded):,}")
            choices.append(f"between {low:,} and {high:,}")
        text = rng.choice(choices)
    before = sentence[: match.start()]
    if re.search(r"(?:about|than|least|most|over|nearly|almost|under|around|approximately|up to|[$€£(]) ?$", before):
        return None
    return before + text + sentence[match.end() :]


# False claims


def swap_number(sentence: str, rng: random.Random) -> str | None:
    """Replace a number with another of similar size."""
    found = [*_NUMBER.finditer(sentence), *_NUMERAL.finditer(sentence)]
    if not found:
        return None
    match = rng.choice(found)
    return sentence[: match.start()] + _other_number(match[0], rng) + sentence[match.end() :]


def borrow_number(sentence: str, passage: Sequence[str], rng: random.Random) -> str | None:
    """Replace a number with another one from the same passage, so that all words of the false claim occur in the
    passage."""
    found = list(_NUMBER.finditer(sentence))
    if not found:
        return None
    match = rng.choice(found)
    here = {one[0] for one in found}
    there = sorted({one[0] for text in passage for one in _NUMBER.finditer(text)} - here)
    alike = [text for text in there if _is_year(text) == _is_year(match[0]) and ("." in text) == ("." in match[0])]
    return sentence[: match.start()] + rng.choice(alike) + sentence[match.end() :] if alike else None


def swap_date(sentence: str, rng: random.Random) -> str | None:
    """Replace a month or weekday with another."""
    for pattern, names in ((_MONTH, _MONTHS), (_WEEKDAY, _WEEKDAYS)):
        if (match := pattern.search(sentence)) and not (match[0] == "May" and match.start() == 0):
            other = rng.choice([name for name in names if name != match[0]])
            return sentence[: match.start()] + other + sentence[match.end() :]
    return None


def negate(sentence: str, rng: random.Random) -> str | None:
    """Add or remove a negation."""
    if match := _NEGATED.search(sentence):
        return sentence[: match.start()] + match[1] + " " + sentence[match.end() :]
    if re.search(r"\b(?:not|never|no|n't|nor|neither)\b", sentence):
        return None
    match = _AUXILIARY.search(sentence)
    if not match or match.start() > 0.6 * len(sentence):
        return None
    verb = match[1].replace(" been", "")
    end = match.start() + len(verb)
    word = rng.choice([" not", " not", " never"]) if verb not in ("do", "does", "did") else " not"
    denied = "cannot" if verb == "can" and word == " not" else verb + word
    return sentence[: match.start()] + denied + sentence[end:]


def oppose(sentence: str, rng: random.Random) -> str | None:
    """Replace a word with its opposite."""
    found = [match for match in _WORD.finditer(sentence) if match[0] in _OPPOSITE]
    if not found:
        return None
    match = rng.choice(found)
    return sentence[: match.start()] + _OPPOSITE[match[0]] + sentence[match.end() :]


def swap_name(sentence: str, names: Sequence[str], rng: random.Random) -> str | None:
    """Replace a name with another."""
    found = list(_NAME.finditer(sentence))
    if not found:
        return None
    match = rng.choice(found)
    others = [name for name in names if name not in sentence and name not in match[0] and match[0] not in name]
    return sentence[: match.start()] + rng.choice(others) + sentence[match.end() :] if others else None


# Neither


def overstate(sentence: str, rng: random.Random) -> str | None:
    """Replace "may" with "will", or "some" with "all"."""
    if match := _HEDGE.search(sentence):
        return sentence[: match.start()] + "will " + sentence[match.end() :]
    if match := _SOME.search(sentence):
        word = "All" if match[0][0].isupper() else "all"
        return sentence[: match.start()] + word + sentence[match.end() :]
    return None


def add_detail(sentence: str, others: Sequence[str], rng: random.Random) -> str | None:
    """Append a clause from another passage."""
    parts = _CLAUSES.split(rng.choice(others))
    tail = parts[-1].rstrip(".")
    if not 4 <= len(tail.split()) <= 16:
        return None
    return f"{sentence.rstrip('.')}, {rng.choice(['and', 'while', 'since'])} {_lowered(tail)}."


_TRUE: Final[Sequence[Rule]] = (
    verbatim, shorten, shorten, shorten, part, part, apposition, synonyms, synonyms, approximate,
)  # fmt: skip
_FALSE: Final[Sequence[Rule]] = (swap_number, swap_number, swap_number, swap_date, negate, negate, oppose, oppose)


def _other_number(text: str, rng: random.Random) -> str:
    if text.lower() in _NUMERALS:
        return rng.choice([word for word in _NUMERALS if word != text.lower()])
    if _is_year(text):
        return str(int(text) + rng.choice([-20, -11, -7, -3, -2, -1, 1, 2, 3, 5, 8, 12]))
    plain = text.replace(",", "")
    if "." in plain:
        places = len(plain.split(".")[1])
        other = float(plain) * rng.choice([0.1, 0.4, 0.7, 1.3, 1.8, 3, 10]) + 10**-places
        return f"{other:,.{places}f}"
    value = int(plain)
    other = round(value * rng.choice([0.1, 0.5, 0.75, 1.25, 1.5, 2, 3, 10])) or value + rng.choice([1, 2, 3])
    other += 0 if other != value else rng.choice([1, 2])
    return f"{other:,}" if "," in text else str(other)


def _is_year(text: str) -> bool:
    return len(text) == 4 and text.isdigit() and 1500 <= int(text) <= 2100


def _names(passage: Sequence[str]) -> list[str]:
    return [match[0] for sentence in passage for match in _NAME.finditer(sentence)]


def _conditional(tail: str) -> bool:
    """Return whether the removed part restricts the rest. A statement without its condition does not follow from the
    passage."""
    return bool(re.search(r"\b(?:unless|if|except|only|until|provided)\b", tail))


def _lowered(sentence: str) -> str:
    first, _, rest = sentence.partition(" ")
    common = first in ("The", "A", "An", "It", "This", "These", "They", "He", "She", "In", "On", "At", "We", "There")
    return f"{first.lower()} {rest}" if common else sentence


def _usable(text: str) -> bool:
    count = len(text.split())
    letters = sum(char.isalpha() or char.isspace() for char in text)
    return _LEAST_WORDS <= count <= _MOST_WORDS and not text.endswith("?") and letters > 0.8 * len(text)
