"""The described replies about the event log have the fields of its rows."""

from collections.abc import Collection
from typing import get_type_hints

import pytest
from msgspec import Struct
from pydantic import BaseModel

from app.api.openapi.event_replies import LoggedClaim, LoggedDocument, RequestSummary
from app.events.records import ClaimRow, DocumentRow, RequestRow
from app.events.serialization import score_summary


@pytest.mark.parametrize(
    ("reply", "row", "added", "elsewhere"),
    [
        (RequestSummary, RequestRow, ("total_tokens", *score_summary((), ())), ("prompt", "reply", "extra")),
        (LoggedDocument, DocumentRow, ("outcome",), ()),
        (LoggedClaim, ClaimRow, ("extra",), ("choice", "sentence_index", "extra")),
    ],
)
def test_reply_has_the_fields_of_its_row(
    reply: type[BaseModel], row: type[Struct], added: Collection[str], elsewhere: Collection[str]
) -> None:
    described = {name: kind for name, kind in get_type_hints(reply).items() if name in reply.model_fields}
    logged = {name: kind for name, kind in get_type_hints(row).items() if name not in elsewhere}
    assert {name: kind for name, kind in described.items() if name not in added} == logged
