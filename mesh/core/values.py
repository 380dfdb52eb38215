"""Reference to a task's value between processes: where its bytes are and how to check them, never the value itself."""

import hashlib
from dataclasses import dataclass
from enum import Enum


class Encoding(str, Enum):
    """Encoding of a value's bytes."""

    JSON = "json"
    """UTF-8 JSON; only for values that JSON restores exactly (no tuples, no NaN, string keys)."""
    PICKLE = "pickle"
    """cloudpickle, protocol 5; only the tenant's own processes read it."""
    GRAPH = "graph"
    """Nodes that a function has returned; only the root reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """Location of a value's bytes: small ones in the control store under their hash, others in a file that every mesh can reach."""

    sha256: str  #: Hex digest of the bytes; every reader checks it.
    size_bytes: int
    encoding: Encoding
    uri: str | None = None  #: fsspec URL of the file; None when the bytes are in the control store.


def json_value(data: bytes) -> StoredValue:
    """Return the reference to JSON in the control store."""
    return StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.JSON)
