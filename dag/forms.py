"""Argument forms (see `mesh.stages`) as a spec holds them: what they name, what is wrong with them, parameters filled in.

Beyond the forms that a mesh knows, a spec has `{"$param": name}`; it is replaced when the graph is compiled, so a mesh
never sees one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dag.strict_json import pointer
from mesh.stages import ArgumentForm

SHA256 = re.compile(r"[0-9a-f]{64}")

CONTAINER_BYTES = 2  #: What a list or object takes by itself.

_KNOWN = ("$ref", "$blob", "$uri", "$tuple", "$param")
_NOT_YET = frozenset({"$item"})


@dataclass(slots=True)
class FormContents:
    """What forms name: each name with the place where it was met first."""

    refs: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)
    params: list[tuple[str, str]] = field(default_factory=list)  #: Every use of a parameter: name and place.
    problems: list[tuple[str, str]] = field(default_factory=list)


def survey(form: ArgumentForm, place: str, found: FormContents) -> int:
    """Add what `form` names to `found`, in reading order; the bytes that its literals take as JSON, what it names not counted."""
    taken = 0
    pending: list[tuple[Any, str]] = [(form, place)]
    while pending:
        part, where = pending.pop()
        if isinstance(part, dict):
            if any(key.startswith("$") and not key.startswith("$$") for key in part):
                _survey_special(part, where, found, pending)
                continue
            taken += CONTAINER_BYTES + sum(map(key_bytes, part))
            pending.extend((below, pointer(where, key)) for key, below in reversed(part.items()))
        elif isinstance(part, list):
            taken += CONTAINER_BYTES
            pending.extend((part[index], f"{where}/{index}") for index in range(len(part) - 1, -1, -1))
        else:
            taken += scalar_bytes(part)
    return taken


def literal_bytes(literal: Any) -> int:
    """About how many bytes plain data takes as JSON; `$` means nothing in it."""
    taken = 0
    pending = [literal]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            taken += CONTAINER_BYTES + sum(map(key_bytes, part))
            pending.extend(part.values())
        elif isinstance(part, list):
            taken += CONTAINER_BYTES
            pending.extend(part)
        else:
            taken += scalar_bytes(part)
    return taken


def scalar_bytes(part: Any) -> int:
    """About how many bytes a text, number, truth value or null takes as JSON, with its comma."""
    if isinstance(part, str):
        return 3 + (len(part) if part.isascii() else len(part.encode()))
    return 1 + len(repr(part))


def key_bytes(key: str) -> int:
    """About how many bytes a key takes as JSON."""
    return 3 + len(key)


def escaped(literal: Any) -> ArgumentForm:
    """The form of plain JSON data: a key that begins with `$` gets another one, so that it stands for itself.

    Recursive: callers bound the depth.
    """
    if isinstance(literal, list):
        return [escaped(part) for part in literal]
    if isinstance(literal, dict):
        return {f"${key}" if key.startswith("$") else key: escaped(part) for key, part in literal.items()}
    return literal


def filled(form: ArgumentForm, params: Mapping[str, ArgumentForm]) -> ArgumentForm:
    """The form with every `$param` replaced by its own form. Recursive: a spec is at most `DEPTH_MAX` deep."""
    if isinstance(form, list):
        return [filled(part, params) for part in form]
    if isinstance(form, dict):
        if "$param" in form:
            return params[form["$param"]]
        return {key: filled(part, params) for key, part in form.items()}
    return form


def _survey_special(part: dict[str, Any], place: str, found: FormContents, pending: list[tuple[Any, str]]) -> None:
    key = next(key for key in part if key.startswith("$") and not key.startswith("$$"))
    problem = _problem_of_special(key, part)
    if problem is not None:
        found.problems.append((pointer(place, key) if len(part) == 1 or key not in _KNOWN else place, problem))
        return
    inner = part[key]
    if key == "$ref":
        found.refs.setdefault(inner, place)
    elif key == "$blob":
        found.blobs.setdefault(inner, place)
    elif key == "$param":
        found.params.append((inner, place))
    elif key == "$tuple":
        where = pointer(place, key)
        pending.extend((inner[index], f"{where}/{index}") for index in range(len(inner) - 1, -1, -1))


def _problem_of_special(key: str, part: dict[str, Any]) -> str | None:
    if key in _NOT_YET:
        return f"`{key}` is not supported yet"
    if key not in _KNOWN:
        return f"unknown form; known are {', '.join(_KNOWN)}; write `${key}` for an object whose key is `{key}`"
    if set(part) - ({"$ref", "path"} if key == "$ref" else {key}):
        return f"`{key}` has to be alone in its object{', or beside `path`' if key == '$ref' else ''}"
    inner = part[key]
    if key == "$tuple":
        return None if isinstance(inner, list) else "must be a list"
    if not isinstance(inner, str):
        return "must be text"
    if key == "$blob" and not SHA256.fullmatch(inner):
        return "must be a SHA-256: 64 hexadecimal digits, lower case"
    return problem_of_path(part["path"]) if "path" in part else None


def problem_of_path(path: Any) -> str | None:
    """What is wrong with the `path` beside a `$ref`."""
    steps_are_right = isinstance(path, list) and all(isinstance(step, (str, int)) and not isinstance(step, bool) for step in path)
    return None if steps_are_right else "`path` must be a list of keys and indices"
