"""The keys of a JSON object that a stranger wrote: each is taken by name, and what nobody takes is an error with its place."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import TracebackType
from typing import Any, final

from mesh.errors import MeshError

_NOTHING = object()


class CaseError(MeshError):
    """A case, or a file of cases, cannot be read; the message tells the place and the remedy."""


@final
class Fields:
    """One JSON object.

    with Fields(case["given"], "given") as given:
        total = given.take("total")
        bulk = given.take("bulk", [])

    The end of the block complains of keys that were not taken.
    """

    def __init__(self, written: object, place: str) -> None:
        """`place` is told in messages. Raises `CaseError` when `written` is no JSON object."""
        if not isinstance(written, Mapping):
            raise CaseError(f"{place} is {type(written).__name__}, not an object")
        self.place = place
        self._left: dict[str, Any] = dict(written)
        self._known: list[str] = []

    def take(self, name: str, default: object = _NOTHING) -> Any:
        """What the key says. Raises `CaseError` when it is not there and there is no default."""
        self._known.append(name)
        if name in self._left:
            return self._left.pop(name)
        if default is _NOTHING:
            close = get_close_matches(name, self._left, n=1)
            raise CaseError(f"{self.place} has no key {name!r}" + (f"; is it meant by {close[0]!r}?" if close else ""))
        return default

    def take_only(self) -> tuple[str, Any]:
        """The one key that is left, and what it says. Raises `CaseError` when there is none, or more than one."""
        if len(self._left) != 1:
            raise CaseError(f"{self.place} has the keys {sorted(self._left)} where exactly one is expected")
        return self._left.popitem()

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None and self._left:
            raise CaseError(f"{self.place} has unknown keys {sorted(self._left)}; known are {sorted(self._known)}")
