"""A JSON object that a stranger wrote, read by name and kind; what is missing or of another kind is told with its place."""

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
    """One JSON object; `place` stands in messages."""

    def __init__(self, written: object, place: str) -> None:
        """Raises CaseError when `written` is no JSON object."""
        if not isinstance(written, dict):
            raise CaseError(f"{place} is {type(written).__name__}, not an object")
        self._written: dict[str, Any] = written
        self.place = place

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are there."""
        return tuple(self._written)

    def require(self, *names: str) -> None:
        """Raises CaseError when one of the keys is not there."""
        missing = [name for name in names if name not in self._written]
        if missing:
            raise CaseError(f"{self.place} has no {', '.join(map(repr, missing))}")

    def get(self, name: str, kind: type[T] | tuple[type[T], ...], *, default: Any = _REQUIRED) -> Any:
        """What the key says; the default when it says null or is not there. Raises CaseError."""
        value = self._written.get(name)
        if value is None:
            if default is _REQUIRED:
                raise CaseError(f"{self.place} has no {name!r}")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise CaseError(f"{self.place}: {name!r} is {value!r}, not of the right kind")
        return value

    def text(self, name: str) -> str:
        """A text that is not empty. Raises CaseError."""
        value: str = self.get(name, str)
        if not value:
            raise CaseError(f"{self.place}: {name!r} is empty")
        return value

    def number(self, name: str, *, default: Any = _REQUIRED) -> Any:
        """A whole number. Raises CaseError."""
        return self.get(name, int, default=default)

    def amount(self, name: str, *, default: Any = _REQUIRED) -> Any:
        """A whole number that is not negative. Raises CaseError."""
        value = self.number(name, default=default)
        if value is not None and value < 0:
            raise CaseError(f"{self.place}: {name!r} is {value}, below nothing")
        return value

    def measure(self, name: str, *, default: Any = _REQUIRED) -> Any:
        """A number that is one: no infinity, nor what JSON calls NaN. Raises CaseError."""
        value = self.get(name, (int, float), default=default)
        if isinstance(value, float) and not math.isfinite(value):
            raise CaseError(f"{self.place}: {name!r} is {value}, which is no number")
        return value

    def word(self, name: str, kind: type[W], *, default: W) -> W:
        """One of the words of an enumeration. Raises CaseError."""
        value = self.get(name, str, default=default.value)
        known = [one.value for one in kind]
        if value not in known:
            raise CaseError(f"{self.place}: {name!r} is {value!r}; known are {', '.join(known)}")
        return kind(value)

    def inner(self, name: str) -> Fields:
        """The object that the key holds; an empty one when there is none."""
        return Fields(self.get(name, dict, default={}), f"{self.place}.{name}")

    def each(self, name: str) -> tuple[Fields, ...]:
        """The objects of a list; none when there is no list."""
        listed = self.get(name, list, default=[])
        return tuple(Fields(one, f"{self.place}.{name}[{place}]") for place, one in enumerate(listed))

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts of a list; none when there is no list."""
        listed = self.get(name, list, default=[])
        if not all(isinstance(one, str) for one in listed):
            raise CaseError(f"{self.place}: {name!r} holds what is no text")
        return tuple(listed)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """The pairs of texts of a list; none when there is no list."""
        listed = self.get(name, list, default=[])
        if not all(isinstance(one, list) and [type(part) for part in one] == [str, str] for one in listed):
            raise CaseError(f"{self.place}: {name!r} holds what is no pair of texts")
        return tuple((first, second) for first, second in listed)
