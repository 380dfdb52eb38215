"""Strict reader of a JSON object in a case, by name and type; errors name the place of a missing or wrong value."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, TypeVar, final

from mesh.conformance.fields import CaseError

T = TypeVar("T")
W = TypeVar("W", bound=Enum)
_REQUIRED: Any = object()


@final
class Fields:
    """One JSON object; messages name `place`."""

    def __init__(self, written: object, place: str) -> None:
        """Read the object. Raises CaseError if `written` is no JSON object."""
        if not isinstance(written, dict):
            raise CaseError(f"{place} is {type(written).__name__}, not an object")
        self._written: dict[str, Any] = written
        self.place = place

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are present."""
        return tuple(self._written)

    def require(self, *names: str) -> None:
        """Check that the keys are present. Raises CaseError."""
        missing = [name for name in names if name not in self._written]
        if missing:
            raise CaseError(f"{self.place} has no {', '.join(map(repr, missing))}")

    def get(self, name: str, kind: type[T] | tuple[type[T], ...], *, default: Any = _REQUIRED) -> Any:
        """Return the key's value; the default if it is null or missing. Raises CaseError."""
        value = self._written.get(name)
        if value is None:
            if default is _REQUIRED:
                raise CaseError(f"{self.place} has no {name!r}")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise CaseError(f"{self.place}: {name!r} is {value!r}, which has the wrong type")
        return value

    def text(self, name: str) -> str:
        """Return a non-empty text. Raises CaseError."""
        value: str = self.get(name, str)
        if not value:
            raise CaseError(f"{self.place}: {name!r} is empty")
        return value

    def number(self, name: str, *, default: Any = _REQUIRED) -> Any:
        """Return a whole number. Raises CaseError."""
        return self.get(name, int, default=default)

    def amount(self, name: str, *, default: Any = _REQUIRED) -> Any:
        """Return a whole number of at least 0. Raises CaseError."""
        value = self.number(name, default=default)
        if value is not None and value < 0:
            raise CaseError(f"{self.place}: {name!r} is {value}, below 0")
        return value

    def measure(self, name: str, *, default: Any = _REQUIRED) -> Any:
        """Return a finite number. Raises CaseError."""
        value = self.get(name, (int, float), default=default)
        if isinstance(value, float) and not math.isfinite(value):
            raise CaseError(f"{self.place}: {name!r} is {value}, not a finite number")
        return value

    def word(self, name: str, kind: type[W], *, default: W) -> W:
        """Return a member of an enumeration. Raises CaseError."""
        value = self.get(name, str, default=default.value)
        known = [one.value for one in kind]
        if value not in known:
            raise CaseError(f"{self.place}: {name!r} is {value!r}; known are {', '.join(known)}")
        return kind(value)

    def inner(self, name: str) -> Fields:
        """Return the object under the key; an empty one by default."""
        return Fields(self.get(name, dict, default={}), f"{self.place}.{name}")

    def each(self, name: str) -> tuple[Fields, ...]:
        """Return the objects of a list; none by default."""
        listed = self.get(name, list, default=[])
        return tuple(Fields(one, f"{self.place}.{name}[{place}]") for place, one in enumerate(listed))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of a list; none by default."""
        listed = self.get(name, list, default=[])
        if not all(isinstance(one, str) for one in listed):
            raise CaseError(f"{self.place}: {name!r} holds values that are not text")
        return tuple(listed)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the pairs of texts of a list; none by default."""
        listed = self.get(name, list, default=[])
        if not all(isinstance(one, list) and [type(part) for part in one] == [str, str] for one in listed):
            raise CaseError(f"{self.place}: {name!r} holds values that are not pairs of texts")
        return tuple((first, second) for first, second in listed)
