"""Tracks open brackets, quotation marks and inline code, inside which no sentence ends."""

from judges.sentences.lookahead import Lookahead

_PAIRS = dict(zip("([{（【「『《〈〔［｛", ")]}）】」』》〉〕］｝", strict=True))
# Quotation marks by family: one closes an open one of its family, unless it is where a quotation opens.
_FAMILY = {'"': '"', "“": '"', "”": '"', "„": '"', "‘": "’", "’": "’", "‚": "’", "«": "»", "»": "»"}
_OPENING = frozenset("“„‘‚«")
_BEFORE_OPENING = frozenset("([{-–—*_:：")
_MAX_OPEN = 400
_MAX_DEPTH = 16
_MAX_RUN = 8

CHARACTERS = "".join((*_PAIRS, *_PAIRS.values(), *_FAMILY, "`"))


def closer_of(ch: str) -> str:
    """The closing mark that ``ch`` counts as."""
    return _FAMILY.get(ch, ch)


class Enclosures:
    """The marks that are open at a position in a sentence. One that stays open for long is dropped.

    Positions are relative to the start of the sentence.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, int]] = []

    def clear(self) -> None:
        self._open.clear()

    def at(self, position: int) -> list[str]:
        """The closing marks that are due, innermost last."""
        while self._open and position - self._open[0][1] > _MAX_OPEN:
            del self._open[0]
        return [closer for closer, _ in self._open]

    def take(self, ahead: Lookahead, at: int) -> None:
        """Read the mark at ``at``. Raises MoreTextNeeded."""
        ch, position = ahead.text[at], at - ahead.start
        before = ahead.text[at - 1] if position else " "
        enclosed = self.at(position)
        if ch == "`":
            if before != "`":
                run = ch * ahead.run(at, ch, _MAX_RUN)
                self._toggle(run, position, opens=run not in enclosed)
        elif enclosed and enclosed[-1][0] == "`":
            return
        elif ch in _FAMILY:
            self._quote(ch, position, before, ahead.char(at + 1))
        elif ch not in _PAIRS:
            self._toggle(ch, position, opens=False)
        elif before not in ":;":  # otherwise a sad face
            self._toggle(_PAIRS[ch], position, opens=True)

    def _quote(self, ch: str, position: int, before: str, after: str) -> None:
        closer = _FAMILY[ch]
        is_open = any(closer == other for other, _ in self._open)
        may_open = (before.isspace() or before in _BEFORE_OPENING) and bool(after) and not after.isspace() and ch != "’"
        if is_open and may_open and ch not in _OPENING:  # the one before was no quotation
            self._toggle(closer, position, opens=False)
        self._toggle(closer, position, opens=may_open or (ch in _OPENING and not is_open))

    def _toggle(self, closer: str, position: int, *, opens: bool) -> None:
        if opens:
            if len(self._open) < _MAX_DEPTH:
                self._open.append((closer, position))
            return
        for depth in range(len(self._open) - 1, -1, -1):
            if self._open[depth][0] == closer:
                del self._open[depth:]
                return
