"""The results folder of a run, with one atomically written file per case."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson

from app.evaluation.cases.case import Case
from app.evaluation.cases.case_result import CaseResult, from_json, to_json

_CASES: Final = "cases"
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_NAME: Final = 80
_BROKEN: Final = (KeyError, TypeError, ValueError, IndexError)


class RunFolderError(Exception):
    """The folder cannot be used. The message names it."""


class RunFolder:
    """The folder of a run. ``cases/`` contains one file per case, ``summary.json`` the figures, and ``report.html`` a
    readable report.

    Files are written under a temporary name and then renamed, so that no file is ever incomplete. All methods may raise
    RunFolderError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cases = folder / _CASES
        self._found: frozenset[str] = frozenset()

    def open(self) -> None:
        """Create the folder, or reopen an existing one."""
        try:
            self._cases.mkdir(parents=True, exist_ok=True)
            for left in self._cases.glob(".*.part"):
                left.unlink(missing_ok=True)
            self._found = frozenset(file.name for file in self._cases.glob("*.json"))
        except OSError as error:
            raise RunFolderError(f"{self.folder}: {error.strerror}") from None

    def has(self, case: Case) -> bool:
        """Return whether an earlier run wrote a file for ``case``. If so, ``load`` can try to read it."""
        return file_name(case.case_id) in self._found

    def load(self, case: Case, key: str) -> CaseResult | None:
        """Return the result of ``case`` from an earlier run if it is complete and has the same ``key``, otherwise
        None."""
        try:
            result = from_json(orjson.loads(self._file(case.case_id).read_bytes()))
        except (OSError, *_BROKEN):
            return None
        if result.key != key or result.error is not None or result.case.case_id != case.case_id:
            return None
        if result.case == replace(case, documents=()):
            return result
        # A field that doesn't affect the verdicts has changed, such as the scoring options.
        again = replace(result, case=case)
        self.save(again)
        return again

    def save(self, result: CaseResult) -> None:
        self._write(self._file(result.case.case_id), to_json(result))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        self._write(self.folder / "summary.json", summary)

    def write_report(self, html: str) -> None:
        self._put(self.folder / "report.html", html.encode())

    def keep_only(self, names: set[str]) -> None:
        """Remove the files left by earlier runs: all case files whose names are not in ``names``."""
        kept = {file_name(name) for name in names}
        try:
            for file in self._cases.glob("*.json"):
                if file.name not in kept:
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise RunFolderError(f"{self.folder}: {error.strerror}") from None

    def result(self, case_id: str) -> CaseResult:
        """Read the result of one case in this run."""
        return _read(self._file(case_id))

    def find(self, case_id: str) -> CaseResult | None:
        """Read the result of one case. Return None if the case does not exist."""
        file = self._file(case_id)
        return _read(file) if file.is_file() else None

    def results(self) -> Iterator[CaseResult]:
        """Yield all results, in order of file name."""
        if not self._cases.is_dir():
            raise RunFolderError(f"{self.folder}: no run in this folder")
        for file in sorted(self._cases.glob("*.json")):
            yield _read(file)

    def _file(self, case_id: str) -> Path:
        return self._cases / file_name(case_id)

    def _write(self, file: Path, content: Mapping[str, Any]) -> None:
        self._put(file, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    def _put(self, file: Path, content: bytes) -> None:
        part = file.with_name(f".{file.name}.part")
        try:
            part.write_bytes(content)
            os.replace(part, file)
        except OSError as error:
            raise RunFolderError(f"{file}: {error.strerror}") from None


def file_name(case_id: str) -> str:
    """Return the file name for a case. If the id is plain lower case, the name is the id. Otherwise, the name consists
    of the id's safe characters and a hash. No id can escape the folder, and no two ids share a file, even on
    case-insensitive file systems."""
    if _PLAIN.fullmatch(case_id):
        return f"{case_id}.json"
    digest = blake2b(case_id.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{_UNFIT.sub('-', case_id)[:_MOST_NAME].strip('.-')}-{digest}.json".lstrip("-")


def _read(file: Path) -> CaseResult:
    try:
        return from_json(orjson.loads(file.read_bytes()))
    except OSError as error:
        raise RunFolderError(f"{file}: {error.strerror}") from None
    except _BROKEN:
        raise RunFolderError(f"{file}: not a case result file") from None
