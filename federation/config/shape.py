"""Unknown keys and wrong types in a federation file, all reported at once with remedies.

A misspelt key is reported once and then read as the key that it most likely means, so no further problems follow from it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from federation.config.models import FederationConfig
from federation.config.sections.tenants import LIST_TAG, TREE_TAG
from federation.config.sections.values import format_duration
from federation.config.yaml_source import ConfigProblem, Document, Path
from mesh.core.near_names import near_name
from mesh.core.resources import format_units

JsonSchema = dict[str, Any]

_KINDS = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "dict_type": "must be a mapping (`key: value`)",
    "model_type": "must be a mapping (`key: value`)",
    "model_attributes_type": "must be a mapping (`key: value`)",
    "tuple_type": "must be a list",
}
_BOUNDS = {"greater_than_equal": ("ge", "must be at least"), "less_than_equal": ("le", "must be at most")}
#: Name of a substitute for a wrong or missing value; no valid name equals it.
STAND_IN = "…"
_REPAIRS_MAX = 10  #: A repaired key can reveal unknown keys below it; ten levels are enough.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Content of a document as far as it is readable, with all problems of its shape."""

    config: FederationConfig | None  #: None if no substitutes for the wrong values exist.
    problems: tuple[ConfigProblem, ...]
    document: Document  #: Has the positions of misspelt keys under their right names too.
    left_out: tuple[Path, ...] = ()  #: Paths of wrong values; `config` has their defaults, or other values of their types.


def shape_of(document: Document) -> Shape:
    """Read the document as a federation file."""
    value = copy.deepcopy(document.value)
    described: list[ConfigProblem] = list(document.problems)
    left_out = [problem.path for problem in described if problem.path in document.positions and problem.at is None]
    config: FederationConfig | None = None
    for _ in range(_REPAIRS_MAX):
        try:
            config = FederationConfig.model_validate(value)
            break
        except ValidationError as broken:
            errors = [(_path(error), error) for error in broken.errors(include_url=False) if not _follows_from_others(error)]
        unknown = [path for path, error in errors if error["type"] == "extra_forbidden"]
        for path in unknown:
            meant, problem = _repair(value, path)
            described.append(problem)
            document = document.renamed(path, meant) if meant else document
        wrong = [] if unknown else list(dict.fromkeys(path for path, _ in errors))
        described += [
            ConfigProblem(path=path, text=_words(path, error)) for path, error in errors if not unknown and not _is_above(path, left_out)
        ]
        left_out += wrong
        replaced = [_replace(value, path) for path in wrong]
        if not all(replaced):
            break
    return Shape(config=config, problems=tuple(described), document=document, left_out=tuple(left_out))


def _is_above(path: Path, others: Iterable[Path]) -> bool:
    """Return whether a problem at this path may follow from one below it, or repeats it."""
    return any(other[: len(path)] == path for other in others)


def _replace(value: dict[str, Any], path: Path) -> bool:
    """Replace a wrong value by its default, or by another value of its type, so that checks can go on. False: there is none."""
    parent: Any = value
    try:
        for part in path[:-1]:
            parent = parent[part]
        if _has_default(path):
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = _stand_in(_schemas_at(path)[0])
    except (KeyError, IndexError, TypeError, AttributeError):
        return False
    return True


def _stand_in(form: JsonSchema) -> Any:
    """Return the least value of this form, which is never shown. Raises KeyError for an unknown form."""
    if "examples" in form:
        return copy.deepcopy(form["examples"][0])
    if form["type"] == "object":
        entries = {key: _stand_in(resolved(form["properties"][key])[0]) for key in form.get("required", ())}
        return entries or ({STAND_IN: _stand_in(resolved(form["additionalProperties"])[0])} if form.get("minProperties") else {})
    if form["type"] == "array":
        return [_stand_in(resolved(form["items"])[0])] if form.get("minItems") else []
    kind = form["type"] if isinstance(form["type"], str) else form["type"][0]
    return {"string": STAND_IN, "integer": form.get("minimum", 1), "number": form.get("minimum", 1), "boolean": False, "null": None}[kind]


def _has_default(path: Path) -> bool:
    return any(path[-1] in form.get("properties", {}).keys() - form.get("required", ()) for form in _schemas_at(path[:-1]))


@cache
def schema() -> JsonSchema:
    """Return the JSON schema of a federation file."""
    return FederationConfig.model_json_schema()


def resolved(part: JsonSchema) -> tuple[JsonSchema, ...]:
    """Return the forms that a part of the schema allows, with references resolved."""
    if "$ref" in part:
        return resolved(schema()["$defs"][part["$ref"].rsplit("/", 1)[1]])
    forms = part.get("anyOf") or part.get("oneOf")
    return tuple(form for choice in forms for form in resolved(choice)) if forms else (part,)


def _schemas_at(path: Path) -> tuple[JsonSchema, ...]:
    """Return the forms allowed at `path`; none if the path is unknown."""
    forms = resolved(schema())
    for key in path:
        below = (form.get("items") if isinstance(key, int) else _below(form, key) for form in forms)
        forms = tuple(found for part in below if isinstance(part, dict) for found in resolved(part))
    return forms


def _below(form: JsonSchema, key: str) -> JsonSchema | bool | None:
    properties: JsonSchema = form.get("properties", {})
    return properties.get(key, form.get("additionalProperties"))


def _path(error: ErrorDetails) -> Path:
    return tuple(part for part in error["loc"] if part not in (TREE_TAG, LIST_TAG, "[key]"))


def _follows_from_others(error: ErrorDetails) -> bool:
    """Return whether the error follows from others: pydantic does not count wrong items, so their list seems empty."""
    return error["type"] == "too_short" and bool(error["input"])


def _repair(value: dict[str, Any], path: Path) -> tuple[str | None, ConfigProblem]:
    """Remove the unknown key from `value`, or rename it to the similar known key if that key is absent."""
    *above, key = path
    parent: Any = value
    for part in above:
        parent = parent[part]
    content = parent.pop(key)
    known = sorted({name for form in _schemas_at(tuple(above)) for name in form.get("properties", {})})
    near = near_name(str(key), known)
    if near is None:
        return None, ConfigProblem(path=path, text=f"unknown key; known here: {', '.join(known)}")
    if near in parent:
        return None, ConfigProblem(path=path, text=f"unknown key; did you mean {near}, which is present already?")
    parent[near] = content
    return near, ConfigProblem(path=path, text=f"unknown key; did you mean {near}?")


def _words(path: Path, error: ErrorDetails) -> str:
    kind, got = error["type"], error["input"]
    if kind == "missing":
        return f"is missing; {_description(path)}"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"{words} {_shown(path, error['ctx'][bound])} (got {_shown(path, got)})"
    if kind == "too_short":
        return "must not be empty"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    words = _KINDS.get(kind, error["msg"])
    quotes = "; put it in quotes" if kind == "string_type" and isinstance(got, (int, float)) else ""
    shown = "nothing" if got is None else repr(got) if isinstance(got, (str, int, float)) else f"a {type(got).__name__}"
    return f"{words} (got {shown}){quotes}"


def _description(path: Path) -> str:
    """Return the description of a key; pydantic puts it at the section if both are equal."""
    for form in _schemas_at(path[:-1]):
        entry = form.get("properties", {}).get(path[-1])
        if entry is not None:
            return str(entry.get("description") or resolved(entry)[0].get("description", ""))
    return ""


def _shown(path: Path, bound: int | str) -> str:
    """Format a number as the file writes it. Bounds of an optional value are checked before parsing, so `bound` may be text."""
    if isinstance(bound, str):
        return bound
    formats = {form.get("format") for form in _schemas_at(path)}
    if "time" in formats:
        return format_duration(bound)
    return format_units("memory", bound) if "size" in formats else str(bound)
