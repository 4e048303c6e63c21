"""Rows contain the event's data, in types that every database and JSON support."""

import json
from collections.abc import Callable
from enum import StrEnum

from hypothesis import given
from hypothesis import strategies as st

from app.db.tables import metadata
from app.events.records import RequestEvent
from app.events.serialization import dump, event_rows, load, plain, score_summary
from policies.types import Decision


def test_journal_line_restores_the_rows(event: Callable[..., RequestEvent]) -> None:
    rows = event_rows(event(7))
    assert load(dump(rows)) == rows
    assert b"\n" not in dump(rows)


def test_older_rows_get_the_time_of_their_request_and_the_summary_of_its_scores(
    event: Callable[..., RequestEvent],
) -> None:
    rows = event_rows(event(7))
    assert rows["requests"][0]["lowest_claim_score"] is not None
    later = {"requests": [*score_summary((), ())], "claims": ["ts"], "documents": ["ts"], "decisions": []}
    earlier = {
        table: [{name: row[name] for name in row if name not in later[table]} for row in of]
        for table, of in rows.items()
    }
    assert load(dump(earlier)) == rows


def test_every_row_fills_the_columns_of_its_table(event: Callable[..., RequestEvent]) -> None:
    for name, rows in event_rows(event(1)).items():
        assert set(rows[0]) == {column.name for column in metadata.tables[name].c if column.computed is None}


def test_every_row_names_its_request(event: Callable[..., RequestEvent], decision: Callable[..., Decision]) -> None:
    rows = event_rows(event(7, decisions=(decision(), decision()), agent="a", run_id="run_1"))
    assert [row["id"] for row in rows["decisions"]] == ["req_000007.00000", "req_000007.00001"]
    assert {(row["agent"], row["run_id"], row["model"]) for row in rows["decisions"]} == {("a", "run_1", "gpt-4o-mini")}
    assert {row["request_id"] for table in rows.values() for row in table} == {"req_000007"}


def test_characters_that_databases_reject_are_replaced() -> None:
    class Colour(StrEnum):
        RED = "red"

    assert plain("a\0b") == "a\N{REPLACEMENT CHARACTER}b"
    assert plain("\ud800") == "?"
    assert plain({"n": float("nan"), "i": float("inf"), 1: (1, {2})}) == {"n": None, "i": None, "1": [1, [2]]}
    assert plain(2**63) == float(2**63)
    assert plain(10**5000) is None
    assert plain(Colour.RED) == "red"
    assert type(plain(Colour.RED)) is str
    assert plain(b"x") == "b'x'"
    assert plain(True) is True


@given(
    st.recursive(
        st.text() | st.floats() | st.integers() | st.none() | st.booleans() | st.characters(categories=["Cs"]),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_recorded_value_can_be_written_as_json(value: object) -> None:
    rows = {"requests": [{"value": plain(value)}]}
    assert json.loads(dump(rows)) == rows
