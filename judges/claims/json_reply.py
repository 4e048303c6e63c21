"""Reads a JSON reply: its string values are judged sentence by sentence, its names, numbers and codes are not.

A value of more than a few words is text. Everything around it (structure, names, numbers, short values) becomes pieces
that are not judged, so that the pieces still tile the reply. If the reply turns out not to be JSON, the rest is prose.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto

from judges.protocols import ClaimExtractor, SentenceSplitter
from judges.types import Claim, Sentence, Span

_MAX_CODE_WORDS = 3
"""A value of up to this many words is a code or a name, not text."""
_MAX_CODE_WIDE_CHARS = 12
"""The same for characters of scripts that may have no spaces between words."""
_WIDE = "\u0e00"
_LITERALS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_NUMBER = re.compile(r"-?\d*(?:\.\d*)?(?:[eE][+-]?\d*)?")
_FENCE = re.compile(r"`{1,3}|`{3}[A-Za-z0-9]{1,10}[ \t\r]*\n?|`{3}[ \t\r]*\n?")
_STRUCTURE = Sentence(index=0, text="", span=Span(0, 0), plain="", in_code=True)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CODE_LENGTH = 4


class _State(Enum):
    START = auto()
    FENCE = auto()
    STRUCTURE = auto()
    LITERAL = auto()
    STRING = auto()
    PROSE = auto()


class _Value:
    """A string that is being read: its unescaped characters, and the position in the reply where each begins."""

    def __init__(self, *, is_name: bool) -> None:
        self.is_name = is_name
        self.characters: list[str] = []
        self.places: list[int] = []
        self.fed = 0
        self.splitter: SentenceSplitter | None = None
        self._escape: str | None = None
        self._escape_at = 0
        self._words = 0
        self._wide = 0
        self._in_word = False

    def take(self, character: str, place: int) -> bool:
        """Take the next raw character; True if it is the quotation mark that ends the string."""
        if self._escape is not None:
            self._unescape(character)
        elif character == "\\":
            self._escape, self._escape_at = "", place
        elif character == '"':
            return True
        else:
            self._append(character, place)
        return False

    def end(self, place: int) -> int:
        """The end of the characters so far; ``place`` is how far the reply has been read."""
        return place if self._escape is None else self._escape_at

    @property
    def is_text(self) -> bool:
        return not self.is_name and (self._words > _MAX_CODE_WORDS or self._wide > _MAX_CODE_WIDE_CHARS)

    def _unescape(self, character: str) -> None:
        code = f"{self._escape}{character}"
        if code[0] != "u":
            self._append(_ESCAPES.get(code, code), self._escape_at)
        elif len(code) <= _CODE_LENGTH:
            self._escape = code
            return
        else:
            digits = code[1:]
            known = re.fullmatch("[0-9a-fA-F]{4}", digits)
            self._append(chr(int(digits, 16)) if known else "\N{REPLACEMENT CHARACTER}", self._escape_at)
        self._escape = None

    def _append(self, character: str, place: int) -> None:
        self.characters.append(character)
        self.places.append(place)
        blank = character.isspace()
        self._words += not blank and not self._in_word
        self._in_word = not blank
        self._wide += character >= _WIDE and not blank


class JsonReply:
    """Reads one JSON reply. Implements ``SentenceSplitter`` and ``ClaimExtractor`` of ``judges.protocols``.

    Args:
        splitter: makes the splitter of one string value, which it sees without escapes.
        extractor: finds the claims of its sentences.
    """

    def __init__(self, splitter: Callable[[], SentenceSplitter], extractor: ClaimExtractor) -> None:
        self._new_splitter = splitter
        self._extractor = extractor
        self._unescaped: dict[int, Sentence] = {}
        self._index = 0
        self._raw = ""  # text that is in no piece yet
        self._begin = 0  # its position in the reply
        self._place = 0  # how far the reply has been read
        self._state = _State.START
        self._nesting: list[str] = []
        self._wants_name = False
        self._word = ""
        self._fenced = False
        self._value: _Value | None = None
        self._prose: SentenceSplitter | None = None
        self._prose_at = 0

    def push(self, text: str) -> Sequence[Sentence]:
        """Take a delta of the reply; return the pieces whose end is now certain."""
        self._raw += text
        sentences: list[Sentence] = []
        for read, character in enumerate(text):
            if self._state is _State.PROSE:
                sentences += self._push_prose(text[read:])
                break
            sentences += self._read(character)
            self._place += 1
        sentences += self._feed()
        return sentences

    def pause(self) -> Sequence[Sentence]:
        """Something other than text follows; return the rest of what has arrived."""
        return self._rest(lambda splitter: splitter.pause())

    def flush(self, *, truncated: bool = False) -> Sequence[Sentence]:
        """The reply has ended; return the rest. ``truncated``: it was cut off, possibly inside a value."""
        return self._rest(lambda splitter: splitter.flush(truncated=truncated))

    async def extract(self, sentence: Sentence, previous: Sequence[Sentence]) -> Sequence[Claim]:
        """The claims of a piece that is text; empty for any other."""
        unescaped = self._unescaped.get(sentence.index)
        if unescaped is None:
            return ()
        before = [self._unescaped[earlier.index] for earlier in previous if earlier.index in self._unescaped]
        claims = await self._extractor.extract(unescaped, before)
        return [replace(claim, span=_placed(claim.span, unescaped, sentence)) for claim in claims]

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
        if character in "{[":
            self._nesting.append(character)
            self._wants_name = character == "{"
        elif character in "}]":
            if not self._nesting:
                return self._turn_to_prose(1, character)
            self._nesting.pop()
            self._wants_name = False
        elif character == '"':
            self._value = _Value(is_name=self._wants_name)
            self._state = _State.STRING
            return ()
        elif character == ",":
            self._wants_name = self._nesting[-1:] == ["{"]
        elif character == ":":
            self._wants_name = False
        else:
            self._state, self._word = _State.LITERAL, ""
            return self._read_literal(character)
        self._state = _State.STRUCTURE
        return ()

    def _read_literal(self, character: str) -> Sequence[Sentence]:
        """A number or one of JSON's literals. Anything else makes the reply prose from its first character."""
        if self._word and (character.isspace() or character in ',:{}[]"'):
            self._state = _State.STRUCTURE
            return self._read_structure(character)
        self._word += character
        if _NUMBER.fullmatch(self._word) or any(word.startswith(self._word) for word in _LITERALS):
            return ()
        return self._turn_to_prose(len(self._word), character)

    def _read_fence(self, character: str) -> Sequence[Sentence]:
        """The code fence that some models put around their JSON, with the name of the language."""
        self._word += character
        if not _FENCE.fullmatch(self._word):
            return self._turn_to_prose(len(self._word), character)
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
        self._value, self._state = None, _State.STRUCTURE
        return sentences

    def _feed(self) -> list[Sentence]:
        """Pass new characters of the current value to its splitter, which is made as soon as the value is text."""
        value = self._value
        if value is None or not value.is_text:
            return []
        sentences: list[Sentence] = []
        if value.splitter is None:
            value.splitter = self._new_splitter()
            sentences += self._structure(value.places[0])
        text = "".join(value.characters[value.fed :])
        value.fed = len(value.characters)
        return sentences + self._value_sentences(value, value.splitter.push(text))

    def _turn_to_prose(self, length: int, character: str) -> list[Sentence]:
        """The last ``length`` characters, including ``character``, are not JSON, nor is anything after them."""
        self._prose_at = self._place + 1 - length
        begun = self._raw[self._prose_at - self._begin : self._place + 1 - self._begin]
        self._state, self._prose = _State.PROSE, self._new_splitter()
        return [*self._structure(self._prose_at), *self._prose_sentences(self._prose.push(begun))]

    def _push_prose(self, text: str) -> list[Sentence]:
        self._place += len(text)
        return self._prose_sentences(self._prose.push(text)) if self._prose is not None else []

    def _rest(self, end: Callable[[SentenceSplitter], Sequence[Sentence]]) -> list[Sentence]:
        sentences = self._feed()
        if self._prose is not None:
            sentences += self._prose_sentences(end(self._prose))
        elif self._value is not None and self._value.splitter is not None:
            sentences += self._value_sentences(self._value, end(self._value.splitter))
        return sentences + self._structure(self._begin + len(self._raw))

    def _structure(self, end: int) -> list[Sentence]:
        """The piece up to ``end`` that is not judged."""
        return [] if end <= self._begin else [self._emit(end, _STRUCTURE, None)]

    def _value_sentences(self, value: _Value, sentences: Sequence[Sentence]) -> list[Sentence]:
        places = [*value.places, value.end(self._place)]
        return [self._emit(places[sentence.span.end], sentence, sentence) for sentence in sentences]

    def _prose_sentences(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        return [self._emit(self._prose_at + sentence.span.end, sentence, sentence) for sentence in sentences]

    def _emit(self, end: int, like: Sentence, unescaped: Sentence | None) -> Sentence:
        length = end - self._begin
        text, self._raw = self._raw[:length], self._raw[length:]
        sentence = replace(like, index=self._index, text=text, span=Span(self._begin, end))
        if unescaped is not None:
            self._unescaped[self._index] = replace(unescaped, index=self._index)
        self._index += 1
        self._begin = end
        return sentence


def _placed(span: Span, unescaped: Sentence, sentence: Sentence) -> Span:
    """``span`` of the unescaped sentence as a span of the reply; the whole sentence if it has escapes."""
    if unescaped.text != sentence.text:
        return sentence.span
    by = sentence.span.start - unescaped.span.start
    return Span(span.start + by, span.end + by)
