"""Program that judges files of cases: read, judge, print a line of JSON for each case and a sum at the end.

The programs of `mesh` and `federation` differ in the format of a file and the judgement of a case; output is the same. Exit code 0: all
passed; 1: some failed; 2: a file could not be read, with a message that names the file, the line if there is one, and the remedy.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from mesh.conformance.fields import CaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRunner:
    """Functions to read a file's text and to judge its cases; a verdict is a dataclass with `passed`."""

    read: Callable[[str], list[Any]]  #: Raises `CaseError` with a message that begins with the line.
    judge: Callable[[list[Any]], Iterable[Any]]


def run_files(files: Iterable[str], runner: CaseRunner, *, as_json: bool, out: TextIO, errors: TextIO) -> int:
    """Judge the cases of all files and return the exit code. With `as_json` the sum is JSON too."""
    cases = read_files(files, runner.read, errors)
    if cases is None:
        return 2
    passed = failed = 0
    for verdict in runner.judge(cases):
        out.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")
        passed, failed = passed + verdict.passed, failed + (not verdict.passed)
    out.write(json.dumps({"passed": passed, "failed": failed}) + "\n" if as_json else f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def read_files(files: Iterable[str], read: Callable[[str], list[Any]], errors: TextIO) -> list[Any] | None:
    """Return the cases of all files; None if a file cannot be read, with a message in `errors`. `read` is as in `CaseRunner`."""
    cases: list[Any] = []
    for file in files:
        try:
            cases += read(pathlib.Path(file).read_text(encoding="utf-8-sig"))
        except CaseError as wrong:
            errors.write(f"{file}:{wrong}\n")
            return None
        except UnicodeDecodeError as wrong:
            line = wrong.object[: wrong.start].count(b"\n") + 1
            errors.write(f"{file}:{line}: byte {wrong.start} is not UTF-8; save the file as UTF-8, or name a file of cases\n")
            return None
        except (OSError, ValueError) as wrong:  # ValueError: a path with a NUL.
            errors.write(f"{file}: {_why_unreadable(file, wrong)}\n")
            return None
    return cases


def read_bytes(file: str) -> bytes:
    """Return the content of a file. Raises CaseError with the cause and the remedy."""
    try:
        return pathlib.Path(file).read_bytes()
    except (OSError, ValueError) as wrong:  # ValueError: a path with a NUL.
        raise CaseError(_why_unreadable(file, wrong)) from None


def _why_unreadable(file: str, wrong: OSError | ValueError) -> str:
    if isinstance(wrong, FileNotFoundError):
        from_here = "" if pathlib.Path(file).is_absolute() else f" (it is looked up from {pathlib.Path.cwd()})"
        return f"there is no such file{from_here}; check the path"
    if isinstance(wrong, IsADirectoryError):
        return "this is a folder; name the files in it, such as *.json"
    if isinstance(wrong, PermissionError):
        return "this user may not read the file; change its permissions, or run as its owner"
    return f"the file cannot be read: {wrong}; name a JSON file"


def parsed(text: str, example: str) -> Any:
    """Return the parsed content of a file.

    Args:
        example: A file of the right form, for the remedy.

    Raises:
        CaseError: It is not JSON; the message begins with the line.
    """
    if not text.strip():
        raise CaseError(f"1: the file is empty; write {example}")
    try:
        return json.loads(text)
    except json.JSONDecodeError as wrong:
        raise CaseError(
            f"{wrong.lineno}: not JSON: {wrong.msg}, column {wrong.colno}; correct it there, or name another file; the form is {example}"
        ) from None
    except (RecursionError, ValueError) as wrong:  # Nested too deeply, or a number with thousands of digits.
        raise CaseError(f"1: JSON cannot be parsed: {wrong}; use fewer levels and shorter numbers") from None


def line_of(text: str, key: str) -> int:
    """Return the line of a key in a file; 1 if the key is written with escapes."""
    found = re.search(rf'"{re.escape(key)}"\s*:', text)
    return text[: found.start()].count("\n") + 1 if found is not None else 1
