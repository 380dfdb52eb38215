"""Estimate of an argument's size, to decide whether to store it once instead of sending it with each call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Ray itself stores arguments from this size (100 KiB), but once per call.
LARGE_BYTES = 100 * 1024
_ITEM_BYTES = 8
_ITEMS_LOOKED_AT_MAX = 256


def is_large(value: Any, large_bytes: int = LARGE_BYTES) -> bool:
    """Return whether the value takes at least so many bytes. Cheap: only the first items of long containers are measured."""
    return weight_bytes(value) >= large_bytes


def weight_bytes(value: Any) -> int:
    """Return the approximate size in bytes: exact for arrays and text, by first items for containers, by attributes for other objects."""
    known = _own_bytes(value)
    if known is not None:
        return known
    items = _items(value)
    if items is None:
        return _ITEM_BYTES
    count, shown = items
    if not shown:
        return _ITEM_BYTES
    return _ITEM_BYTES * count + sum(_shallow_bytes(item) for item in shown) * count // len(shown)


def _own_bytes(value: Any) -> int | None:
    if value is None or isinstance(value, (int, float)):
        return _ITEM_BYTES
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    nbytes = getattr(value, "nbytes", None)
    return nbytes if isinstance(nbytes, int) else None


def _items(value: Any) -> tuple[int, list[Any]] | None:
    if isinstance(value, Mapping):
        held: Any = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        held = value
    else:
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict):
            return None
        held = attributes.values()
    return len(held), [item for item, _ in zip(held, range(_ITEMS_LOOKED_AT_MAX), strict=False)]


def _shallow_bytes(item: Any) -> int:
    """Return the size one level further down: arrays in a dict of lists of arrays count, deeper ones do not."""
    known = _own_bytes(item)
    if known is not None:
        return known
    items = _items(item)
    return sum(_own_bytes(held) or _ITEM_BYTES for held in items[1]) if items else _ITEM_BYTES
