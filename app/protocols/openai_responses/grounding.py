"""Findings in the formats of the Responses API."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from app.protocols.common.merge_choices import merge_summaries
from app.protocols.openai_responses.event_types import TextPart


def annotation_of(annotation: Mapping[str, Any]) -> dict[str, Any]:
    """A citation in this API's format: flat, and for a file with the one index that its marker belongs to. The span of
    the sentence is kept beside it."""
    kind = str(annotation["type"])
    citation = {"type": kind, **annotation[kind]}
    if kind == "file_citation":
        citation["index"] = citation["end_index"]
    return citation


def located(claims: Iterable[Mapping[str, Any]], part: TextPart) -> list[dict[str, Any]]:
    """Claims with the part of the output that their spans refer to."""
    output_index, content_index = part.place
    return [{**claim, "output_index": output_index, "content_index": content_index} for claim in claims]


def summary_of(summaries: Sequence[Mapping[str, Any]], *, unchecked: Collection[str]) -> dict[str, Any]:
    """The ``grounding`` object of a response, from those of its parts."""
    summary = merge_summaries(summaries)
    kinds = sorted({*unchecked, *summary.get("not_checked", ())})
    return {**summary, "not_checked": kinds} if kinds else summary
