"""Detects claims that differ from an otherwise similar sentence in a name, swap its roles, or claim more than it
says."""

from collections.abc import Container, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from judges.features.parsed_text import ParsedSentence
from judges.features.sentence_pair import (
    ALIKE,
    ANOTHER,
    SentencePair,
    crosswise,
    has_content,
    has_word,
    share_of,
    sides,
    words_of,
)
from judges.features.words.lexicon import (
    AHEAD,
    AT_ALL,
    BETWEEN,
    DEGREES,
    EXCLUSIVES,
    FUTURE,
    HEDGES_OF_VERBS,
    IRREGULAR,
    NARROWING,
    NEGATIONS,
    PERFECT,
    PERMITTING,
    PRESENT,
    QUALIFYING,
    QUANTIFIERS,
    ROLES,
    UNIVERSAL,
)
from judges.features.words.stemming import lexeme

_REPLACED_IN: Final = 0.6
"""The minimum share of the claim that a sentence must contain, not counting the replaced word."""


def name_differs(pair: SentencePair) -> tuple[float, str | None]:
    """Detect that the claim ends with a different letter or name after the same words: gate C instead of gate B."""
    claim, evidence = pair.claim, pair.evidence
    if len(claim.keys) < 3 or len(pair.anchors) != len(claim.keys) - 1 or pair.anchors[-1][0] != len(claim.keys) - 2:
        return 0.0, None
    mine, place = claim.keys[-1], pair.anchors[-1][1] + 1
    if place >= len(evidence.keys):
        return 0.0, None
    theirs = evidence.keys[place]
    if mine[0] == "#" or theirs[0] == "#" or theirs in claim.weights:
        return 0.0, None
    letters = mine.endswith(".") and theirs.endswith(".")
    named = mine in claim.names and theirs in evidence.names and len(evidence.keys) == len(claim.keys)
    if not letters and not named:
        return 0.0, None
    written = claim.names.get(mine, mine), evidence.names.get(theirs, theirs)
    return (1.0 if letters else 0.5), f"{written[0]} where the source says {written[1]}"


def replaced(pair: SentencePair) -> tuple[str, str] | None:
    """If exactly one content word of the claim differs from the evidence, and its neighbours are the same, return this
    word and the evidence's word. Otherwise, return None."""
    if pair.lacking != 1 or pair.coverage < _REPLACED_IN:
        return None
    mine, theirs = words_of(pair.claim), words_of(pair.evidence)
    for place in range(1, len(mine) - 1):
        word = mine[place]
        if word in theirs or not has_content(word):
            continue
        for other in range(1, len(theirs) - 1):
            same_place = theirs[other - 1] == mine[place - 1] and theirs[other + 1] == mine[place + 1]
            if same_place and theirs[other] not in mine and has_content(theirs[other]):
                return word, theirs[other]
    return None


def name_replaced(pair: SentencePair, words: tuple[str, str], known: Container[str]) -> tuple[float, str | None]:
    """Detect a replaced name. The result is strongest if the claim's name is not among the ``known`` words, which are
    those in the evidence. A different spelling or an abbreviation doesn't count as a different name."""
    mine, theirs = (lexeme(word).key for word in words)
    if mine not in pair.claim.names or theirs not in pair.evidence.names or _spelled_alike(*words):
        return 0.0, None
    written = pair.claim.names[mine], pair.evidence.names[theirs]
    return (
        ANOTHER if mine in known or has_word(pair.claim, ("also",)) or ROLES.issuperset(words) else 1.0
    ), f"{written[0]} where the source says {written[1]}"


def _spelled_alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    abbreviated = (len(short) <= 3 and short[0] == long[0]) or long.startswith(short)
    return abbreviated or SequenceMatcher(None, one, other, autojunk=False).ratio() > ALIKE


_FEWEST: Final = 3
"""Minimum number of keys for comparing the structure of two sentences."""
SURELY: Final = 0.5
"""If a claim overstates the evidence by more than this, the evidence can't support the claim, however similar the
wording."""
_BOUNDED: Final = 0.65
_HEDGED: Final = 0.35
_OF_A_PART: Final = 3
"""Number of words that are checked after a word such as "on" or "with". They may restrict the noun before it
("customers on a plan")."""
_CONDITIONED: Final = 0.3
_ARTICLES: Final = frozenset(("the", "a", "an", "of", "our", "your", "its", "their", "his", "her"))


def roles_swapped(pair: SentencePair) -> float:
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return 0.0
    if pair.coverage <= ALIKE or len(claim.negations) != len(evidence.negations):
        return 0.0
    same = claim.relation[1] == evidence.relation[1]
    if crosswise(pair):
        return 1.0 if same and _compared_alike(pair) else 0.0
    before, after = sides(claim, claim.relation[2])
    first, second = sides(evidence, evidence.relation[2])
    straight = bool(before & first and after & second and not after & first)
    whole = share_of(evidence.weights, claim.weights) >= ALIKE
    return 1.0 if straight and not same and whole and _compared_alike(pair) else 0.0


def _compared_alike(pair: SentencePair) -> bool:
    """Return whether the two comparisons are known to mean the same or the opposite. For example, this isn't known for
    "wider" and "narrower"."""
    mine, theirs = (
        {word for word in words_of(sentence) if word.endswith("er") or word in DEGREES}
        for sentence in (pair.claim, pair.evidence)
    )
    return mine == theirs or (mine | theirs) <= DEGREES.keys()


def crossed(pairs: Sequence[SentencePair]) -> bool:
    """Return whether the claim mixes two sentences of the same structure, each of which differs from it in a single
    word. For example, the evidence says "A does X" and "B does Y", and the claim says "A does Y"."""
    odd = [found for pair in pairs if not _goes_on(pair.evidence) and (found := _odd_word(pair))]
    return any(one != other for one in odd for other in odd)


def _goes_on(sentence: ParsedSentence) -> bool:
    """Return whether the sentence adds to an earlier statement, which may then apply to this sentence's subject too."""
    return sentence.leans or has_word(sentence, ("also", "too"))


def _odd_word(pair: SentencePair) -> str | None:
    """If the evidence sentence replaces exactly one word of the claim, return that word of the claim."""
    if (
        len(pair.claim.keys) < _FEWEST
        or len(pair.anchors) != len(pair.claim.keys) - 1
        or len(pair.claim.keys) != len(pair.evidence.keys)
        or len(pair.claim.negations) != len(pair.evidence.negations)
    ):
        return None
    if any(
        key in pair.evidence.signs and pair.evidence.signs[key][0][1] != places[0][1]
        for key, places in pair.claim.signs.items()
    ):
        return None
    mine = [key for key in pair.claim.keys if key not in pair.evidence.keys]
    theirs = [key for key in pair.evidence.keys if key not in pair.claim.keys]
    return mine[0] if len(mine) == len(theirs) == 1 else None


def _excludes(claim: ParsedSentence, stronger: Sequence[str]) -> bool:
    """Return whether the claim contains an exclusive word. A word that only comments on an amount ("only two weeks")
    doesn't count."""
    if not has_word(claim, stronger):
        return False
    words = words_of(claim)
    return any(
        word in stronger and not words[place + 1].startswith("#") and words[place - 1] not in NEGATIONS
        for place, word in enumerate(words)
    )


def overclaims(pair: SentencePair) -> float:
    """Return 1 if the claim definitely says more than the evidence: "all" instead of "some", the whole instead of a
    part, "done" instead of "planned". Return a lower value if the claim adds an exclusive word or drops a hedge, and an
    even lower one if the dropped hedge or condition may belong to something else."""
    claim, evidence = pair.claim, pair.evidence
    for_some = claim.quantifier > evidence.quantifier > 0 and not has_word(claim, AT_ALL)
    if for_some or _widened(claim, evidence) or _told_as_done(claim, evidence):
        return 1.0
    for stronger, said in EXCLUSIVES:
        if _excludes(claim, stronger) and not has_word(evidence, said):
            return _BOUNDED
    if evidence.hedged and not claim.hedged and not has_word(claim, PERMITTING):
        return _BOUNDED if _hedges_it(claim, evidence) else _HEDGED
    return _CONDITIONED if evidence.conditions > claim.conditions else 0.0


def _widened(claim: ParsedSentence, evidence: ParsedSentence) -> bool:
    """Return whether the claim is about more things than the evidence: "all users" instead of "premium users"."""
    if claim.quantifier < UNIVERSAL:
        return False
    mine, theirs = words_of(claim), words_of(evidence)
    said = {lexeme(word).key for word in mine if word in NARROWING}
    for place in range(1, len(mine) - 2):
        if QUANTIFIERS.get(mine[place]) != UNIVERSAL:
            continue
        head = lexeme(mine[next((at for at in range(place + 1, len(mine) - 1) if mine[at] not in _ARTICLES), 0)]).key
        places = [at for at in range(1, len(theirs) - 1) if head and lexeme(theirs[at]).key == head]
        begins = place == 1
        if places and all(_narrows(theirs, at, said) or (begins and _qualified(theirs, at, claim)) for at in places):
            return True
    return False


def _narrows(words: Sequence[str], place: int, said: Container[str]) -> bool:
    """Return whether the noun at ``place`` is restricted by a word before it that isn't in ``said``."""
    return any(word in NARROWING and lexeme(word).key not in said for word in words[max(0, place - 2) : place])


def _qualified(words: Sequence[str], place: int, claim: ParsedSentence) -> bool:
    """Return whether the words after the noun restrict it ("customers on a plan") and the claim drops this
    restriction."""
    told = [word for word in words[place + 2 : place + 2 + _OF_A_PART] if word not in _ARTICLES]
    if words[place + 1] not in QUALIFYING or not told or not has_content(told[0]):
        return False
    return lexeme(told[0]).key not in claim.weights


def _told_as_done(claim: ParsedSentence, evidence: ParsedSentence) -> bool:
    """Return whether the claim reports something as done ("opened") that the evidence only plans or announces ("will
    open")."""
    if not evidence.ahead or claim.ahead or claim.negations:
        return False
    done = _done(claim)
    return bool(done) and not done.isdisjoint(_ahead(evidence) - _done(evidence))


def _done(sentence: ParsedSentence) -> set[str]:
    """Return the verbs for past events in the sentence, judging by their form: "was opened", or "opened" if the
    sentence has no verb in the present tense."""
    words = words_of(sentence)
    present = not PRESENT.isdisjoint(words)
    found: set[str] = set()
    for place, word in enumerate(words):
        if not (word.endswith("ed") and not word.endswith("eed")) and word not in IRREGULAR:
            continue
        before = [one for one in words[max(0, place - 4) : place] if one not in BETWEEN and not one.endswith("ly")]
        last = before[-1] if before else ""
        if last in PERFECT or (not present and last not in _ARTICLES and place > 1):
            found.add(lexeme(word).key)
    return found - {""}


def _ahead(sentence: ParsedSentence) -> set[str]:
    """Return the verbs for future events in the sentence."""
    words = words_of(sentence)
    return {lexeme(words[place]).key for place in _verbs_behind(words, AHEAD, FUTURE)} - {""}


def _hedges_it(claim: ParsedSentence, evidence: ParsedSentence) -> bool:
    """Return whether the hedge in the evidence applies to a verb in the claim."""
    words = words_of(evidence)
    hedged = {lexeme(words[place]).key for place in _verbs_behind(words, HEDGES_OF_VERBS, ())}
    return not hedged.isdisjoint(claim.weights.keys() - _done(evidence))


def _verbs_behind(words: Sequence[str], ahead: Container[str], bare: Container[str]) -> Iterator[int]:
    """Yield the positions of the verbs that follow a word in ``ahead``. After a word in ``AHEAD``, such as "plan",
    there must be a "to" before the verb, unless the word is in ``bare``."""
    for place, word in enumerate(words):
        if word not in ahead:
            continue
        at = place + 1
        if word in AHEAD and word not in bare:
            at = next((to + 1 for to in range(at, min(at + 3, len(words))) if words[to] == "to"), len(words))
        passive = False
        while at < len(words) and (words[at] in BETWEEN or words[at].endswith("ly")):
            passive = passive or words[at] == "be"
            at += 1
        if at < len(words) and (passive or not words[at].endswith(("ed", "s"))):
            yield at
