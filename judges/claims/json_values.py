"""The parts of a JSON reply that are being read: strings, and the containers around them."""

import re

from judges.protocols import SentenceSplitter

_MAX_CODE_WORDS = 3
"""A value of at most this many words is a code or a name, not text."""
_MAX_CODE_WIDE_CHARS = 12
"""In scripts that may have no spaces between words, a value of at most this many characters is a code or a name, not
text."""
_WIDE = "\u0e00"
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CODE_LENGTH = 4
_GAPS = re.compile(
    r"[\s_]+|(?<=[^\W\d_])[-./:](?=[^\W\d_])|(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    r"|(?<=\d)(?=[^\W\d_])|(?<=[^\W\d_])(?=\d)"
)
"""The gaps between the words of a key."""
_MAX_LEAF_CHARS = 1000
"""A string of more than this many characters is text, whatever it contains."""
MAX_PATH_CHARS = 400
MAX_KEYS_CHARS = 800
"""Maximum length, in characters, of the keys that lead to a value, both converted to words and as written. Longer keys
are not judged."""


class JsonString:
    """A string that is being read: its unescaped characters, and the position in the reply where each begins."""

    def __init__(self, *, is_name: bool) -> None:
        self.is_name = is_name
        self.characters: list[str] = []
        self.places: list[int] = []
        self.fed = 0
        self.splitter: SentenceSplitter | None = None
        self.path = ""  # keys with which each sentence is judged
        self._escape: str | None = None
        self._escape_at = 0
        self._words = 0
        self._wide = 0
        self._in_word = False

    @property
    def in_escape(self) -> bool:
        return self._escape is not None

    def extend(self, run: str, place: int) -> None:
        """Add raw characters without escapes or quotation marks; ``place`` is the position of the first one."""
        self.characters.extend(run)
        self.places.extend(range(place, place + len(run)))
        if self.is_text or self.is_name:
            return
        self._words += len(run.split()) - (self._in_word and not run[0].isspace())
        self._in_word = not run[-1].isspace()
        self._wide += sum(character >= _WIDE and not character.isspace() for character in run)

    def take(self, character: str, place: int) -> bool:
        """Add the next raw character. Return True if it is the quotation mark that ends the string."""
        if self._escape is not None:
            self._unescape(character)
        elif character == "\\":
            self._escape, self._escape_at = "", place
        elif character == '"':
            return True
        else:
            self.extend(character, place)
        return False

    def end(self, place: int) -> int:
        """Return the position after the last character added so far; ``place`` is the position up to which the reply
        has been read."""
        return place if self._escape is None else self._escape_at

    @property
    def is_text(self) -> bool:
        return not self.is_name and (
            self._words > _MAX_CODE_WORDS or self._wide > _MAX_CODE_WIDE_CHARS or len(self.characters) > _MAX_LEAF_CHARS
        )

    def _unescape(self, character: str) -> None:
        code = f"{self._escape}{character}"
        if code[0] != "u":
            self.extend(_ESCAPES.get(code, code), self._escape_at)
        elif len(code) <= _CODE_LENGTH:
            self._escape = code
            return
        else:
            digits = code[1:]
            known = re.fullmatch("[0-9a-fA-F]{4}", digits)
            self.extend(chr(int(digits, 16)) if known else "\N{REPLACEMENT CHARACTER}", self._escape_at)
        self._escape = None


class Container:
    """An open object or array, with its current key and its first leaf, which distinguishes it from its siblings.
    ``is_empty`` means that it has no value yet; ``lacks_value`` means that the value of its current key has not begun.
    """

    def __init__(self, bracket: str, outer: "Container | None") -> None:
        self.is_object = bracket == "{"
        self.object: Container | None = self if self.is_object or outer is None else outer.object
        """The innermost object."""
        self.key = ""
        self.first = ""
        self.is_empty = True
        self.lacks_value = False
        self._outer_path = outer.path if outer is not None else ""
        self._outer_keys = outer.keys if outer is not None else ""

    @property
    def path(self) -> str:
        """The keys that lead to the current value, in words."""
        if not self.key:
            return self._outer_path
        return f"{self._outer_path} {words_of_key(self.key)}".strip()[: MAX_PATH_CHARS + 1]

    @property
    def keys(self) -> str:
        """The keys that lead to the current value, as they are written."""
        return f"{self._outer_keys} {self.key}"[: MAX_KEYS_CHARS + 1] if self.key else self._outer_keys


def words_of_key(name: str) -> str:
    """Return a key in words: ``battery_covered`` and ``batteryCovered`` become "battery covered"."""
    words = filter(None, _GAPS.split(name))
    return " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words)
