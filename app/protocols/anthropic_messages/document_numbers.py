"""Maps the documents of a Messages request to the numbers that the API gives them.

``document`` and ``search_result`` blocks are numbered separately, from zero. Documents in the ``documents`` field come
after the caller's ``document`` blocks.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

from app.protocols.anthropic_messages.allowlist import name_of, word_of
from app.protocols.anthropic_messages.request import DocumentBlock
from app.protocols.common.known_fields import UNFIT, identifier
from app.protocols.common.stream_events import SupportingPassage, UpstreamCitation
from judges.types import Chunk

_NUMBERS = {
    "char_location": ("document", "document_index"),
    "page_location": ("document", "document_index"),
    "content_block_location": ("document", "document_index"),
    "search_result_location": ("search_result", "search_result_index"),
}
"""The block type and the name of the number field, by citation type."""

_NAMES = frozenset({"type", "url", "source", "file_id", "title", "document_title", "encrypted_index"})
"""The citation fields that are allowed to contain an address, an id or a file name that doesn't occur in any of the
request's documents."""
_UNSPACED = r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
"""A character of a script that is written without spaces between words."""
_BREAK = re.compile(rf"(?<={_UNSPACED})\s+(?={_UNSPACED})")

_UNTITLED: Mapping[str, None] = {"title": None, "document_title": None}
"""The fields of a citation that may be null."""


class DocumentNumbers:
    """Numbers the documents of one request. ``blocks`` contains the document blocks, and ``chunks`` all documents.
    ``dropped`` contains the positions of chunks that were not sent upstream."""

    def __init__(self, blocks: Sequence[DocumentBlock], chunks: Sequence[Chunk], dropped: Collection[int] = ()) -> None:
        self._chunks = chunks
        self._by_document = {block.document: block for block in blocks if block.document is not None}
        self._given = {kind: [block for block in blocks if block.kind == kind] for kind, _ in _NUMBERS.values()}
        self._sent = {kind: [b for b in of if b.document not in dropped] for kind, of in self._given.items()}

    def renumbered(self, citation: dict[str, Any]) -> dict[str, Any]:
        """Return an upstream citation with the document number that the client knows."""
        block = self._cited(citation)
        if block is None:
            return citation
        kind, name = _NUMBERS[citation["type"]]
        number = self._given[kind].index(block)
        return citation if citation[name] == number else {**citation, name: number}

    def cited(self, citation: Mapping[str, Any], place: int) -> UpstreamCitation:
        """Build the event for an upstream citation in the text at ``place``."""
        block = self._cited(citation)
        marker = self._marker(citation)
        if block is not None:
            return UpstreamCitation(
                choice=0, place=place, marker=marker, document=block.document, unreadable=block.document is None
            )
        # If the upstream found the document itself, the citation names its source or URL.
        is_name = any(marker in (chunk.url, chunk.source) for chunk in self._chunks)
        return UpstreamCitation(choice=0, place=place, marker=marker, names=(marker,) if is_name else ())

    def says(self, quoted: str) -> bool:
        """Return whether a document of the request contains ``quoted``. Only whole words match, and line breaks count
        as spaces."""
        said = _spaced(quoted)
        if not said:
            return True
        before = r"(?<!\w)" if _is_in_word(said[0]) else ""
        after = r"(?!\w)" if _is_in_word(said[-1]) else ""
        pattern = re.compile(f"{before}{re.escape(said)}{after}")
        return any(pattern.search(text) for text in self._texts)

    @cached_property
    def _texts(self) -> Sequence[str]:
        # An upstream may quote several blocks, and join their texts without spaces.
        joined = ["".join(block.texts) for blocks in self._given.values() for block in blocks if len(block.texts) > 1]
        return [_spaced(text) for text in (*(chunk.text for chunk in self._chunks), *joined)]

    def with_known_citation(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the event with a cleaned citation. Text, including titles, is removed unless a document of the request
        contains it."""
        delta = event.get("delta")
        citation = delta.get("citation") if isinstance(delta, dict) else None
        if not isinstance(delta, dict) or not isinstance(citation, dict):
            return event
        names = {name for chunk in self._chunks for name in (chunk.title, chunk.source, chunk.url)}
        known = {
            name: value if not isinstance(value, str) or self._may_say(name, value, names) else _UNTITLED.get(name, "")
            for name, value in citation.items()
        }
        return {**event, "delta": {**delta, "citation": known}}

    def _may_say(self, name: str, value: str, names: Collection[str | None]) -> bool:
        if not any(map(str.isalnum, value)):
            return True
        names_something = name in _NAMES and (value in names or identifier(value) is not UNFIT)
        return names_something or self.says(value)

    def citation(self, support: SupportingPassage) -> dict[str, Any]:
        """Build the gateway's own citation of a passage that supports a sentence."""
        block, chunk, span = self._by_document.get(support.position), support.chunk, support.source.span
        if block is None or block.plain:
            documents = self._given["document"]
            number = len(documents) + support.position if block is None else documents.index(block)
            return {
                "type": "char_location",
                "cited_text": chunk.text[span.start : span.end],
                "document_index": number,
                "document_title": chunk.title or chunk.source,
                "start_char_index": span.start,
                "end_char_index": span.end,
            }
        ends = list(accumulate(len(text) + 1 for text in block.texts))
        first = next(index for index, end in enumerate(ends) if span.start < end)
        last = next(index for index, end in enumerate(ends) if span.end <= end)
        place = {
            "cited_text": "".join(block.texts[first : last + 1]),
            "start_block_index": first,
            "end_block_index": last + 1,
        }
        number = self._given[block.kind].index(block)
        if block.kind == "document":
            return {"type": "content_block_location", "document_index": number, "document_title": block.title, **place}
        return {
            "type": "search_result_location",
            "search_result_index": number,
            "source": block.source or "",
            "title": block.title,
            **place,
        }

    def _cited(self, citation: Mapping[str, Any]) -> DocumentBlock | None:
        kind, name = _NUMBERS.get(str(citation.get("type")), ("", ""))
        number, sent = citation.get(name), self._sent.get(kind, [])
        return sent[number] if isinstance(number, int) and 0 <= number < len(sent) else None

    def _marker(self, citation: Mapping[str, Any]) -> str:
        """Return the name that a citation uses for its document. A name that contains whitespace is used only if it is
        the name of a document in the request."""
        known = {name for chunk in self._chunks for name in (chunk.title, chunk.source, chunk.url)}
        for field in ("url", "source", "document_title", "title"):
            name = citation.get(field)
            if isinstance(name, str) and (name in known or word_of(name)):
                return name
        kind = name_of(citation.get("type"))
        number = citation.get(_NUMBERS[kind][1]) if kind in _NUMBERS else None
        return f"{kind} {number}" if isinstance(number, int) else kind


def _spaced(text: str) -> str:
    """Return the text with each run of whitespace replaced by one space. In scripts without spaces, the whitespace is
    removed."""
    return _BREAK.sub("", " ".join(text.split()))


def _is_in_word(character: str) -> bool:
    """Return whether the character can be part of a word in a script that separates words with spaces."""
    return re.match(r"\w", character) is not None and re.match(_UNSPACED, character) is None


def document_key(citation: Mapping[str, Any]) -> tuple[str, Any]:
    """Return a key for the cited document. Two citations of the same document have the same key."""
    kind, name = _NUMBERS.get(str(citation.get("type")), ("", "url"))
    return kind, citation.get(name)
