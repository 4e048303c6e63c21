"""What a comparison of a claim with a window of evidence shows, as numbers from 0 to 1."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from judges.numbers import Kind, Quantity, Relation, compare_quantities, relate
from judges.signals.prepared import Prepared, Sentence

_CANDIDATES: Final = 4
_LEAST_COVERAGE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Features:
    """Named as the combiner's weights are."""

    verbatim: float = 0.0
    """The claim stands in the evidence word for word."""
    contained: float = 0.0
    """The claim's content stands in one sentence, in its order, with its quantities and its polarity."""
    covered: float = 0.0
    """The same without regard to order, neighbours included."""
    overlap: float = 0.0
    """Share of the claim's content in the best sentence and its neighbours."""
    quantity_differs: float = 0.0
    polarity_differs: float = 0.0
    roles_swapped: float = 0.0
    name_differs: float = 0.0
    quantity_absent: float = 0.0
    name_absent: float = 0.0
    overclaims: float = 0.0
    """The claim is wider or surer than the evidence (most for some, done for planned)."""
    detail: str | None = None
    """In words, for the report: what differs."""


@dataclass(slots=True)
class _Pair:
    """A sentence of the claim beside one of the evidence."""

    claim: Sentence
    evidence: Sentence
    coverage: float
    missing: float
    """The weight of the claim's content that this sentence lacks."""
    anchors: list[tuple[int, int]]
    """The longest common subsequence of keys: (position in the claim, position in the evidence)."""


def compute(evidence: Prepared, claim: Prepared) -> Features:
    """Compare. Of several sentences in the claim the last is judged; those before it say what it is about."""
    if not claim.sentences or not evidence.sentences:
        return Features()
    target = claim.sentences[-1]
    frame = dict(target.weights)
    about = 1.0
    if len(claim.sentences) > 1:
        context = {key: weight for sentence in claim.sentences[:-1] for key, weight in sentence.weights.items()}
        about = _share(context, evidence.keys)
        if target.weight < 1.0:
            frame = context | frame
    verbatim = min(_verbatim(sentence, evidence) for sentence in claim.sentences)
    scored = [(_share(frame, sentence.weights), place) for place, sentence in enumerate(evidence.sentences)]
    candidates = sorted((pair for pair in scored if pair[0] >= _LEAST_COVERAGE), reverse=True)[:_CANDIDATES]
    overlap = max((_neighbourhood(frame, evidence, place) for _, place in candidates), default=max(scored)[0])
    pairs = [
        _Pair(target, evidence.sentences[place], coverage, _missing(frame, evidence.sentences[place]), [])
        for coverage, place in candidates
    ]
    for pair in pairs:
        pair.anchors = _anchors(target.keys, pair.evidence.keys)
    return _judge(pairs, evidence, claim, verbatim, overlap, about)


def _judge(
    pairs: Sequence[_Pair], evidence: Prepared, claim: Prepared, verbatim: float, overlap: float, about: float
) -> Features:
    target = claim.sentences[-1]
    findings = compare_quantities([quantity for _, quantity in target.quantities], evidence.quantities).findings
    absent = sum(finding.relation is not Relation.AGREE for finding in findings) / len(findings) if findings else 0.0
    names_absent = _share_absent(target, evidence)
    about = 1.0 if about >= 0.5 else 0.0
    contained = covered = differs = polarity = roles = named = 0.0
    overclaims = 0.0
    detail: str | None = None
    for pair in pairs:
        quantity, said = _quantity_differs(pair)
        flipped = _polarity_differs(pair)
        swapped = _roles_swapped(pair)
        if flipped or swapped:
            polarity, roles = max(polarity, flipped), max(roles, swapped)
        elif quantity:
            if quantity > differs:
                differs, detail = quantity, said
        else:
            name, said = _name_differs(pair)
            if name > named:
                named, detail = name, said
            if not name and not absent:
                over = _overclaims(pair)
                overclaims = max(overclaims, over * pair.coverage)
                if not over:
                    contained = max(contained, _ordered(pair))
                    covered = max(covered, pair.coverage)
    settled = max(verbatim, contained)
    if settled >= 0.95:
        differs = polarity = roles = named = overclaims = 0.0
    return Features(
        verbatim=verbatim,
        contained=contained * about,
        covered=_ramp(covered, 0.7, 1.0) * about,
        overlap=overlap,
        quantity_differs=differs * about,
        polarity_differs=polarity * about,
        roles_swapped=roles * about,
        name_differs=named * about,
        quantity_absent=absent,
        name_absent=names_absent,
        overclaims=overclaims,
        detail=detail,
    )


def _ramp(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _share(frame: Mapping[str, float], keys: Container[str]) -> float:
    """The share of the frame's weight that ``keys`` holds."""
    total = found = 0.0
    for key, weight in frame.items():
        total += weight
        if key in keys:
            found += weight
    return found / total if total else 0.0


def _missing(frame: Mapping[str, float], evidence: Sentence) -> float:
    return sum(weight for key, weight in frame.items() if key not in evidence.weights)


def _neighbourhood(frame: Mapping[str, float], evidence: Prepared, place: int) -> float:
    keys: set[str] = set()
    for sentence in evidence.sentences[max(0, place - 1) : place + 2]:
        keys |= sentence.weights.keys()
    return _share(frame, keys)


def _share_absent(target: Sentence, evidence: Prepared) -> float:
    names = target.names
    return sum(name not in evidence.keys for name in names) / len(names) if names else 0.0


def _anchors(claim: Sequence[str], evidence: Sequence[str]) -> list[tuple[int, int]]:
    """The longest common subsequence, over the keys that both have."""
    common = set(claim) & set(evidence)
    rows = [place for place, key in enumerate(claim) if key in common]
    columns = [place for place, key in enumerate(evidence) if key in common]
    width = len(columns)
    table = [[0] * (width + 1) for _ in range(len(rows) + 1)]
    for row in range(len(rows) - 1, -1, -1):
        key, line, below = claim[rows[row]], table[row], table[row + 1]
        for column in range(width - 1, -1, -1):
            if evidence[columns[column]] == key:
                line[column] = below[column + 1] + 1
            else:
                line[column] = below[column] if below[column] >= line[column + 1] else line[column + 1]
    anchors: list[tuple[int, int]] = []
    row = column = 0
    while row < len(rows) and column < width:
        if claim[rows[row]] == evidence[columns[column]] and table[row][column] == table[row + 1][column + 1] + 1:
            anchors.append((rows[row], columns[column]))
            row, column = row + 1, column + 1
        elif table[row + 1][column] >= table[row][column + 1]:
            row += 1
        else:
            column += 1
    return anchors


def _touched(claim: Sentence, evidence: Sentence) -> set[int]:
    """The clauses of the evidence that the claim's words with content stand in."""
    return {clause for key, clause in zip(evidence.keys, evidence.clauses, strict=True) if key in claim.weights}


def _verbatim(claim: Sentence, evidence: Prepared) -> float:
    if claim.run not in evidence.run or claim.run.count("\x1f") < 3 or not claim.keys:
        return 0.0
    best = 0.0
    for sentence in evidence.sentences:
        if claim.run in sentence.run:
            touched = _touched(claim, sentence)
            negated = sum(clause in touched for clause in sentence.negations) > len(claim.negations)
            loosened = sentence.conditions > claim.conditions or (sentence.hedged and not claim.hedged)
            best = max(best, 0.0 if negated else 0.5 if loosened else 1.0)
    return best


def _ordered(pair: _Pair) -> float:
    target = pair.claim
    if target.weight < 1.0:
        share = pair.coverage if target.quantities else 0.0
    else:
        kept = {target.keys[place] for place, _ in pair.anchors}
        share = _share(target.weights, kept)
    if pair.evidence.conditions > pair.claim.conditions:
        share *= 0.9
    return _ramp(share, 0.85, 1.0)


def _frame_strength(pair: _Pair) -> float:
    """How surely the two sentences are about the same thing."""
    if pair.missing <= 0.35:
        return 1.0
    if pair.coverage >= 0.8 and pair.missing <= 1.0:
        return 0.5
    return 0.0


def _gap(anchors: Sequence[tuple[int, int]], place: int, end: int) -> tuple[int, int]:
    """The stretch of the evidence between the anchors round a place of the claim."""
    low, high = 0, end
    for mine, theirs in anchors:
        if mine < place:
            low = theirs + 1
        else:
            high = theirs
            break
    return low, high


def _quantity_differs(pair: _Pair) -> tuple[float, str | None]:
    mine, theirs = pair.claim.quantities, pair.evidence.quantities
    if not mine or not theirs:
        return 0.0, None
    strength = _frame_strength(pair)
    if not strength:
        return 0.0, None
    open_, taken = [], set()
    for place, quantity in mine:
        agreeing = [other for other, theirs_ in theirs if relate(quantity, theirs_) is Relation.AGREE]
        taken.update(agreeing)
        if not agreeing:
            open_.append((place, quantity))
    free = [(place, other) for place, other in theirs if place not in taken]
    best, detail = 0.0, None
    for place, quantity in open_:
        sure, other = _counterpart(pair, place, quantity, free)
        if other is not None and sure * strength > best:
            best, detail = sure * strength, f"{quantity.text} where the source says {other.text}"
    return best, detail


def _counterpart(
    pair: _Pair, place: int, quantity: Quantity, free: Sequence[tuple[int, Quantity]]
) -> tuple[float, Quantity | None]:
    """The evidence's quantity that stands for the claim's, and how surely."""
    low, high = _gap(pair.anchors, place, len(pair.evidence.keys))
    if quantity.kind is Kind.POINTS:
        found = compare_quantities([quantity], [other for _, other in pair.evidence.quantities]).findings[0]
        return (0.9 if found.relation is Relation.DIFFER else 0.0), found.other
    differing = [(at, other) for at, other in free if relate(quantity, other) is Relation.DIFFER]
    for at, other in differing:
        if low <= at < high:
            return 1.0, other
    if differing:
        return (0.9 if len(differing) == 1 else 0.4), differing[0][1]
    for at, other in free:
        anchored = (place - 1, at - 1) in pair.anchors
        if (
            anchored
            and low <= at < high
            and other.kind is not quantity.kind
            and pair.missing == 0.0
            and _amount(quantity, other)
        ):
            return 1.0, other
    return 0.0, None


def _amount(quantity: Quantity, other: Quantity) -> bool:
    amounts = (Kind.NUMBER, Kind.PERCENT, Kind.POINTS, Kind.MONEY, Kind.MEASURE)
    return quantity.kind in amounts and other.kind in amounts


def _agrees(pair: _Pair) -> bool:
    return all(
        any(relate(quantity, other) is Relation.AGREE for _, other in pair.evidence.quantities)
        for _, quantity in pair.claim.quantities
    )


def _polarity_differs(pair: _Pair) -> float:
    claim, evidence = pair.claim, pair.evidence
    if pair.missing > 0.35 or claim.weight < 1.3 or (claim.quantities and not _agrees(pair)):
        return 0.0
    touched = _touched(claim, evidence)
    sign = -1 if (len(claim.negations) + sum(clause in touched for clause in evidence.negations)) % 2 else 1
    for key, mine in claim.signs.items():
        sign *= mine * evidence.signs.get(key, mine)
    if sign >= 0:
        return 0.0
    clause_keys = {key for key, clause in zip(evidence.keys, evidence.clauses, strict=True) if clause in touched}
    clause_weights = {key: weight for key, weight in evidence.weights.items() if key in clause_keys}
    if claim.quantifier == 4 or _share(clause_weights, claim.weights) >= 0.6:
        return 1.0
    return 0.4


def _roles_swapped(pair: _Pair) -> float:
    claim, evidence = pair.claim, pair.evidence
    if claim.relation is None or evidence.relation is None or claim.relation[0] != evidence.relation[0]:
        return 0.0
    if pair.missing > 0.35:
        return 0.0
    before, after = _sides(claim, claim.relation[2])
    first, second = _sides(evidence, evidence.relation[2])
    straight = len(before & first) + len(after & second)
    crossed = min(len(before & second), 1) + min(len(after & first), 1)
    same = claim.relation[1] == evidence.relation[1]
    if crossed == 2 and crossed > straight:
        return 1.0 if same else 0.0
    return 1.0 if straight > crossed and not same and len(claim.negations) == len(evidence.negations) else 0.0


def _sides(sentence: Sentence, place: int) -> tuple[set[str], set[str]]:
    left, right = set(sentence.keys[:place]), set(sentence.keys[place:])
    return left - right, right - left


def _name_differs(pair: _Pair) -> tuple[float, str | None]:
    """The last word is another letter or name after the same word: gate C for gate B."""
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


def _overclaims(pair: _Pair) -> float:
    claim, evidence = pair.claim, pair.evidence
    if claim.quantifier > evidence.quantifier > 0 or (evidence.hedged and not claim.hedged):
        return 1.0
    return 0.5 if evidence.conditions > claim.conditions else 0.0
