"""Labels of runs: short words by which people find runs again. They decide nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mesh.core.printable import check_printable

LABELS_MAX = 32
VALUE_CHARS_MAX = 200
#: Names of labels: part of a key of the store, and written before `=`.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]{0,61}[A-Za-z0-9_])?")
NAME_RULE = "1 to 63 of A-Z a-z 0-9 . _ / -, the first and the last a letter, digit or _"


def problem_of(name: str, value: str) -> str | None:
    """Return the problem with a label; None: there is none."""
    if not _NAME.fullmatch(name):
        return f"{name[:VALUE_CHARS_MAX]!r} is not the name of a label; use {NAME_RULE}"
    if not 0 < len(value) <= VALUE_CHARS_MAX:
        return f"label {name}: the value has 1 to {VALUE_CHARS_MAX} characters, got {len(value)}"
    try:
        check_printable(value)
    except ValueError as wrong:
        return f"label {name}: {wrong}"
    return None


def checked_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels. Raises ValueError, with the first problem."""
    if len(labels) > LABELS_MAX:
        raise ValueError(f"a run has {LABELS_MAX} labels at most, got {len(labels)}")
    for name, value in labels.items():
        problem = problem_of(name, value)
        if problem is not None:
            raise ValueError(problem)
    return labels


def labels_of_texts(texts: Iterable[str]) -> dict[str, str]:
    """Return the labels that are written as `name=value`. Raises ValueError."""
    labels: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        problem = problem_of(name, value) if equals else f"{text[:VALUE_CHARS_MAX]!r} is not a label; write NAME=VALUE, like team=ads"
        if problem is None and labels.get(name, value) != value:
            problem = f"label {name} has two values, {labels[name]!r} and {value!r}: a run has one of them at most"
        if problem is not None:
            raise ValueError(problem)
        labels[name] = value
    return labels


def has_labels(labels: Mapping[str, Any], asked: Iterable[tuple[str, str]]) -> bool:
    """Return whether the labels have all those that are asked for."""
    return all(labels.get(name) == value for name, value in asked)
