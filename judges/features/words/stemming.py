"""Maps words to the keys that are compared: stems, and the concepts that opposites share."""

from functools import lru_cache
from typing import Final, NamedTuple

from judges.features.numbers import vocabulary
from judges.features.words import lexicon

_LIGHT: Final = 0.3


class Lexeme(NamedTuple):
    """A word in the form that is compared. ``key`` is its stem or concept, or empty for words without content. ``sign``
    distinguishes a concept from its opposite and is 0 for words that have no opposite."""

    key: str
    weight: float
    sign: int


def _shorter(word: str) -> str:
    for suffix in lexicon.SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and len(word) > 3:
            return word[: -len(suffix)] + ("y" if suffix in ("ied", "ies") else "")
    return word


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Strip a word's endings, in the same rough way for all supported languages. This suffices because stems are only
    tested for equality."""
    word = lexicon.IRREGULAR.get(word, word).removesuffix("'s").removesuffix("'")
    for elided in ("l'", "d'", "qu'", "s'", "n'"):
        word = word.removeprefix(elided) if len(word) > len(elided) + 2 else word
    for _ in range(2):
        word = _shorter(word)
    word = word.removesuffix("e") if len(word) > 4 else word
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "se" else word


_EMPTY: Final = (
    lexicon.STOP
    | lexicon.NEGATIONS
    | lexicon.ABBREVIATIONS
    | vocabulary.APPROXIMATE
    | vocabulary.AT_LEAST
    | vocabulary.AT_MOST
    | vocabulary.UNTIL
    | vocabulary.FROM
    | vocabulary.PER
) - lexicon.CONCEPTS.keys()
_LIGHT_STEMS: Final = frozenset(stem(word) for word in lexicon.LIGHT)


@lru_cache(maxsize=50_000)
def lexeme(word: str) -> Lexeme:
    """Return the lexeme of a lower-case word; short forms are expanded."""
    word = vocabulary.SHORT_FORMS.get(word, word)
    if word in lexicon.CONCEPTS:
        concept, sign = lexicon.CONCEPTS[word]
        return Lexeme(f"={concept}", _LIGHT if word in lexicon.LIGHT else 1.0, sign)
    if word in lexicon.SYNONYMS:
        return Lexeme(lexicon.SYNONYMS[word], _LIGHT if stem(word) in _LIGHT_STEMS else 1.0, 0)
    if word in _EMPTY or word.endswith("n't") or "\u3040" <= word < "\u30a0":
        return Lexeme("", 0.0, 0)
    key = stem(word)
    return Lexeme(key, _LIGHT if key in _LIGHT_STEMS else 1.0, 0)
