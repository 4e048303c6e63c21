"""Words to what is compared of them: stems, and the concepts that opposites share."""

from functools import lru_cache
from typing import Final, NamedTuple

from judges.signals import lexicon


class Lexeme(NamedTuple):
    """A word as compared: ``key`` is its stem or concept, empty for words without content."""

    key: str
    weight: float
    sign: int


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """A word without its endings: rough, and alike for the languages here, since only equality of stems counts."""
    word = lexicon.IRREGULAR.get(word, word).removesuffix("'s").removesuffix("'")
    for elided in ("l'", "d'", "qu'", "s'", "n'"):
        word = word.removeprefix(elided) if len(word) > len(elided) + 2 else word
    for suffix in lexicon.SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= (3 if len(suffix) > 1 else 4):
            word = word[: -len(suffix)] + ("y" if suffix in ("ied", "ies") else "")
            break
    word = word.removesuffix("e") if len(word) > 4 else word
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "se" else word


_LIGHT_STEMS: Final = frozenset(stem(word) for word in lexicon.LIGHT)


@lru_cache(maxsize=50_000)
def lexeme(word: str) -> Lexeme:
    """What a lower-case word counts for."""
    if word in lexicon.CONCEPTS:
        concept, sign = lexicon.CONCEPTS[word]
        return Lexeme(f"={concept}", 1.0, sign)
    if word in lexicon.STOP or word in lexicon.NEGATIONS or word.endswith("n't"):
        return Lexeme("", 0.0, 1)
    key = stem(word)
    return Lexeme(key, 0.3 if key in _LIGHT_STEMS else 1.0, 1)
