"""Reads the citations that an upstream reports in OpenAI's APIs."""

from collections.abc import Iterator
from typing import Any

from app.protocols.common.stream_events import UpstreamCitation
from policies.citations.annotation_parsing import read_annotation


def cited_in(annotations: Any, choice: int) -> Iterator[UpstreamCitation]:
    """Yield the citations in ``annotations``, which belong to the text of ``choice``. Invalid values of ``annotations``
    are ignored."""
    for annotation in annotations if isinstance(annotations, list) else ():
        found = read_annotation(annotation) if isinstance(annotation, dict) else None
        if found is not None:
            yield UpstreamCitation(choice=choice, place=found.place, marker=found.marker, names=found.names)
