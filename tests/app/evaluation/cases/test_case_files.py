"""Case files: every format gives the same cases, and errors name the file, line and field."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from app.evaluation.cases.case import Case, Scoring, ScoringMode, read_case
from app.evaluation.cases.case_files import CaseFileError, count_cases, read_cases

RECORDS: Sequence[Mapping[str, Any]] = [
    {
        "case_id": "a",
        "input": "Where?",
        "output": "In Paris,\n“France”.",
        "context": "It is in Paris.",
        "reference": "Paris",
    },
    {
        "case_id": "b",
        "output": "Every 40 minutes.",
        "documents": [{"id": "t", "text": "It runs every 40 minutes.", "source": "t.pdf", "relevance_score": 0.5}],
        "grounding": {"scoring_mode": "scale_1_5", "include_reasoning": True},
    },
    {"output": "Nothing was retrieved."},
]


def write(folder: Path, suffix: str) -> Path:
    file = folder / f"cases{suffix}"
    match suffix:
        case ".json":
            file.write_text("\ufeff" + json.dumps(RECORDS, indent=1), "utf-8")
        case ".jsonl":
            file.write_text("\n".join(json.dumps(record) for record in RECORDS) + "\n\n", "utf-8")
        case ".csv":
            names = ["case_id", "input", "output", "context", "documents", "reference", "grounding"]
            with file.open("w", encoding="utf-8", newline="") as lines:
                writer = csv.DictWriter(lines, names)
                writer.writeheader()
                for record in RECORDS:
                    writer.writerow({name: v if isinstance(v, str) else json.dumps(v) for name, v in record.items()})
        case _:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(_all_fields()), file)
    return file


def _all_fields() -> list[dict[str, Any]]:
    names = {name for record in RECORDS for name in record}
    return [{name: record.get(name) for name in names} for record in RECORDS]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_every_format_gives_the_same_cases(suffix: str, tmp_path: Path) -> None:
    cases = list(read_cases(write(tmp_path, suffix)))
    expected = [read_case(record, default_id=f"case-{number}") for number, record in enumerate(RECORDS, 1)]
    assert [without_metadata(case) for case in cases] == [without_metadata(case) for case in expected]
    assert [case.case_id for case in cases] == ["a", "b", "case-3"]
    assert cases[1].scoring == Scoring(mode=ScoringMode.SCALE, include_reasoning=True)
    assert cases[1].documents[0].source == "t.pdf"
    assert cases[2].documents == ()
    assert count_cases(tmp_path / f"cases{suffix}", limit=2) == 2


def without_metadata(case: Case) -> tuple[Any, ...]:
    documents = [(one.id, one.text, one.source, one.relevance_score) for one in case.documents]
    return case.case_id, case.input, case.output, case.reference, case.scoring, documents


def test_file_can_hold_a_single_record(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text(json.dumps(RECORDS[0]), "utf-8")
    assert [case.case_id for case in read_cases(file)] == ["a"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("c.jsonl", '{"output": "a"}\n{"output": 7}', "c.jsonl, line 2, output: expected a string, got 7."),
        (
            "c.jsonl",
            '{"output": "a"}\n\n{"output": "b"',
            "c.jsonl, line 3: not JSON: unexpected end of data (column 15)",
        ),
        ("c.jsonl", "[1]", "c.jsonl, line 1: expected an object with the fields of a case"),
        ("c.jsonl", '{"output": "a", "context": [1]}', "c.jsonl, line 1, context[0]: expected a string, got 1."),
        (
            "c.jsonl",
            '{"output": "a", "documents": [{"source": "x"}]}',
            "c.jsonl, line 1, documents[0].text: missing; a document must have text.",
        ),
        (
            "c.jsonl",
            '{"output": "a", "context": "b", "documents": []}',
            "c.jsonl, line 1, context: use either context or documents, not both.",
        ),
        (
            "c.jsonl",
            '{"output": "a", "grounding": {"scoring_mode": "stars"}}',
            "c.jsonl, line 1, grounding.scoring_mode: expected binary_yes_no or scale_1_5, got 'stars'.",
        ),
        (
            "c.jsonl",
            '{"output": "a", "grounding": {"mode": 1}}',
            "c.jsonl, line 1, grounding: unknown option 'mode'; expected one of enabled, include_reasoning, scor",
        ),
        (
            "c.jsonl",
            '{"case_id": "x", "output": "a"}\n{"case_id": "x", "output": "b"}',
            "c.jsonl, line 2, case_id: duplicate id 'x'",
        ),
        (
            "c.json",
            '[\n{"output": "a"},\n\n{"output": null}]',
            "c.json, line 4, output: expected a string, got nothing.",
        ),
        (
            "c.json",
            '[{"output": "a"}\n{"output": "b"}]',
            "c.json, line 1: expected a comma or the end of the list after",
        ),
        ("c.json", '[{"output": "a"},\n{"output": ]', "c.json, line 2: not JSON: Expecting value (line 2, column 12)"),
        ("c.json", '[{"output": "a"}] more', "c.json: unexpected data after the JSON array"),
        ("c.json", '[{"output": NaN}]', "c.json, line 1: not JSON"),
        ("c.json", "[" + "[" * 100_000, "c.json, line 1: nested too deeply"),
        ("c.csv", "case_id,answer\n1,a\n", "c.csv, line 1: missing column output"),
        ("c.csv", "output,output\na,b\n", "c.csv, line 1: duplicate column output"),
        ("c.csv", 'output,context\n"a\nb",c\nd,e,f\n', "c.csv, line 4: 3 cells, but 2 columns"),
        ("c.csv", "output,documents\na,[\n", "c.csv, line 2, documents: not JSON"),
        ("c.csv", 'output\n"a" b\n', "c.csv, line 2: "),
        ("c.txt", "a", "c.txt: unsupported file type; expected .json, .jsonl, .csv, .parquet"),
        ("c.parquet", "PAR1 no", "c.parquet: not a readable Parquet file"),
    ],
)
def test_errors_name_file_line_and_field(name: str, text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, "utf-8")
    with pytest.raises(CaseFileError) as error:
        list(read_cases(file))
    assert str(error.value).startswith(f"{tmp_path}/{told}")
    assert "\n" not in str(error.value)


def test_missing_or_binary_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError, match="No such file or directory"):
        list(read_cases(tmp_path / "none.jsonl"))
    (tmp_path / "latin.csv").write_bytes("output\ncafé\n".encode("latin-1"))
    with pytest.raises(CaseFileError, match=r"latin\.csv: not a UTF-8 text file"):
        list(read_cases(tmp_path / "latin.csv"))


def test_csv_cell_can_exceed_the_default_limit(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text("output,context\na," + "word " * 60_000 + "\n", "utf-8")
    (found,) = read_cases(tmp_path / "long.csv")
    assert len(found.documents[0].text) == 300_000


def test_grounding_can_be_disabled() -> None:
    assert read_case({"output": "a", "grounding": False}).scoring.enabled is False
    assert read_case({"output": "a", "grounding": {"enabled": False}}).scoring.enabled is False
