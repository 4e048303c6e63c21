"""Reads files of cases in JSON, JSON Lines, CSV or Parquet. Errors name the file, the line and the field."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import orjson

from app.evaluation.cases.case import Case, CaseError, read_case

Placed = tuple[str, Any]
"""A record with its position in the file."""

_LONGEST_CELL = 2**31 - 1
_ROWS_AT_ONCE = 256
_IN_CELLS = ("documents", "grounding")
"""Fields that are stored as JSON in CSV and in plain Parquet columns."""


class CaseFileError(Exception):
    """A case file is invalid. The message names the file, the line and the field."""


def read_cases(file: Path, *, limit: int | None = None) -> Iterator[Case]:
    """Yield the cases in ``file`` one by one, up to ``limit``. Only plain JSON files are read into memory as a whole.

    A record without a ``case_id`` is named ``case-1``, ``case-2`` and so on. Raises CaseFileError for an invalid file
    or a duplicate id.
    """
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise CaseFileError(f"{file}: unsupported file type; expected {', '.join(_READERS)}")
    seen: set[bytes] = set()
    try:
        for number, (place, record) in enumerate(islice(reader(file), limit), 1):
            case = _case(record, f"{file}, {place}", number)
            digest = blake2b(case.case_id.encode(), digest_size=12).digest()
            if digest in seen:
                raise CaseFileError(f"{file}, {place}, case_id: duplicate id {case.case_id!r}")
            seen.add(digest)
            yield case
    except OSError as error:
        raise CaseFileError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CaseFileError(f"{file}: not a UTF-8 text file") from None


def count_cases(file: Path, *, limit: int | None = None) -> int:
    """Count the cases. This reads and validates all of them. Raises CaseFileError."""
    return sum(1 for _ in read_cases(file, limit=limit))


def _case(record: Any, place: str, number: int) -> Case:
    if not isinstance(record, dict):
        raise CaseFileError(f"{place}: expected an object with the fields of a case")
    try:
        return read_case(record, default_id=f"case-{number}")
    except CaseError as error:
        raise CaseFileError(f"{place}, {error}") from None


def _json_lines(file: Path) -> Iterator[Placed]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if line.strip():
                yield f"line {number}", _decode(line, f"{file}, line {number}")


def _json(file: Path) -> Iterator[Placed]:
    """Read one record or a list of records, with the line on which each begins."""
    text = file.read_text("utf-8-sig")
    at = _skip(text, 0)
    if not text.startswith("[", at):
        yield "line 1", _decode(text.encode(), str(file))
        return
    decoder = json.JSONDecoder()
    at, line, counted = _skip(text, at + 1), 1, 0
    while not text.startswith("]", at):
        line, counted = line + text.count("\n", counted, at), at
        place = f"line {line}"
        end = _end_of_value(decoder, text, at, f"{file}, {place}")
        yield place, _decode(text[at:end].encode(errors="replace"), f"{file}, {place}")
        at = _skip(text, end)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith("]", at):
            raise CaseFileError(f"{file}, {place}: expected a comma or the end of the list after this record")
    if text[at + 1 :].strip():
        raise CaseFileError(f"{file}: unexpected data after the JSON array")


def _end_of_value(decoder: json.JSONDecoder, text: str, at: int, place: str) -> int:
    try:
        return decoder.raw_decode(text, at)[1]
    except json.JSONDecodeError as error:
        raise CaseFileError(f"{place}: not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise CaseFileError(f"{place}: nested too deeply") from None
    except ValueError as error:
        raise CaseFileError(f"{place}: not JSON: {error}") from None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _decode(value: bytes, place: str) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise CaseFileError(f"{place}: not JSON: {error.msg} (column {error.colno})") from None


def _csv(file: Path) -> Iterator[Placed]:
    csv.field_size_limit(_LONGEST_CELL)
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.reader(lines, strict=True)
        try:
            heading = next(rows, [])
            _check_heading(heading, file)
            while True:
                place = f"line {rows.line_num + 1}"
                row = next(rows, None)
                if row is None:
                    return
                if row:
                    yield place, _cells(heading, row, f"{file}, {place}")
        except csv.Error as error:
            raise CaseFileError(f"{file}, line {rows.line_num}: {error}") from None


def _check_heading(heading: list[str], file: Path) -> None:
    if "output" not in heading:
        raise CaseFileError(f"{file}, line 1: missing column output")
    twice = [name for name in heading if heading.count(name) > 1]
    if twice:
        raise CaseFileError(f"{file}, line 1: duplicate column {twice[0]}")


def _cells(heading: list[str], row: list[str], place: str) -> dict[str, Any]:
    if len(row) > len(heading):
        raise CaseFileError(f"{place}: {len(row)} cells, but {len(heading)} columns")
    record: dict[str, Any] = dict(zip(heading, row, strict=False))
    found = {name: value for name, value in record.items() if value or name == "output"}
    return _open_cells(found, place)


def _open_cells(record: dict[str, Any], place: str) -> dict[str, Any]:
    for name in _IN_CELLS:
        if isinstance(value := record.get(name), str):
            record[name] = _decode(value.encode(errors="replace"), f"{place}, {name}")
    return record


def _parquet(file: Path) -> Iterator[Placed]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CaseFileError(f"{file}: Parquet files need an extra: pip install 'groundlane[eval]'") from None

    def refuse(error: Exception) -> NoReturn:
        raise CaseFileError(f"{file}: not a readable Parquet file: {str(error).splitlines()[0]}") from None

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            if "output" not in opened.schema_arrow.names:
                raise CaseFileError(f"{file}: missing column output")
            for batch in opened.iter_batches(batch_size=_ROWS_AT_ONCE):
                for record in batch.to_pylist():
                    number += 1
                    yield f"row {number}", _open_cells(record, f"{file}, row {number}")
    except pyarrow.ArrowException as error:
        refuse(error)


_READERS: Mapping[str, Callable[[Path], Iterator[Placed]]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".csv": _csv,
    ".parquet": _parquet,
}
