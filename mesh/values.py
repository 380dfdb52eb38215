"""A task's value on its way between processes: never the value itself, only where its bytes are and how to check them."""

from dataclasses import dataclass
from enum import Enum


class Encoding(str, Enum):
    """How the bytes of a value are written."""

    JSON = "json"
    """UTF-8 JSON; only values that JSON gives back exactly (no tuples, no NaN, string keys)."""
    PICKLE = "pickle"
    """cloudpickle, protocol 5; read only by the tenant's own processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """The bytes of a value: in the control store under their hash when small, else in a file that every mesh can reach."""

    sha256: str  #: Hex digest of the bytes; checked by whoever reads them.
    size_bytes: int
    encoding: Encoding
    uri: str | None = None  #: fsspec URL of the file; None when the bytes are in the control store.
