"""Prepares caller-reported citations for storage. If text isn't stored in full, the cited names are replaced by
digests. A digest matches the same documents as the name, including documents that are recorded later."""

import hashlib
import re
from collections.abc import Sequence

from judges.types import Chunk
from policies.citations.document_names import lookup_forms
from policies.citations.extraction import reported_citations
from policies.reason_texts import redacted_marker
from policies.types import Citation

_PREFIX = "digest:"
_HIDDEN = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}(?::[0-9a-f]{{16}}){{0,2}}")


def hidden(name: str) -> str:
    """Return digests of ``name``, one for each form in which it is looked up. Blank names, numbers in brackets, and
    names that are already hidden are returned unchanged."""
    if not name.strip() or _HIDDEN.fullmatch(name) or redacted_marker(name) == name:
        return name
    digests = [_digest(form) for form in lookup_forms(name.strip())]
    while digests[1:] and digests[-1] == digests[-2]:
        digests.pop()
    return _PREFIX + ":".join(digests)


def citations_of(names: Sequence[str], chunks: Sequence[Chunk]) -> tuple[Citation, ...]:
    """Return the reported citations, each with its document. ``names`` may contain hidden names."""
    plain = [name for name in names if not _HIDDEN.fullmatch(name)]
    if len(plain) == len(names):
        return reported_citations(names, chunks)
    documents = _HiddenDocuments(chunks)
    found = (
        Citation(marker=name, document_index=documents.find(name)[0], reported=True)
        for name in names
        if _HIDDEN.fullmatch(name)
    )
    return (*reported_citations(plain, chunks), *found)


def shown(names: Sequence[str], chunks: Sequence[Chunk]) -> list[str]:
    """Return the names that may be shown. A hidden name of a document is replaced by the document's own name."""
    documents = _HiddenDocuments(chunks)
    return [documents.find(name)[1] if _HIDDEN.fullmatch(name) else name for name in names]


class _HiddenDocuments:
    """Finds documents by hidden names, as ``DocumentNames.get`` does by plain names."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._ids: dict[str, tuple[int, str]] = {}
        self._folded: dict[str, tuple[int, str]] = {}
        for index, chunk in enumerate(chunks):
            self._ids.setdefault(_digest(chunk.id), (index, chunk.id))
            for name in filter(None, (chunk.id, chunk.source, chunk.url, chunk.title)):
                _, folded, _ = lookup_forms(name)
                self._folded.setdefault(_digest(folded), (index, name))

    def find(self, hidden_name: str) -> tuple[int | None, str]:
        """Return the index of the document and its plain name. If no document is found, return None and the hidden
        name."""
        digests = hidden_name.removeprefix(_PREFIX).split(":")
        exact, folded, page = (digests + 2 * digests[-1:])[:3]
        for table, digest in ((self._ids, exact), (self._folded, folded), (self._folded, page)):
            if (found := table.get(digest)) is not None:
                return found
        return None, hidden_name


def _digest(form: str) -> str:
    return hashlib.blake2b(form.encode("utf-8", "replace"), digest_size=8).hexdigest()
