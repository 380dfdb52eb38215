"""Argument forms (see `mesh.stages.spec`) in a spec: the names that they use, their problems, and parameters filled in.

A spec has one form that a mesh does not know, `{"$param": name}`. It is replaced when the graph is compiled, so it never reaches
a mesh.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dag.spec.array_forms import array_key, items_of, parts_of, problem_of_array
from dag.spec.call_names import is_method
from dag.spec.group_forms import survey_group
from dag.spec.job_forms import survey_job
from dag.spec.strict_json import pointer
from mesh.core.functions import CALLS, CALLS_MAX, GROUP, JOB
from mesh.stages.arrays import SLICES
from mesh.stages.spec import ArgumentForm

SHA256 = re.compile(r"[0-9a-f]{64}")

CONTAINER_BYTES = 2  #: Bytes of an empty list or object.

_KNOWN = ("$ref", "$blob", "$uri", "$tuple", "$param")
#: Forms that are whole arguments only.
_WHOLE = frozenset({"$each", "$reduce", CALLS, JOB, GROUP})


def sha256_of(data: bytes) -> str:
    """Return the name of the bytes: their SHA-256 as hex digits."""
    return hashlib.sha256(data).hexdigest()


@dataclass(slots=True)
class FormContents:
    """Names that forms use, each with the place of its first use."""

    refs: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)
    params: list[tuple[str, str]] = field(default_factory=list)  #: Name and place of every use of a parameter.
    arrays: list[str] = field(default_factory=list)  #: Places of arguments that are arrays, calls of an actor, or jobs.
    parts: int = 0  #: Number of parts of these arrays.
    problems: list[tuple[str, str]] = field(default_factory=list)


def survey(form: ArgumentForm, place: str, found: FormContents) -> int:
    """Add the names that `form` uses to `found`, in reading order. Return the size of its literals as JSON, in bytes."""
    taken = 0
    pending: list[tuple[Any, str]] = [(form, place)]
    if (array := array_key(form)) is not None:
        pending = _survey_array(array, form, place, found)
    elif type(form) is dict and CALLS in form:
        pending = _survey_calls(form, place, found)
    elif type(form) is dict and (JOB in form or GROUP in form):
        pending = _survey_members(JOB if JOB in form else GROUP, form, place, found)
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
    """Return the approximate size of plain data as JSON, in bytes; `$` has no special meaning."""
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
    """Return the approximate size of a text, number, boolean or null as JSON with its comma, in bytes."""
    if isinstance(part, str):
        return 3 + (len(part) if part.isascii() else len(part.encode()))
    return 1 + len(repr(part))


def key_bytes(key: str) -> int:
    """Return the approximate size of a key as JSON, in bytes."""
    return 3 + len(key)


def escaped(literal: Any) -> ArgumentForm:
    """Return the form of plain JSON data: keys that begin with `$` get a second `$`.

    Recursive: callers bound the depth.
    """
    if isinstance(literal, list):
        return [escaped(part) for part in literal]
    if isinstance(literal, dict):
        return {f"${key}" if key.startswith("$") else key: escaped(part) for key, part in literal.items()}
    return literal


def used_params(value: Any) -> Iterator[str]:
    """Yield the name of each `$param` in plain JSON, however deep; nothing is checked."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$param"), str):
                yield part["$param"]
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)


def filled(form: ArgumentForm, params: Mapping[str, ArgumentForm]) -> ArgumentForm:
    """Return the form with every `$param` replaced by its value's form. Recursive: a spec is at most `DEPTH_MAX` deep."""
    if isinstance(form, list):
        return [filled(part, params) for part in form]
    if isinstance(form, dict):
        if "$param" in form:
            return params[form["$param"]]
        return {key: filled(part, params) for key, part in form.items()}
    return form


def _survey_array(key: str, form: dict[str, Any], place: str, found: FormContents) -> list[tuple[Any, str]]:
    """Check an argument that is an array; return its items, each with its place."""
    problem = problem_of_array(key, form)
    if problem is not None:
        found.problems.append((pointer(place, key), problem))
        return []
    if not _is_only_one(place, found):
        return []
    found.parts += parts_of(form)
    items, where = items_of(form), pointer(place, key)
    if isinstance(items, dict) and SLICES in items:
        return [(piece, f"{where}/{SLICES}/{number}") for number, piece in enumerate(items[SLICES])]
    return [(items, where)]


def _is_only_one(place: str, found: FormContents) -> bool:
    """Note an argument that is an array, the calls of an actor, a group or a job; return whether the call has no other one."""
    if found.arrays:
        rule = f"a call has one argument that is an array, the calls of an actor, a group or a job, and {found.arrays[0]} is one"
        found.problems.append((place, rule))
        return False
    found.arrays.append(place)
    return True


def _survey_calls(form: dict[str, Any], place: str, found: FormContents) -> list[tuple[Any, str]]:
    """Check the calls of an actor; return their arguments, each with its place."""
    calls, where = form[CALLS], pointer(place, CALLS)
    problem = f"`{CALLS}` has to be alone in its object" if len(form) > 1 else None
    if problem is None and (not isinstance(calls, list) or not 0 < len(calls) <= CALLS_MAX):
        problem = f"must be a list of 1 to {CALLS_MAX} calls"
    if problem is not None:
        found.problems.append((where, problem))
    if problem is not None or not _is_only_one(place, found):
        return []
    arguments: list[tuple[Any, str]] = []
    for number, call in enumerate(calls):
        if not _is_call(call):
            rule = "must be [method, [arguments], {name: argument}]; a method is a name that does not begin with `_`"
            found.problems.append((f"{where}/{number}", rule))
            continue
        arguments += [(part, f"{where}/{number}/1/{index}") for index, part in enumerate(call[1])]
        arguments += [(part, pointer(f"{where}/{number}/2", name)) for name, part in call[2].items()]
    return arguments[::-1]


def _survey_members(key: str, form: dict[str, Any], place: str, found: FormContents) -> list[tuple[Any, str]]:
    """Check a job or an actor group; return the forms in it, each with its place."""
    where = pointer(place, key)
    if len(form) > 1:
        found.problems.append((where, f"`{key}` has to be alone in its object"))
        return []
    if not _is_only_one(place, found):
        return []
    problems, forms = (survey_job if key == JOB else survey_group)(form[key], where)
    found.problems += problems
    return forms[::-1]


def _is_call(call: Any) -> bool:
    if not isinstance(call, list) or list(map(type, call)) != [str, list, dict]:
        return False
    return is_method(call[0]) and not any(name.startswith("$") for name in call[2])


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
    if key == "$item":
        return '`$item` is not a form; the argument {"$each": items} stands for each of the items'
    if key in _WHOLE:
        return f"`{key}` stands for a whole argument only"
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
    """Return the problem with the `path` beside a `$ref`."""
    steps_are_right = isinstance(path, list) and all(isinstance(step, (str, int)) and not isinstance(step, bool) for step in path)
    return None if steps_are_right else "`path` must be a list of keys and indices"
