"""Program that judges files of cases: read, judge, print a line of JSON for each case and a sum at the end.

The programs of `mesh` and `federation` differ in the format of a file and the judgement of a case; output is the same. Exit code 0: all
passed; 1: some failed; 2: a file could not be read, with a message that names the place and the remedy.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from mesh.conformance.fields import CaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRunner:
    """Functions to read a file's text and to judge its cases; a verdict is a dataclass with `passed`."""

    read: Callable[[str], list[Any]]  #: Raises `CaseError` with a message that begins with the line.
    judge: Callable[[list[Any]], Iterable[Any]]


def run_files(files: Iterable[str], judge: CaseRunner, *, as_json: bool, out: TextIO, errors: TextIO) -> int:
    """Judge the cases of all files and return the exit code. With `as_json` the sum is JSON too."""
    cases = read_files(files, judge.read, errors)
    if cases is None:
        return 2
    passed = failed = 0
    for verdict in judge.judge(cases):
        out.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
        passed, failed = passed + verdict.passed, failed + (not verdict.passed)
    out.write(json.dumps({"passed": passed, "failed": failed}) + "\n" if as_json else f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def read_files(files: Iterable[str], read: Callable[[str], list[Any]], errors: TextIO) -> list[Any] | None:
    """Return the cases of all files; None if a file cannot be read, with a message in `errors`. `read` is as in `CaseRunner`."""
    cases: list[Any] = []
    for file in files:
        try:
            cases += read(pathlib.Path(file).read_text(encoding="utf-8"))
        except CaseError as wrong:
            errors.write(f"{file}:{wrong}\n")
            return None
        except (OSError, UnicodeDecodeError) as wrong:
            errors.write(f"{file}:1: cannot be read: {wrong}; name a JSON file in UTF-8\n")
            return None
    return cases


def parsed(text: str) -> Any:
    """Return the parsed content of a file.

    Raises:
        CaseError: It is not JSON; the message begins with the line.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as wrong:
        raise CaseError(f"{wrong.lineno}: not JSON: {wrong.msg}, column {wrong.colno}") from None
    except (RecursionError, ValueError) as wrong:  # Nested too deeply, or a number with thousands of digits.
        raise CaseError(f"1: JSON cannot be parsed: {wrong}") from None
