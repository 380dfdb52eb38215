"""A user's value as a pickle that outlives its process, up to a size: checkpoints, results, saved state."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import ray

_PROTOCOL = 5
#: Values whose pickles are short.
_PLAIN = frozenset({type(None), bool, float})


def pickled_within(value: Any, bytes_max: int, *, what: str) -> bytes | None:
    """Pickle a value so that it outlives this process; return None when it takes more than `bytes_max`.

    Raises:
        TypeError: The value cannot be pickled, or holds an ObjectRef. The message calls it `what`.
    """
    sink = _BoundedSink(bytes_max)
    try:
        _LastingPickler(sink, protocol=_PROTOCOL).dump(value)
    except _Full:
        return None
    except Exception as refused:
        raise TypeError(f"{what} ({type(value).__qualname__}) cannot be pickled: {type(refused).__name__}: {refused}") from refused
    return b"".join(sink.pieces)


def pickled_if_small(value: Any, bytes_max: int) -> bytes | None:
    """Pickle a value so that it outlives its process; return None when it takes more than `bytes_max`, or cannot be pickled.

    Large arrays are noticed before they are pickled: some classes copy themselves for it.
    """
    kind = type(value)
    if kind in _PLAIN or (kind in (str, bytes) and len(value) <= bytes_max) or (kind is int and value.bit_length() <= bytes_max):
        data = pickle.dumps(value, protocol=_PROTOCOL)
        return data if len(data) <= bytes_max else None
    sink = _BoundedSink(bytes_max)
    try:
        _SmallPickler(sink, protocol=_PROTOCOL).dump(value)
    except Exception:  # noqa: BLE001  too large, or classes of the tenant refuse it: the value is computed again when it is needed
        return None
    return b"".join(sink.pieces)


class _Full(Exception):
    """The sink has reached its limit."""


class _BoundedSink:
    """A sink with a limit, so that pickling of a far too large value stops at the limit, not at its end."""

    def __init__(self, bytes_max: int) -> None:
        self.pieces: list[bytes] = []
        self.bytes_max = self._left = bytes_max

    def write(self, piece: Any) -> int:
        """Add a piece of any type with a buffer."""
        view = piece.raw() if isinstance(piece, pickle.PickleBuffer) else memoryview(piece)
        self._left -= view.nbytes
        if self._left < 0:
            raise _Full
        self.pieces.append(bytes(view))
        return int(view.nbytes)


class _LastingPickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
    """Refuses ObjectRefs: their objects are gone when this process ends, and reading them would fail far from the cause."""

    def reducer_override(self, obj: Any) -> Any:
        """Reduce as cloudpickle does, but refuse ObjectRefs."""
        if isinstance(obj, (ray.ObjectRef, ray.ObjectRefGenerator)):
            raise TypeError(f"it holds an {type(obj).__name__}, which is invalid after this process has ended; save its value instead")
        return super().reducer_override(obj)


class _SmallPickler(_LastingPickler):
    """Stops at an array that is larger than the sink."""

    def __init__(self, sink: _BoundedSink, protocol: int) -> None:
        super().__init__(sink, protocol=protocol)
        self._bytes_max = sink.bytes_max

    def reducer_override(self, obj: Any) -> Any:
        """Reduce as before, but refuse large arrays."""
        size = getattr(obj, "nbytes", 0)
        if isinstance(size, int) and size > self._bytes_max:
            raise _Full
        return super().reducer_override(obj)
