"""Checked access to the keys of a JSON object: each key is taken by name, and an untaken key is an error."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import TracebackType
from typing import Any, final

from mesh.errors import MeshError

_NOTHING = object()


class CaseError(MeshError):
    """A case, or a file of cases, is invalid; the message names the place and the remedy."""


@final
class Fields:
    """One JSON object.

        with Fields(case["given"], "given") as given:
            total = given.take("total")
            bulk = given.take("bulk", [])

    The end of the block raises `CaseError` if keys were not taken.
    """

    def __init__(self, written: object, place: str) -> None:
        """Wrap a JSON object.

        Args:
            place: Name of the object in messages.

        Raises:
            CaseError: `written` is not a JSON object.
        """
        if not isinstance(written, Mapping):
            raise CaseError(f"{place} is {type(written).__name__}, not an object")
        self.place = place
        self._left: dict[str, Any] = dict(written)
        self._known: list[str] = []

    def take(self, name: str, default: object = _NOTHING) -> Any:
        """Return the value of the key, or the default.

        Raises:
            CaseError: The key is missing without a default.
        """
        self._known.append(name)
        if name in self._left:
            return self._left.pop(name)
        if default is _NOTHING:
            close = get_close_matches(name, self._left, n=1)
            raise CaseError(f"{self.place} has no key {name!r}" + (f"; is {close[0]!r} misspelt?" if close else ""))
        return default

    def take_only(self) -> tuple[str, Any]:
        """Return the only key that is left, and its value.

        Raises:
            CaseError: No key is left, or more than one.
        """
        if len(self._left) != 1:
            raise CaseError(f"{self.place} has the keys {sorted(self._left)} where exactly one is expected")
        return self._left.popitem()

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None and self._left:
            raise CaseError(f"{self.place} has unknown keys {sorted(self._left)}; known: {sorted(self._known)}")
