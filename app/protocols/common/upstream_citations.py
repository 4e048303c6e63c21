"""What an upstream of one of OpenAI's APIs says itself that its text cites."""

from collections.abc import Iterator
from typing import Any

from app.protocols.common.stream_events import UpstreamCitation
from policies.citations.annotations import read_annotation


def cited_in(annotations: Any, choice: int) -> Iterator[UpstreamCitation]:
    """The citations among ``annotations``, which should be a list of objects, in the text of ``choice``."""
    for annotation in annotations if isinstance(annotations, list) else ():
        found = read_annotation(annotation) if isinstance(annotation, dict) else None
        if found is not None:
            yield UpstreamCitation(choice=choice, place=found.place, marker=found.marker, names=found.names)
