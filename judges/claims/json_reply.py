"""Reads a JSON reply. Each leaf, together with its path, is a claim; longer strings are judged sentence by sentence.

``{"battery": {"covered": true}}`` claims "battery covered: true". A string of more than a few words is text, which is
split into sentences; its key is a label or a claim. The pieces cover the whole reply and don't overlap: the JSON
structure between leaves becomes pieces that contain only punctuation. If the reply turns out not to be JSON, the rest
of it is treated as prose.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from math import inf

from msgspec import structs

from judges.claims.harmless import HarmlessText
from judges.claims.json_values import MAX_KEYS_CHARS, MAX_PATH_CHARS, Container, JsonString, words_of_key
from judges.protocols import ClaimExtractor, SentenceSplitter
from judges.types import Claim, Sentence, Span

_LITERALS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_NUMBER = re.compile(r"-?\d*(?:\.\d*)?(?:[eE][+-]?\d*)?")
_FENCE = re.compile(r"`{1,3}|`{3}(?:j(?:s(?:o(?:n[5cl]?)?)?)?)?[ \t\r]*\n?", re.IGNORECASE)
"""The opening of a JSON code fence, or the beginning of one. Only a language name may follow the backticks, because any
other text could make a claim."""
_PLAIN = re.compile(r'[^"\\]+')
_STRUCTURE = Sentence(index=0, text="", span=Span(0, 0), plain="", in_code=True)
_PUNCTUATION = re.compile(r'[\s{}\[\]",:`]+')
_PLAIN_KEYS_LISTED = (
    "a abstract an analysis and answer answers background body caption chapter chapters citation citations comment "
    "comments conclusion conclusions content contents context data description detail details document documents "
    "explanation final for full heading id info information introduction item items key label language line lines "
    "list long main message messages name notes note of output overview page paragraph paragraphs part parts point "
    "points quote quotes rationale reason reasoning reasons reply response responses result results section sections "
    "sentence sentences short source sources step steps subtitle summary text texts the title titles topic type value "
    "values antwort antworten beschreibung begründung details einleitung erklärung fazit inhalt quelle quellen "
    "titel zusammenfassung contenu détails explication introduction réponse réponses résumé texte titre "
    "contenido descripción detalles explicación fuente fuentes respuesta respuestas resumen texto título"
)
_PLAIN_KEYS = frozenset(_PLAIN_KEYS_LISTED.split())
"""Words in keys that say nothing about the value."""
_MAX_NUMBER_CHARS = 400
_MAX_LOOK_BACK = 256
"""Number of preceding pieces that are searched for a piece's context."""
_MAX_CONTEXT_CHARS = 80


class _State(Enum):
    START = auto()
    FENCE = auto()
    STRUCTURE = auto()
    LITERAL = auto()
    STRING = auto()
    PROSE = auto()


class JsonReply:
    """Reads one JSON reply. Implements ``SentenceSplitter`` and ``ClaimExtractor`` of ``judges.protocols``.

    Args:
        splitter: creates the splitter for prose.
        extractor: finds the claims in the sentences of a longer string.
        harmless: distinguishes keys that are labels from keys that state something.
        prose_extractor: finds the claims if the reply isn't JSON. Defaults to ``extractor``.
        value_splitter: creates the splitter for a longer string. Defaults to ``splitter``, which then also splits a
            reply that isn't JSON.
    """

    def __init__(
        self,
        splitter: Callable[[], SentenceSplitter],
        extractor: ClaimExtractor,
        harmless: HarmlessText,
        *,
        prose_extractor: ClaimExtractor | None = None,
        value_splitter: Callable[[], SentenceSplitter] | None = None,
    ) -> None:
        self._new_splitter = splitter
        self._new_value_splitter = value_splitter or splitter
        self._extractor = extractor
        self._prose_extractor = prose_extractor or extractor
        self._harmless = harmless
        self._unescaped: dict[int, Sentence] = {}
        self._leaves: dict[int, Claim] = {}
        self._shown: dict[int, str | None] = {}
        self._labels: set[int] = set()  # pieces whose keys say nothing or are judged with their text
        self._paths: dict[int, str] = {}  # keys above a sentence, judged with it
        self._index = 0
        self._raw: list[str] = []  # text, from ``raw_at`` on
        self._raw_at = 0
        self._begin = 0  # where the text that isn't part of a piece yet begins
        self._place = 0  # how far the reply has been read
        self._state = _State.START
        self._nesting: list[Container] = []
        self._wants_name = False
        self._word = ""
        self._fenced = False
        self._value: JsonString | None = None
        self._prose: SentenceSplitter | None = None
        self._prose_at = 0
        self._prose_from = inf
        """The index of the first piece of prose."""

    def push(self, text: str) -> Sequence[Sentence]:
        """Add a delta of the reply. Return the pieces that are now complete."""
        self._raw.append(text)
        sentences: list[Sentence] = []
        read = 0
        while read < len(text):
            if self._state is _State.PROSE:
                sentences += self._push_prose(text[read:])
                break
            if run := self._run(text, read):
                read += run
                self._place += run
            else:
                sentences += self._read(text[read])
                read += 1
                self._place += 1
        sentences += self._feed()
        return sentences

    def _run(self, text: str, at: int) -> int:
        """Add the characters of a string up to its next escape or quotation mark. Return their number."""
        value = self._value
        if value is None or value.in_escape or (found := _PLAIN.match(text, at)) is None:
            return 0
        value.extend(found[0], self._place)
        return len(found[0])

    def pause(self) -> Sequence[Sentence]:
        """Return the remaining sentences. Called when something other than text follows."""
        return self._rest(lambda splitter: splitter.pause())

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """Return the remaining sentences. Called when the reply has ended. ``truncated`` means that the reply was cut
        off, possibly inside a value."""
        return self._rest(lambda splitter: splitter.flush(truncated=truncated))

    def restart(self, index: int) -> None:
        """Forget the sentence ``index`` and all sentences after it. Only prose can be replaced."""
        if self._prose is not None:
            self._prose.restart(max(0, index - int(self._prose_from)))

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """Return the claims in a piece: its leaf or key, or the claims in its sentence; empty for punctuation."""
        if (leaf := self._leaves.get(sentence.index)) is not None:
            return (leaf,)
        spoken = self._unescaped.get(sentence.index)
        if spoken is None:
            return ()
        recent = previous[-_MAX_LOOK_BACK:]
        before = [self._unescaped[earlier.index] for earlier in recent if earlier.index in self._unescaped]
        extractor = self._extractor if sentence.index < self._prose_from else self._prose_extractor
        claims = await extractor.extract(spoken, before)
        if path := self._paths.get(sentence.index):
            is_first = self._paths.get(sentence.index - 1) != path
            if not claims and any(map(str.isalnum, spoken.text if is_first else spoken.plain)):
                claims = [Claim(text=spoken.plain or spoken.text, span=spoken.span, sentence_index=spoken.index)]
            claims = [replace(claim, text=f"{path}: {claim.text}") for claim in claims]
        return [replace(claim, span=_placed(claim.span, spoken, sentence)) for claim in claims]

    def spoken(self, sentence: Sentence) -> Sentence | None:
        """Return the unescaped sentence of a piece that is text or prose, or None for a leaf, a key or punctuation."""
        return self._unescaped.get(sentence.index)

    def is_label(self, sentence: Sentence) -> bool:
        """Return whether a piece is harmless: it contains only punctuation, and keys that name nothing new or are
        judged with their text."""
        if sentence.index in self._labels:
            return True
        words = words_of_key(_PUNCTUATION.sub(" ", sentence.text))
        return not words or (words.replace(" ", "").isalpha() and self._harmless.is_label(words))

    def shown(self, sentence: Sentence) -> str | None:
        """Return a piece's keys and leaf, unescaped, for clients to display. Return "" if the piece is not a leaf or
        key, and None if its keys are too long to be judged."""
        return self._shown.get(sentence.index, "")

    def _read(self, character: str) -> Sequence[Sentence]:
        match self._state:
            case _State.STRING:
                return self._read_string(character)
            case _State.LITERAL:
                return self._read_literal(character)
            case _State.FENCE:
                return self._read_fence(character)
            case _:
                return self._read_structure(character)

    def _read_structure(self, character: str) -> Sequence[Sentence]:
        if character.isspace():
            return ()
        if character == "`" and not self._nesting and (self._state is _State.START or self._fenced):
            self._state, self._word = _State.FENCE, character
            return ()
        if character == '"':
            return self._begin_string()
        claimed: Sequence[Sentence] = ()
        if character in "{[":
            self._begin_value()
            self._nesting.append(Container(character, self._nesting[-1] if self._nesting else None))
            self._wants_name = character == "{"
        elif character in "}]":
            if not self._nesting:
                return self._turn_to_prose(character)
            claimed = self._close()
        elif character == ",":
            self._wants_name = bool(self._nesting) and self._nesting[-1].is_object
        elif character == ":":
            self._wants_name = False
        else:
            self._state, self._word = _State.LITERAL, ""
            return self._read_literal(character)
        self._state = _State.STRUCTURE
        return claimed

    def _begin_string(self) -> Sequence[Sentence]:
        """Begin a string. If it is another key, emit the preceding key now, because the preceding key has no value."""
        lacking = self._wants_name and self._nesting and self._nesting[-1].lacks_value
        self._value = JsonString(is_name=self._wants_name)
        self._state = _State.STRING
        return self._bare(self._nesting[-1], None, end=self._place) if lacking else ()

    def _close(self) -> Sequence[Sentence]:
        """Close the innermost object or array. If it has no leaf, emit its key now."""
        closed = self._nesting.pop()
        self._wants_name = False
        if not closed.is_empty and not closed.lacks_value:
            return ()
        return self._bare(closed, "{}" if closed.is_object else "[]", end=self._place + 1)

    def _begin_value(self) -> None:
        if self._nesting:
            self._nesting[-1].is_empty = self._nesting[-1].lacks_value = False

    def _bare(self, place: Container, value: str | None, *, end: int) -> Sequence[Sentence]:
        """Return the piece for a key without a leaf ("side effects: []"), unless the key says nothing."""
        return () if _PLAIN_KEYS.issuperset(place.path.split()) else (self._claimed(end, place, value, ""),)

    def _read_literal(self, character: str) -> Sequence[Sentence]:
        """Read a number or a JSON literal. Anything else makes the whole reply prose."""
        if self._word and (character.isspace() or character in ',:{}[]"'):
            self._state = _State.STRUCTURE
            return [*self._leaf(self._place, self._word), *self._read_structure(character)]
        self._word += character
        is_number = len(self._word) <= _MAX_NUMBER_CHARS and _NUMBER.fullmatch(self._word)
        if is_number or any(word.startswith(self._word) for word in _LITERALS):
            return ()
        return self._turn_to_prose(self._word)

    def _read_fence(self, character: str) -> Sequence[Sentence]:
        """Read the code fence, with the language name, that some models put around their JSON."""
        self._word += character
        if not _FENCE.fullmatch(self._word):
            return self._turn_to_prose(self._word)
        if self._word.endswith("\n") or (self._fenced and self._word == "```"):
            self._state, self._fenced = _State.STRUCTURE, not self._fenced
        return ()

    def _read_string(self, character: str) -> Sequence[Sentence]:
        value = self._value
        if value is None or not value.take(character, self._place):
            return ()
        sentences = self._feed()
        if value.splitter is not None:
            sentences += self._value_sentences(value, value.splitter.flush())
        elif not value.is_name:
            sentences += self._leaf(self._place + 1, "".join(value.characters))
        elif self._nesting:
            self._nesting[-1].key = "".join(value.characters)
            self._nesting[-1].lacks_value = True
        self._value, self._state = None, _State.STRUCTURE
        return sentences

    def _feed(self) -> list[Sentence]:
        """Pass new characters of the current value to its splitter. The splitter is created as soon as the value is
        known to be text.
        """
        value = self._value
        if value is None or not value.is_text:
            return []
        sentences: list[Sentence] = []
        if value.splitter is None:
            value.splitter = self._new_value_splitter()
            sentences += self._key(value.places[0], value)
        text = "".join(value.characters[value.fed :])
        value.fed = len(value.characters)
        return sentences + self._value_sentences(value, value.splitter.push(text))

    def _turn_to_prose(self, begun: str) -> list[Sentence]:
        """Treat ``begun``, which ends with the current character, and everything after it as prose rather than JSON."""
        self._prose_at = self._place + 1 - len(begun)
        self._state, self._prose = _State.PROSE, self._new_splitter()
        structure = self._structure(self._prose_at)
        self._prose_from = self._index
        return [*structure, *self._prose_sentences(self._prose.push(begun))]

    def _push_prose(self, text: str) -> list[Sentence]:
        self._place += len(text)
        return self._prose_sentences(self._prose.push(text)) if self._prose is not None else []

    def _rest(self, end: Callable[[SentenceSplitter], Sequence[Sentence]]) -> list[Sentence]:
        sentences = self._feed()
        if self._prose is not None:
            sentences += self._prose_sentences(end(self._prose))
        elif self._value is not None and self._value.splitter is not None:
            sentences += self._value_sentences(self._value, end(self._value.splitter))
        stop = self._place
        if self._state is _State.LITERAL and self._word:
            sentences += self._leaf(stop, self._word)
        elif self._value is not None and self._value.splitter is None and not self._value.is_name:
            sentences += self._leaf(stop, "".join(self._value.characters))
        return sentences + self._structure(stop)

    def _structure(self, end: int) -> list[Sentence]:
        """Return the piece of structure up to ``end``."""
        return [] if end <= self._begin else [self._emit(end, _STRUCTURE, None)]

    def _leaf(self, end: int, value: str) -> list[Sentence]:
        """Return the piece for the leaf that ends at ``end``, with its key and the structure before it."""
        self._begin_value()
        place = self._nesting[-1] if self._nesting else None
        if place is None or place.object is None:
            return [self._claimed(end, place, value, "")]
        piece = self._claimed(end, place, value, place.object.first)
        place.object.first = place.object.first or piece.plain[:_MAX_CONTEXT_CHARS]
        return [piece]

    def _key(self, end: int, value: JsonString) -> list[Sentence]:
        """Return the piece that precedes a longer string and contains its key. A key that says nothing ("text") is not
        judged. A key that names only known things is judged together with the string. Any other key is a claim."""
        self._begin_value()
        place = self._nesting[-1] if self._nesting else None
        if place is None or not place.path:
            return self._structure(end)
        is_long = len(place.path) > MAX_PATH_CHARS or len(place.keys) > MAX_KEYS_CHARS
        if is_long or not _PLAIN_KEYS.issuperset(place.path.split()):
            if is_long or not self._harmless.is_label(place.path):
                return [self._claimed(end, place, None, "")]
            value.path = place.path
        (piece,) = self._structure(end)
        self._labels.add(piece.index)
        self._shown[piece.index] = place.keys
        return [piece]

    def _claimed(self, end: int, place: Container | None, value: str | None, context: str) -> Sentence:
        """Return the piece for a leaf or a key at ``place``, which is a claim unless its path is too long."""
        path, keys = (place.path, place.keys) if place is not None else ("", "")
        text = ": ".join([*([path] if path else ()), *([value] if value is not None else ())])
        piece = self._emit(end, Sentence(index=0, text="", span=Span(0, 0), plain=text), None)
        if len(path) > MAX_PATH_CHARS or len(keys) > MAX_KEYS_CHARS:
            self._shown[piece.index] = None
            return piece
        self._shown[piece.index] = keys if value is None else f"{keys}: {value}"
        self._leaves[piece.index] = Claim(text=text, span=piece.span, sentence_index=piece.index, context=context)
        return piece

    def _value_sentences(self, value: JsonString, sentences: Sequence[Sentence]) -> list[Sentence]:
        places, end = value.places, value.end(self._place)
        pieces = [
            self._emit(places[at] if (at := sentence.span.end) < len(places) else end, sentence, sentence)
            for sentence in sentences
        ]
        if value.path:
            self._paths.update((piece.index, value.path) for piece in pieces)
        return pieces

    def _prose_sentences(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        return [self._emit(self._prose_at + sentence.span.end, sentence, sentence) for sentence in sentences]

    def _emit(self, end: int, like: Sentence, spoken: Sentence | None) -> Sentence:
        sentence = structs.replace(like, index=self._index, text=self._cut(end), span=Span(self._begin, end))
        if spoken is not None:
            self._unescaped[self._index] = structs.replace(spoken, index=self._index)
        self._index += 1
        self._begin = end
        return sentence

    def _cut(self, end: int) -> str:
        """Return the text up to ``end`` that isn't part of a piece yet. Each call joins the deltas only once."""
        if len(self._raw) > 1:
            self._raw = ["".join(self._raw)[self._begin - self._raw_at :]]
            self._raw_at = self._begin
        return self._raw[0][self._begin - self._raw_at : end - self._raw_at]


def _placed(span: Span, spoken: Sentence, sentence: Sentence) -> Span:
    """Convert ``span``, a span of the unescaped sentence, to a span of the reply. If the sentence contains escapes,
    return the span of the whole sentence."""
    if spoken.text != sentence.text:
        return sentence.span
    by = sentence.span.start - spoken.span.start
    return Span(span.start + by, span.end + by)
