"""What a program that judges files of cases does: read, judge, a line of JSON for each case, a sum at the end.

The programs of `mesh` and of `federation` differ in what a file holds and in how a case is judged; both say it the same way. Exit code 0:
all passed; 1: some failed; 2: a file could not be read, and the message says where and what to do.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from mesh.conformance.fields import CaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """How to read the text of a file, and how to judge its cases; a verdict is a dataclass that has `passed`."""

    read: Callable[[str], list[Any]]  #: Raises CaseError, whose message begins with the line.
    judge: Callable[[list[Any]], Iterable[Any]]


def judge_files(files: Iterable[str], judge: Judge, *, as_json: bool, out: TextIO, errors: TextIO) -> int:
    """Judge the cases of all files; the exit code. With `as_json` the sum is JSON, too."""
    cases: list[Any] = []
    for file in files:
        try:
            cases += judge.read(pathlib.Path(file).read_text(encoding="utf-8"))
        except CaseError as wrong:
            errors.write(f"{file}:{wrong}\n")
            return 2
        except (OSError, UnicodeDecodeError) as wrong:
            errors.write(f"{file}:1: cannot be read: {wrong}; name a JSON file in UTF-8\n")
            return 2
    passed = failed = 0
    for verdict in judge.judge(cases):
        out.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
        passed, failed = passed + verdict.passed, failed + (not verdict.passed)
    out.write(json.dumps({"passed": passed, "failed": failed}) + "\n" if as_json else f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def parsed(text: str) -> Any:
    """What the text of a file holds.

    Raises:
        CaseError: It is not JSON; the message begins with the line.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as wrong:
        raise CaseError(f"{wrong.lineno}: not JSON: {wrong.msg}, column {wrong.colno}") from None
    except (RecursionError, ValueError) as wrong:  # Nested too deep, or a number of thousands of digits.
        raise CaseError(f"1: not JSON that can be read: {wrong}") from None
