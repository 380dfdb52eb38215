"""A user's value as a pickle that outlives its process, up to a size: checkpoints, results, saved state."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import ray

_PROTOCOL = 5


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


class _Full(Exception):
    """The sink has reached its limit."""


class _BoundedSink:
    """A sink with a limit, so that pickling of a far too large value stops at the limit, not at its end."""

    def __init__(self, bytes_max: int) -> None:
        self.pieces: list[bytes] = []
        self._left = bytes_max

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
