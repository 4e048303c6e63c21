"""Detects claims that state the opposite of an otherwise similar sentence."""

from collections.abc import Container, Sequence
from typing import Final

from judges.features.numbers import QuantityKind, Relation, relate
from judges.features.parsed_text import ELLIPSIS, ParsedSentence
from judges.features.sentence_pair import (
    ALIKE,
    ANOTHER,
    SentencePair,
    crosswise,
    has_word,
    opposites,
    quantities_agree,
    share_of,
    touched,
    words_of,
)
from judges.features.words.lexicon import (
    AFTER,
    ATTRIBUTIVE,
    BEFORE,
    BEFORE_A_BORDER,
    BEYOND_A_BORDER,
    CORRELATIVES,
    EXCEPTIVES,
    JOINING,
    NEGATIONS,
    NOT_ALL,
    RELATORS,
    SHIFTING,
    STANDING_FOR,
    UNIVERSAL,
    WAIVING,
    WHOLE,
)
from judges.features.words.stemming import lexeme

UNCLEAR: Final = -1.0
_OF_SUBJECT: Final = 2
"""A word up to this position belongs to the sentence's subject."""
_MOSTLY: Final = 0.74
_LONG_ENOUGH: Final = 1.3
"""A claim needs at least this weight to show what it denies. "No doctor" has a lower weight."""
_NEAR: Final = 4
_PASSED: Final = ("non", "longer")
"""Words that may precede a negated word as part of the negation: "non-toxic", "no longer sold"."""
_FIRST: Final = "#ordinal::1"
_AMOUNTS: Final = (QuantityKind.MONEY, QuantityKind.PERCENT, QuantityKind.MEASURE)
_A_THING: Final = 2
_TOLD_APART: Final = 0.2
_FAR: Final = 0.5
_BORDERS: Final = BEFORE_A_BORDER | BEYOND_A_BORDER


def polarity_differs(pair: SentencePair) -> float:
    """Detect that one sentence affirms what the other denies. Return ``UNCLEAR`` if it isn't clear what a sentence
    denies; neither sentence then supports the other."""
    claim, evidence = pair.claim, pair.evidence
    universal = evidence.quantifier == UNIVERSAL or has_word(evidence, WHOLE)
    denied = pair.lacking == 1 and claim.signs.keys() & evidence.signs.keys() and universal
    if (pair.lacking and not denied) or pair.coverage < 0.7 or claim.weight < _LONG_ENOUGH:
        return 0.0
    if claim.quantities and evidence.quantities and not quantities_agree(pair):
        return 0.0
    clauses = _clauses_of(pair)
    if clauses is None:
        return UNCLEAR
    mine = len(claim.negations) + sum(_denies_by_word(sentence) for sentence in (claim, evidence))
    mine -= sum(quantity.denied for sentence in (claim, evidence) for _, quantity in sentence.quantities)
    odd = (mine + sum(clause in clauses for clause in evidence.negations)) % 2
    sign = -1 if odd and (mine + denials_of(claim, evidence, clauses, pair.anchors)) % 2 else 1
    poles = _signs_differ(pair)
    sign *= poles
    elsewhere = _negative_elsewhere(claim, evidence) or not poles
    if sign >= 0:
        return UNCLEAR if elsewhere else 0.0
    if (
        elsewhere
        or _said_otherwise(pair)
        or _excepts(claim) != _excepts(evidence)
        or crosswise(pair)
        or opposites(pair)
        or not _bounded_alike(pair)
        or _across(pair)
    ):
        return UNCLEAR
    clause_keys = {key for key, clause in zip(evidence.keys, evidence.clauses, strict=True) if clause in clauses}
    clause_weights = {key: weight for key, weight in evidence.weights.items() if key in clause_keys}
    if claim.quantifier == UNIVERSAL or share_of(clause_weights, claim.weights) >= 0.6:
        return 1.0
    return ANOTHER


def only_one_denies(pair: SentencePair) -> bool:
    """Return whether only one of the sentences contains a negation, and the claim is too short to decide whether they
    contradict each other. The evidence then doesn't support the claim, even if it contains all of the claim's words."""
    if pair.claim.weight >= _LONG_ENOUGH:
        return False
    clauses = touched(pair.evidence, pair.anchors)
    return bool(pair.claim.negations) is clauses.isdisjoint(pair.evidence.negations)


def _denies_by_word(sentence: ParsedSentence) -> bool:
    """Return whether the sentence denies something without using a negation: "the fee is zero", "the fee is waived"."""
    amounts = [
        quantity.values
        for _, quantity in sentence.quantities
        if quantity.values and (quantity.kind in _AMOUNTS or quantity.text.isalpha())  # Not "town 0".
    ]
    zero = bool(amounts) and not any(values[0] for values in amounts)
    return zero or has_word(sentence, WAIVING)


def _said_otherwise(pair: SentencePair) -> bool:
    """Return whether the sentences may mean the same although their negations differ, because one of them is negative
    in another way or in another place."""
    claim, evidence = pair.claim, pair.evidence
    mine, theirs = len(claim.negations), len(evidence.negations)
    if mine == theirs:
        return mine > 0 or _over_a_border(pair)
    twice = has_word(evidence, ("without",)) and len(set(evidence.negations)) == 1  # neither group is without one
    if (max(mine, theirs) > 1 and not twice) or any(has_word(one, SHIFTING) for one in (claim, evidence)):
        return True
    if _signs_differ(pair) < 1 or (theirs and has_word(claim, ("only",))) or words_of(evidence)[-2] in STANDING_FOR:
        return True
    if has_word(evidence, NOT_ALL) and claim.quantifier < UNIVERSAL:
        return True
    if any((one.relation and one.relation[0] == "than") or has_word(one, ("as",)) for one in (claim, evidence)):
        return True
    ranked = any(quantity.kind is QuantityKind.ORDINAL for _, quantity in evidence.quantities)
    if mine and (ranked or any(word.endswith("est") for word in words_of(evidence)) or _contrasts(claim)):
        return True
    return any(map(_denies_one_of_two, (claim, evidence))) or _over_a_border(pair)


def _denies_one_of_two(sentence: ParsedSentence) -> bool:
    """Return whether the sentence mentions the denied thing twice, as in "patients with diabetes and patients without
    diabetes"."""
    return any(
        denied and sentence.keys.count(denied) > 1
        for denied in (_denied(sentence, place) for place in sentence.denials)
    )


def _contrasts(claim: ParsedSentence) -> bool:
    """Return whether the claim's negation only excludes one thing at the end of the claim: "in Vienna, not in
    Salzburg"."""
    clause = claim.negations[-1]
    return clause > 0 and clause == max(claim.clauses, default=0) and 0 < claim.clauses.count(clause) <= _A_THING


def _over_a_border(pair: SentencePair) -> bool:
    """Return whether one sentence is about the time before something and the other about the time after it."""
    mine, theirs = (
        {word in AFTER for word in words_of(one) if word in BEFORE | AFTER} for one in (pair.claim, pair.evidence)
    )
    return mine != theirs and bool(mine or theirs)


def denials_of(
    claim: ParsedSentence, evidence: ParsedSentence, clauses: Container[int], anchors: Sequence[tuple[int, int]]
) -> int:
    """Count the negations in ``clauses`` of the evidence that deny the claim. A negation doesn't count if it follows
    all of the claim's content ("... and cannot be exchanged") or denies a word inserted into that content ("items not
    worn can be returned")."""
    if not anchors or has_word(evidence, CORRELATIVES):
        return sum(clause in clauses for clause in evidence.negations)
    last, count = anchors[-1][1], 0
    for clause, place in zip(evidence.negations, evidence.denials, strict=False):
        begun = any(at < place and evidence.clauses[at] == clause for _, at in anchors)
        denied = _denied(evidence, place)
        named = denied in claim.keys and (place <= last or evidence.keys.count(denied) == 1)
        count += clause in clauses and (named or (place <= last and not begun))
    return count


def _denied(evidence: ParsedSentence, place: int) -> str:
    """Return the word denied by a negation before ``place``: the next word or, if that word has a low weight, the one
    after it."""
    following = evidence.keys[place : place + 2]
    passed = len(following) > 1 and (following[0] in _PASSED or evidence.weights.get(following[0], 1.0) < 1.0)
    return following[1] if passed and following[0] not in evidence.signs else "".join(following[:1])


def _across(pair: SentencePair) -> bool:
    """Return whether the sentences are about different sides of a boundary and can both be true, such as "nothing
    before the 25th" and "something from the 25th"."""
    mine, theirs = _sides(pair.claim), _sides(pair.evidence)
    return bool(mine and theirs and mine != theirs)


def _sides(sentence: ParsedSentence) -> set[bool]:
    """Return the sides of a boundary that the sentence is about: True for the side beyond it ("after"), False for the
    side before it. A boundary word counts only if a quantity follows it."""
    words = words_of(sentence)
    return {
        word in BEYOND_A_BORDER
        for place, word in enumerate(words)
        if (word in _BORDERS or word == _FIRST)
        and any(following.startswith("#") for following in words[place + 1 : place + 1 + _NEAR])
    }


def _clauses_of(pair: SentencePair) -> set[int] | None:
    """Return the clauses in the evidence that correspond to the claim. If some of the clauses deny the claim and others
    do not, return the clause that contains most of the claim's content. Return None if there is no clear choice."""
    claim, evidence = pair.claim, pair.evidence
    clauses = touched(evidence, pair.anchors)
    denying = clauses & set(evidence.negations)
    if ELLIPSIS in evidence.negations or ELLIPSIS in claim.negations:
        return None
    if len(set(claim.clauses)) > 1:
        said = set(claim.keys)
        return {clause for key, clause in zip(evidence.keys, evidence.clauses, strict=True) if key in said}
    if not denying or denying == clauses:
        return clauses
    wanted = {key for key, weight in claim.weights.items() if weight == 1.0} or set(claim.weights)
    subject = {next((key for key in claim.keys if key in wanted), "")}
    has: dict[int, set[str]] = {clause: wanted & subject for clause in clauses}
    for key, clause in zip(evidence.keys, evidence.clauses, strict=True):
        if clause in has:
            has[clause] |= {key} & wanted
    last = next((key for key in reversed(claim.keys) if key in wanted), "")
    best = max(clauses, key=lambda clause: (len(has[clause]), last in has[clause]))
    if len(has[best]) < _MOSTLY * len(wanted):
        return None
    rivals = [clause for clause in clauses if (clause in denying) != (best in denying)]
    return None if any(len(has[clause]) == len(has[best]) for clause in rivals) and last not in has[best] else {best}


def _bounded_alike(pair: SentencePair) -> bool:
    """Return whether quantities with the same value also have the same bounds. In "up to 5 may" and "more than 5 may
    not", for example, they don't."""
    return all(
        quantity.bound is other.bound and quantity.limit == other.limit
        for _, quantity in pair.claim.quantities
        for _, other in pair.evidence.quantities
        if quantity.values[:1] == other.values[:1] and relate(quantity, other) is not Relation.ABSENT
    )


def _excepts(sentence: ParsedSentence) -> list[str]:
    """Return the words that introduce an exception or a starting time. A negation next to such a word doesn't deny the
    statement itself."""
    return [word for word in EXCEPTIVES if has_word(sentence, (word,))]


def _negative_elsewhere(claim: ParsedSentence, evidence: ParsedSentence) -> bool:
    """Return whether a sentence has a negative word without a counterpart in the other, such as "failed to" for "did
    not"."""
    unmatched = [
        any(sign < 0 for _, sign in places)
        for one, other in ((claim, evidence), (evidence, claim))
        for key, places in one.signs.items()
        if key not in other.signs
    ]
    return any(unmatched)


def _signs_differ(pair: SentencePair) -> int:
    """Return -1 if a concept in the claim has the opposite sign in the evidence, 1 if all concepts have the same sign,
    or 0 if the signs are mixed or unclear."""
    signs = [
        sign * _sign_near(pair, key, place)
        for key, places in pair.claim.signs.items()
        if key in pair.evidence.signs
        for place, sign in places
    ]
    if all(sign == 1 for sign in signs):
        return 1
    return -1 if signs == [-1] else 0


def _sign_near(pair: SentencePair, key: str, place: int) -> int:
    """Return the sign of a concept in the evidence. If the concept occurs several times, choose the occurrence whose
    surrounding words best match those at the claim's ``place``. Return 0 if there is no clear choice."""
    places = pair.evidence.signs[key]
    if len({sign for _, sign in places}) == 1:
        return places[0][1]
    mine = _belonging(pair.claim, key).get(place, {})
    theirs = _belonging(pair.evidence, key)
    best = {1: 0.0, -1: 0.0}
    by_sign: dict[int, dict[str, float]] = {1: {}, -1: {}}
    for at, sign in places:
        words = theirs.get(at, {})
        score = sum(weight * words.get(word, 0.0) for word, weight in mine.items())
        if score > best[sign]:
            best[sign], by_sign[sign] = score, words
    apart = {word: by_sign[1].get(word, 0.0) - by_sign[-1].get(word, 0.0) for word in mine}
    if max(apart.values(), default=0.0) >= _FAR and min(apart.values(), default=0.0) <= -_FAR:
        return 0
    told = best[1] - best[-1]
    return 0 if abs(told) < _TOLD_APART else 1 if told > 0 else -1


def _belonging(sentence: ParsedSentence, key: str) -> dict[int, dict[str, float]]:
    """Return how strongly each word of a sentence is linked to each occurrence of a concept. A word is linked to the
    occurrence in the same clause, to the occurrence before it, or, if the word is the subject, to the occurrence after
    it.
    """
    ordered = [at for at, _ in sentence.signs[key]]
    bare = _bare(sentence, key)
    found: dict[int, dict[str, float]] = {at: {} for at in ordered}
    for index, word in enumerate(sentence.keys):
        before = max((at for at in ordered if at < index), default=-1)
        behind = min((at for at in ordered if at > index), default=-1)
        for at in ordered:
            if at != index:
                weight = _weight(sentence, index, at, before, behind, bare)
                found[at][word] = max(found[at].get(word, 0.0), weight)
    return found


def _bare(sentence: ParsedSentence, key: str) -> set[int]:
    """Return the positions at which a concept shares its subject with the verb before it, like "fell" in "Prices rose
    in Europe and fell in Asia"."""
    words = words_of(sentence)
    led = [words[place - 1] in JOINING for place, word in enumerate(words) if lexeme(word).key == key]
    return {at for (at, _), alone in zip(sentence.signs[key], led, strict=False) if alone}


def _weight(sentence: ParsedSentence, index: int, at: int, before: int, behind: int, bare: Container[int]) -> float:
    """Return how strongly the word at ``index`` is linked to the occurrence of a concept at the position ``at``.
    ``before`` and ``behind`` are the positions of the nearest occurrences before and after the word, or -1.
    """
    clause = sentence.clauses[index]
    together = sentence.clauses[at] == clause
    if at == behind and together and not (at in bare and before >= 0):
        return 1.2 if at == index + 1 else 1.0 if before < 0 or sentence.clauses[before] != clause else 0.4
    if at == before and (together or behind < 0 or sentence.clauses[behind] != clause):
        owned = behind == index + 1 and sentence.clauses[behind] == clause and behind not in bare
        return 0.6 if owned else 1.0
    return 0.9 if before < 0 and (together or at in bare) else 0.3


def opposed(pair: SentencePair) -> float:
    """Detect that a word is replaced by its opposite in otherwise identical text, as in "a third more" and "a third
    less". The result is lower for words that may distinguish two things, as in "the left button" and "the right
    button"."""
    claim, evidence = pair.claim, pair.evidence
    if pair.lacking > 1 or pair.coverage < 0.7 or len(pair.anchors) < len(claim.keys) - 1:
        return 0.0
    found = opposites(pair)
    if found and ((evidence.relation and not claim.relation) or _turned_twice(pair, found)):
        return UNCLEAR  # "more common in one group than in the other"
    if len(found) != 1 or not _same_figures(pair) or crosswise(pair):
        return 0.0
    ((word, other, place),) = found
    if len(claim.negations) - (word in NEGATIONS) != len(evidence.negations) - (other in NEGATIONS):
        return 0.0
    if word in RELATORS and share_of(evidence.weights, claim.weights) < ALIKE:
        return 0.0
    return ANOTHER if word in ATTRIBUTIVE and place <= _OF_SUBJECT else 1.0


def _turned_twice(pair: SentencePair, found: Sequence[tuple[str, str, int]]) -> bool:
    """Return whether a second word is replaced by its opposite, as in "above the limit, income is taxable" and "below
    the limit, income is exempt".
    """
    return _signs_differ(pair) < 1 and all(not lexeme(word).sign for word, _, _ in found)


def _same_figures(pair: SentencePair) -> bool:
    """Return whether the evidence has the claim's quantities, regardless of their bounds."""
    theirs = {other.key for _, other in pair.evidence.quantities}
    return all(quantity.key in theirs for _, quantity in pair.claim.quantities) or quantities_agree(pair)
