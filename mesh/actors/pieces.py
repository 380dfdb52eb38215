"""Split and join values: arrays, sequences, and dicts of them.

Anything that slices like an array can be split, including tensors of other libraries. Only NumPy arrays are joined, since no other
library is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from mesh.actors.errors import DispatchError

_JOINED_KINDS = "arrays, lists, tuples, text, bytes, dicts of these, or None everywhere"


def even_bounds(length: int, count: int) -> list[int]:
    """Return the bounds of `count` pieces of `length` [count + 1]; a remainder goes to the first pieces."""
    size, rest = divmod(length, count)
    return list(accumulate((size + (place < rest) for place in range(count)), initial=0))


def length_along(value: Any, axis: int = 0) -> int:
    """Return the length along the axis; for a dict, the common length of its values.

    Raises:
        DispatchError: It cannot be split, lacks the axis, or the values of a dict differ in length.
    """
    if isinstance(value, Mapping):
        lengths = {name: length_along(part, axis) for name, part in value.items()}
        if len(set(lengths.values())) > 1:
            described = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise DispatchError(f"the values of a dict must have equal lengths to be split, got {described}")
        return next(iter(lengths.values()), 0)
    shape = getattr(value, "shape", None)
    if shape is not None:
        if not -len(shape) <= axis < len(shape):
            raise DispatchError(f"an array of shape {tuple(shape)} has no axis {axis} to split along")
        return int(shape[axis])
    if isinstance(value, Sequence) and axis in (0, -1):
        return len(value)
    raise DispatchError(f"{type(value).__name__} cannot be split along axis {axis}; pass an array, a sequence, or a dict of them")


def piece(value: Any, begin: int, end: int, axis: int = 0) -> Any:
    """Return `value[..., begin:end, ...]` along the axis; a view for arrays, a dict of pieces for a dict."""
    if isinstance(value, Mapping):
        return {name: piece(part, begin, end, axis) for name, part in value.items()}
    shape = getattr(value, "shape", None)
    if shape is None:
        return value[begin:end]
    return value[(slice(None),) * (axis % len(shape)) + (slice(begin, end),)]


def cut(value: Any, count: int, axis: int = 0) -> list[Any]:
    """Return `value[n] -> pieces[count][n / count]`: in order, as even as possible, empty ones at the end.

    Raises:
        DispatchError: It cannot be split.
    """
    return cut_at(value, even_bounds(length_along(value, axis), count), axis)


def cut_at(value: Any, bounds: Sequence[int], axis: int = 0) -> list[Any]:
    """Return `value[n] -> pieces[len(bounds) - 1]`, each from one bound to the next."""
    return [piece(value, begin, end, axis) for begin, end in pairwise(bounds)]


def join(pieces: Sequence[Any], axis: int = 0) -> Any:
    """Return `pieces[k][n / k] -> value[n]`, in order; None when every piece is None, an empty list without pieces.

    Raises:
        DispatchError: They differ in kind, or the kind cannot be joined.
    """
    if not pieces:
        return []
    first = pieces[0]
    kinds = {type(part) for part in pieces}
    if first is None and len(kinds) == 1:
        return None
    if isinstance(first, np.ndarray) and all(isinstance(part, np.ndarray) and part.ndim for part in pieces):
        return _joined_arrays(pieces, axis)
    if len(kinds) == 1 and isinstance(first, Mapping):
        return _joined_dicts(pieces, axis)
    if len(kinds) == 1 and isinstance(first, (str, bytes)):
        return first[:0].join(pieces)
    if len(kinds) == 1 and isinstance(first, (list, tuple)):
        return type(first)(chain.from_iterable(pieces)) if type(first) in (list, tuple) else list(chain.from_iterable(pieces))
    described = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise DispatchError(
        f"results of kind {described} cannot be joined, only {_JOINED_KINDS}; "
        'collect_fn="gather" returns them as a list, "sum" and "mean" add them'
    )


def _joined_arrays(pieces: Sequence[Any], axis: int) -> Any:
    try:
        return np.concatenate(pieces, axis=axis)
    except ValueError as error:
        raise DispatchError(f"these arrays do not fit together: {error}") from None


def _joined_dicts(pieces: Sequence[Mapping[str, Any]], axis: int) -> dict[str, Any]:
    names = list(pieces[0])
    if any(set(part) != set(names) for part in pieces):
        raise DispatchError("dicts with different keys cannot be joined")
    return {name: join([part[name] for part in pieces], axis) for name in names}


def padded(value: Any, length: int, axis: int, pad: Any) -> Any:
    """Return the value padded with `pad` at its end to `length` along the axis.

    Raises:
        DispatchError: It is neither an array nor a list.
    """
    if isinstance(value, Mapping):
        return {name: padded(part, length, axis, pad) for name, part in value.items()}
    missing = length - length_along(value, axis)
    if missing <= 0:
        return value
    if isinstance(value, np.ndarray):
        widths = [(0, missing if place == axis % value.ndim else 0) for place in range(value.ndim)]
        return np.pad(value, widths, constant_values=pad)
    if isinstance(value, list):
        return [*value, *[pad] * missing]
    raise DispatchError(f"{type(value).__name__} cannot be padded; pass an array or a list")
