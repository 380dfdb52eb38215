"""Arrays in a spec: the problems of their forms, and the number of tasks that they become. `mesh.stages.arrays` describes the forms."""

from __future__ import annotations

from typing import Any

from mesh.core.counting import counted
from mesh.stages.arrays import (
    ARITY_USUAL,
    EACH,
    ELEMENTS_MAX,
    LEAVES_USUAL,
    PARTS_MAX,
    PARTS_USUAL,
    REDUCE,
    SLICES,
    STREAM,
    parts_for,
)
from mesh.stages.spec import ArgumentForm

_ARITY_MIN = 2
#: Largest number of values that a step of a `$reduce` takes.
_ARITY_MAX = 100_000
_KEYS = {EACH: frozenset({EACH, "star", "parts", STREAM}), REDUCE: frozenset({REDUCE, "arity", "parts", STREAM})}


def array_key(form: ArgumentForm) -> str | None:
    """Return `$each` or `$reduce` if the argument is an array; else None."""
    if type(form) is not dict:
        return None
    return EACH if EACH in form else REDUCE if REDUCE in form else None


def problem_of_array(key: str, form: dict[str, Any]) -> str | None:
    """Return the problem with the form of an array; that of its items is for the caller."""
    unknown = sorted(form.keys() - _KEYS[key])
    if unknown:
        return f"unknown key {unknown[0]!r} beside `{key}`; known are {', '.join(sorted(_KEYS[key] - {key}))}"
    for name in ("star", STREAM):
        if not isinstance(form.get(name, False), bool):
            return f"`{name}` must be true or false"
    if form.get(STREAM) and not (isinstance(form[key], dict) and form[key].keys() == {"$ref"}):
        return f'`{STREAM}` is for the elements that a node yields while it runs: {{"{key}": {{"$ref": node}}, "{STREAM}": true}}'
    for name, least, most in (("parts", 1, PARTS_MAX), ("arity", _ARITY_MIN, _ARITY_MAX)):
        number = form.get(name, least)
        if type(number) is not int or not least <= number <= most:
            return f"`{name}` must be a whole number from {least} to {most}"
    return _problem_of_items(key, form[key])


def _problem_of_items(key: str, items: ArgumentForm) -> str | None:
    if isinstance(items, list):
        if any(_holds_ref(part) for part in items):
            return f"a list under `{key}` holds a node; let a node return the list of these values, and read that one"
        return None
    if not isinstance(items, dict) or not any(name.startswith("$") and not name.startswith("$$") for name in items):
        return f'`{key}` takes a list, or a node that returns one: {{"{key}": {{"$ref": node}}}}'
    if array_key(items) is not None:
        return f"`{key}` takes no other array here; let a node of its own be that array, and read it"
    if SLICES not in items:
        return None
    pieces, of = items[SLICES], items.get("of")
    if items.keys() != {SLICES, "of"} or not isinstance(pieces, list) or not 0 < len(pieces) <= PARTS_MAX:
        return f"`{SLICES}` takes 1 to {PARTS_MAX} pieces, beside `of`, the number of elements"
    if type(of) is not int or not 0 <= of <= ELEMENTS_MAX:
        return f"`of` must be the number of elements, from 0 to {ELEMENTS_MAX}"
    if any(_holds_ref(piece) for piece in pieces):
        return f"a piece under `{SLICES}` is a list or a `$blob`, not a node"
    return None


def _holds_ref(form: ArgumentForm) -> bool:
    pending = [form]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, dict):
            if "$ref" in part or "$list" in part:
                return True
            pending.extend(part.values())
    return False


def items_of(form: dict[str, Any]) -> ArgumentForm:
    """Return what stands under the key of an array."""
    return form[EACH] if EACH in form else form[REDUCE]


def elements_of(form: dict[str, Any]) -> int | None:
    """Return the number of elements; None: it is known at run time only."""
    items = items_of(form)
    if isinstance(items, list):
        return len(items)
    return items["of"] if isinstance(items, dict) and SLICES in items else None


def parts_of(form: dict[str, Any]) -> int:
    """Return the number of parts of an array that does not follow the parts of another one."""
    items = items_of(form)
    return len(items[SLICES]) if isinstance(items, dict) and SLICES in items else usual_parts(form, elements_of(form))


def usual_parts(form: dict[str, Any], count: int | None) -> int:
    """Return the number of parts of an array of so many elements; None: it is known at run time only."""
    asked = form.get("parts")
    if REDUCE in form:
        usual = LEAVES_USUAL if asked is None else int(asked)
        return usual if count is None else max(1, min(usual, -(-count // arity_of(form))))
    if count is None:
        return PARTS_USUAL if asked is None else int(asked)
    return parts_for(count, asked)


def is_stream(form: dict[str, Any]) -> bool:
    """Return whether parts may begin before the list is complete."""
    return form.get(STREAM) is True


def arity_of(form: dict[str, Any]) -> int:
    """Return how many values a step of a `$reduce` takes."""
    return int(form.get("arity", ARITY_USUAL))


def too_many_words(parts: int, most: int) -> str:
    """Return the problem with a graph whose arrays have so many parts."""
    return f"its arrays have {counted(parts, 'part')} together, {most} at most; give some of them a smaller `parts`"
