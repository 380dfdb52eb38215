"""Counts in words: `1 slot`, `2 slots`, `1 mesh`, `2 meshes`."""

from __future__ import annotations

#: Behind these a word takes `es`.
_HISSING = ("s", "sh", "ch", "x", "z")


def counted(count: int, one: str, several: str = "") -> str:
    """The count with its word in the number that goes with it.

    Args:
        one: As it is for one: `slot`, or with what follows it `worker is`.
        several: As it is for several; left out: `one` with `s` or `es`.
    """
    if count == 1:
        return f"{count} {one}"
    return f"{count:,} {several or one + ('es' if one.endswith(_HISSING) else 's')}"


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"
