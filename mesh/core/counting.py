"""Counts in words: `1 slot`, `2 slots`, `1 mesh`, `2 meshes`."""

from __future__ import annotations

#: A word with one of these endings takes `es`.
_HISSING = ("s", "sh", "ch", "x", "z")


def counted(count: int, one: str, several: str = "") -> str:
    """Return the count with its word in singular or plural.

    Args:
        one: Singular: `slot`, or with its verb `worker is`.
        several: Plural; by default `one` with `s` or `es`.
    """
    if count == 1:
        return f"{count} {one}"
    return f"{count:,} {several or one + ('es' if one.endswith(_HISSING) else 's')}"


def times(count: int) -> str:
    """Return `once`, `2 times`, …."""
    return "once" if count == 1 else f"{count} times"
