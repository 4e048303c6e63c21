"""Splits text into words, and builds the text that is indexed for searching a request.

Both databases index the words that this module returns, so a search has the same meaning on both.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

MOST_INDEXED = 50_000
"""The maximum number of characters that are indexed per request. The question, the reply, document names and claims
come first, then the rest of the prompt. This limit also keeps an entry below PostgreSQL's maximum of one megabyte."""
_LONGEST_WORD = 64
_IDEOGRAPHS = "\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(f"[{_IDEOGRAPHS}]|[^\\W_{_IDEOGRAPHS}]+")
"""Matches a single Chinese or Japanese character, or a whole word of another script. A search for several of these
characters is therefore a search for a phrase."""
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


def words(text: str) -> list[str]:
    """Return the words of ``text`` in lower case, without accents."""
    if text.isascii():
        text = text.lower()
    else:
        text = "".join(
            char for char in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(char)
        )
    return [word[:_LONGEST_WORD] for word in _WORD.findall(text)]


def search_text(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str | None:
    """Return the words to index for an event, separated by spaces. They come from the stored question, reply, document
    names, claims and prompt. Return None if text isn't stored."""
    request = rows["requests"][0]
    prompt, reply = _text(request["prompt"]), _text(request["reply"])
    claims = {text for row in rows["claims"] if (text := _text(row["text"]))}
    documents = rows["documents"]
    if not (prompt or reply or claims or any(_text(row["text"]) for row in documents)):
        return None
    names = (row[name] for row in documents for name in ("title", "document_id", "source") if row[name])
    rest = (claim for claim in claims if claim not in reply)
    whole = "\n".join([_text(request.get("question")), reply, *names, *rest, prompt])
    return " ".join(words(whole[:MOST_INDEXED]))


def _text(stored: str | None) -> str:
    return "" if stored is None or _HASH.fullmatch(stored) else stored
