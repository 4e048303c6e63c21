"""Detects the language of text, unless it is in doubt, from the script or from the function words that every sentence
has. Takes tens of microseconds per sentence and hardly any memory."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib import resources
from typing import Final

_SCRIPTS: Final[tuple[tuple[str, str, frozenset[str]], ...]] = (
    ("kana", r"\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9d", frozenset({"ja"})),
    ("han", r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff", frozenset({"zh", "yue"})),
    ("hangul", r"\u1100-\u11ff\u3130-\u318f\uac00-\ud7af", frozenset({"ko"})),
    ("cyrillic", r"\u0400-\u052f", frozenset({"ru", "uk", "bg", "sr", "mk", "be", "kk", "ky", "mn", "tg"})),
    ("greek", r"\u0370-\u03ff\u1f00-\u1fff", frozenset({"el"})),
    (
        "arabic",
        r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
        frozenset({"ar", "fa", "ur", "ps"}),
    ),
    ("hebrew", r"\u0590-\u05ff", frozenset({"he", "yi"})),
    ("devanagari", r"\u0900-\u097f", frozenset({"hi", "mr", "ne"})),
    ("bengali", r"\u0980-\u09ff", frozenset({"bn", "as"})),
    ("tamil", r"\u0b80-\u0bff", frozenset({"ta"})),
    ("telugu", r"\u0c00-\u0c7f", frozenset({"te"})),
    ("thai", r"\u0e00-\u0e7f", frozenset({"th"})),
    ("georgian", r"\u10a0-\u10ff", frozenset({"ka"})),
    ("armenian", r"\u0530-\u058f", frozenset({"hy"})),
)
_OTHER: Final = {name: (re.compile(f"[{range_}]"), languages) for name, range_, languages in _SCRIPTS}
_NOT_LATIN: Final = re.compile("[" + "".join(range_ for _, range_, _ in _SCRIPTS) + "]")
_LATIN_WORD: Final = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+(?:['’-][A-Za-z\u00c0-\u024f\u1e00-\u1eff]+)*")
_ADDRESS: Final = re.compile(r"(?:https?://|www\.)\S+|(?<!\S)[^\s@]++@\S+|\b[\w-]+(?:\.[\w-]+)+|`[^`]*`")
_UNSPACED: Final = frozenset({"kana", "han", "thai"})
_LEAST: Final = 1.5
_LEAST_WITHOUT_ENGLISH: Final = 1.0
_OPENING: Final = 0.5
_PARTICLE: Final = 0.5
_ACCENTED: Final = 0.5
_MOST_ACCENTED: Final = 1.5
_UNDETERMINED: Final = frozenset({"und"})
_MAX_CHARACTERS: Final = 4000


def languages_of(text: str) -> frozenset[str]:
    """Return the languages that ``text`` may be in (two-letter codes): one, or several close relatives. The result is
    empty in case of doubt (too few words, names, mixed languages), and ``und`` if the text is clearly in a language
    that isn't known here."""
    text = _ADDRESS.sub(" ", text[:_MAX_CHARACTERS])
    words = _LATIN_WORD.findall(text)
    if (script := _script(text, words)) is not None:
        return script
    return _by_words(words)


def is_foreign(text: str, known: Collection[str], *contexts: str) -> bool:
    """Return whether ``text`` is clearly in a language other than the ``known`` ones. If the language is in doubt and
    the text contains no word of a known language, ``contexts`` (the text before it, or the documents) decide, nearest
    first. If none of them settles it, all of them together decide."""
    found = languages_of(text)
    if found:
        return not found & set(known)
    if any(leans_to(text, language) for language in known):
        return False
    for context in (*contexts, " ".join((text, *contexts))):
        if around := languages_of(context):
            return not around & set(known)
    return False


def _script(text: str, words: list[str]) -> frozenset[str] | None:
    """Return the languages of the script of most of the text; None for Latin."""
    if not (others := _NOT_LATIN.findall(text)):
        return None
    counts = {name: len(pattern.findall(text)) for name, (pattern, _) in _OTHER.items()}
    name = max(counts, key=lambda one: counts[one])
    # In scripts without spaces, a word has about two characters.
    written = sum(count / (2 if one in _UNSPACED else 5) for one, count in counts.items())
    if written <= len(words):
        return None
    if name == "han" and counts["kana"] * 8 > len(others):
        name = "kana"
    return _OTHER[name][1]


def _by_words(words: list[str]) -> frozenset[str]:
    scores = _scores(words)
    best = max(scores.values(), default=0.0)
    if best < (_LEAST if _may_be_english(words) else _LEAST_WITHOUT_ENGLISH):
        accented = sum(map(_is_accented, words))
        unknown = accented >= 2 and 3 * accented >= len(words) and not scores.get("en")
        return _UNDETERMINED if unknown else frozenset()
    english = scores.get("en", 0.0)
    foreign = max((score for language, score in scores.items() if language != "en"), default=0.0)
    if english >= foreign:
        return frozenset({"en"}) if english >= 2.0 * foreign else frozenset()
    if foreign < 2.0 * english:
        return frozenset()
    return frozenset(language for language, score in scores.items() if score >= best - _OPENING)


def _scores(words: list[str]) -> Mapping[str, float]:
    """Return the number of words in each language. Except in English, a capitalised word counts as half a word at the
    start and not at all later, because it may be a name. Lower-case words with a letter that English lacks count
    towards every language found."""
    scores: defaultdict[str, float] = defaultdict(float)
    accented = 0.0
    for place, word in enumerate(words):
        owners, weight = _owners().get(word.casefold(), ((), 0.0))
        if not word[0].islower():
            weight *= _OPENING if place == 0 else 0.0
        for language in owners:
            scores[language] += 1.0 if language == "en" else weight
        if _is_accented(word):
            accented += _ACCENTED
    for language in [one for one in scores if one != "en"]:
        scores[language] += min(accented, _MOST_ACCENTED)
    return scores


def _may_be_english(words: list[str]) -> bool:
    """Return whether the text has an English word, or has no lower-case word of another language. Words that occur in
    names don't count."""
    folded = [word.casefold() for word in words]
    tables = _tables()
    if any(word in tables["shared"] or word in tables["en"] for word in folded):
        return True
    return not any(word[0].islower() and _owners().get(word, ((), 0.0))[1] == 1.0 for word in words)


def _is_accented(word: str) -> bool:
    return word[0].islower() and not word.isascii()


def leans_to(text: str, language: str) -> bool:
    """Return whether ``text`` contains a word that is typical of ``language``."""
    return any(language in _owners().get(word.casefold(), ((), 0.0))[0] for word in _LATIN_WORD.findall(text))


@lru_cache(maxsize=1)
def _owners() -> Mapping[str, tuple[tuple[str, ...], float]]:
    """Return the languages and the weight of each word."""
    tables = dict(_tables())
    shared, particles = tables.pop("shared"), tables.pop("particles")
    return {
        word: (
            tuple(language for language, words in tables.items() if word in words),
            _PARTICLE if word in particles else 1.0,
        )
        for word in frozenset().union(*tables.values()) - shared
    }


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, frozenset[str]]:
    source = resources.files("judges.text.languages") / "words.toml"
    return {name: frozenset(words.split()) for name, words in tomllib.loads(source.read_text(encoding="utf-8")).items()}
