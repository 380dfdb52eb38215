"""Frozen dataclasses to plain JSON values and back, strictly, by pydantic: lines of journals, and snapshots.

Fields with their default value are omitted: journal lines get shorter, and a field with a default can be added without breaking old
journals. An unknown kind, field or type is an error that names its position; nothing is dropped or guessed.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mesh.errors import MeshError

#: Key of a JSON object that names its class.
KIND = "kind"
_MESSAGE_MAX = 100  #: Characters; pydantic lists every member of an enum.


class JsonCodecError(MeshError, ValueError):
    """A plain value does not match the expected type; the message names the position and the expectation."""


class Codec:
    """Codec of one type; pydantic compiles it at first use."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._compiled: TypeAdapter[Any] | None = None

    @property
    def _adapter(self) -> TypeAdapter[Any]:
        if self._compiled is None:
            self._compiled = TypeAdapter(self._annotation)
        return self._compiled

    def encode(self, value: Any) -> Any:
        """Return the value as dicts, sequences and scalars that `json_text` writes."""
        return self._adapter.dump_python(value, exclude_defaults=True, warnings=False)

    def decode(self, plain: Any) -> Any:
        """Return the value that `plain` describes. Raises `JsonCodecError`: it describes none of this type."""
        try:
            return self._adapter.validate_json(_utf8_text(plain).encode(errors="replace"), strict=True, extra="forbid")
        except ValidationError as error:
            raise JsonCodecError(_first_problem(self._annotation, error)) from None


class TaggedCodec:
    """Codec of values of any of these dataclasses: objects with the class name as `kind`."""

    def __init__(self, classes: Collection[type]) -> None:
        reserved = [cls.__name__ for cls in classes if KIND in {field.name for field in dataclasses.fields(cls)}]
        if reserved:
            raise JsonCodecError(f"{', '.join(reserved)}: the field {KIND!r} is reserved for the class name")
        self._by_class = {cls: codec_of(cls) for cls in classes}
        self._by_name = {cls.__name__: codec for cls, codec in self._by_class.items()}

    def encode(self, value: Any) -> dict[str, Any]:
        """Return the value as plain JSON. Raises `JsonCodecError`: it is of no known class."""
        codec = self._by_class.get(type(value))
        if codec is None:
            raise JsonCodecError(f"{type(value).__name__} is not among {', '.join(sorted(self._by_name))}")
        return {KIND: type(value).__name__, **codec.encode(value)}

    def decode(self, plain: Any) -> Any:
        """Return the value that `plain` describes. Raises `JsonCodecError`: its kind is unknown, or it describes none of it."""
        fields = dict(plain) if isinstance(plain, dict) else {}
        name = fields.pop(KIND, None)
        codec = self._by_name.get(name) if isinstance(name, str) else None
        if codec is None:
            raise JsonCodecError(f"unknown kind {name!r}; known: {', '.join(sorted(self._by_name))}")
        return codec.decode(fields)


@cache
def codec_of(annotation: Any) -> Codec:
    """Return the codec of a type."""
    return Codec(annotation)


def dataclasses_of(module: types.ModuleType, base: type) -> tuple[type, ...]:
    """Return the module's dataclasses derived from `base`, sorted by name."""
    found = (cls for name, cls in sorted(vars(module).items()) if isinstance(cls, type) and issubclass(cls, base) and cls is not base)
    return tuple(cls for cls in found if dataclasses.is_dataclass(cls))


def _plain(value: Any) -> Any:
    """Return a mapping of another class, such as a read-only view, as a dict with its dataclasses; a set of names as a sorted list."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (frozenset, set)):
        return sorted(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return codec_of(type(value)).encode(value)
    raise JsonCodecError(f"{type(value).__name__} has no form in JSON")


#: Encoded values as JSON text, in ASCII. Raises `JsonCodecError`: a part has no form in JSON.
json_text = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_plain).encode
#: Decoded JSON as text for pydantic, which refuses an escaped lone surrogate. Messages of user code may hold one; it becomes `?`.
_utf8_text = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=False).encode


def _first_problem(annotation: Any, error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_context=False)[0]
    *path, name = ("", *map(str, problem["loc"]))
    if problem["type"] == "missing":
        described, place = f"lacks {name}", path
    elif problem["type"] == "unexpected_keyword_argument":
        described, place = f"has no field {name!r}", path
    else:
        described, place = f"{problem['input']!r}: {problem['msg'][:_MESSAGE_MAX]}", [*path, name]
    where = ".".join(filter(None, place))
    return f"{getattr(annotation, '__name__', annotation)}{where and f'.{where}'} {described}"
