"""Streams rows as a JSON Lines or CSV file."""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Literal

import orjson
from fastapi import Response
from fastapi.responses import StreamingResponse

Format = Literal["jsonl", "csv"]
Row = Mapping[str, Any]

_CHUNK = 64 * 1024
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters that make a spreadsheet treat a cell as a formula. They include the full-width forms, which some
spreadsheets treat the same way."""


async def export(name: str, format: Format, rows: AsyncIterator[Row], columns: Iterable[str]) -> Response:
    """Return ``rows`` as a file. ``columns`` are the columns of each row, in CSV order.

    Raises DatabaseUnavailableError.
    """
    # Read the first row before sending the status, so that an unavailable database causes an error rather than an empty
    # file.
    first = await anext(rows, None)
    lines = _jsonl if format == "jsonl" else _csv
    return StreamingResponse(
        _chunks(lines(first, rows, list(columns))),
        media_type="application/jsonl" if format == "jsonl" else "text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="groundlane-{name}.{format}"'},
    )


def dump(value: Any) -> bytes:
    """Return ``value`` as JSON."""
    return orjson.dumps(value, option=orjson.OPT_UTC_Z)


async def _jsonl(first: Row | None, rest: AsyncIterator[Row], _columns: list[str]) -> AsyncIterator[bytes]:
    if first is not None:
        yield dump(first) + b"\n"
    async for row in rest:
        yield dump(row) + b"\n"


async def _csv(first: Row | None, rest: AsyncIterator[Row], columns: list[str]) -> AsyncIterator[bytes]:
    yield _csv_line(columns)
    if first is not None:
        yield _csv_line(_cell(first[column]) for column in columns)
    async for row in rest:
        yield _csv_line(_cell(row[column]) for column in columns)


def _csv_line(cells: Iterable[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()


def _cell(value: Any) -> Any:
    match value:
        case str():
            # Clients choose the names of agents and models. A spreadsheet could run them as formulas.
            return f"'{value}" if value.startswith(_FORMULAS) else value
        case bool():
            return "true" if value else "false"
        case None | int() | float():
            return value
        case _:
            return dump(value).decode().strip('"')


async def _chunks(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    buffer = bytearray()
    async for line in lines:
        buffer += line
        if len(buffer) >= _CHUNK:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)
