"""Frozen dataclasses to JSON bytes and back, strictly: unknown keys, missing keys and wrong types are refused."""

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mesh.errors import RuntimeAdapterError

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode(value: object, kind: Any = None, *, sparse: bool = False) -> bytes:
    """Return the JSON bytes of a dataclass, or of a container whose type `kind` names.

    Args:
        sparse: Leave out fields that equal their default.
    """
    wanted: Any = kind or type(value)
    return _adapter(wanted).dump_json(value, exclude_defaults=sparse)


def decode(kind: Any, data: bytes | str) -> Any:
    """Return the value of type `kind` that `data` holds.

    Raises:
        RuntimeAdapterError: Not JSON, or not of that type.
    """
    try:
        return _adapter(kind).validate_json(data, strict=True, extra="forbid")
    except ValidationError as broken:
        raise RuntimeAdapterError(f"invalid data where a {getattr(kind, '__name__', kind)} was expected: {broken}") from None
