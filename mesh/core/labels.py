"""Labels and label selectors.

A selector maps a label's key to a condition, in the syntax of Ray's `label_selector`:

    a          the label is there and is `a`
    !a         the label is absent or is not `a`
    in(a, b)   the label is there and is one of these
    !in(a, b)  the label is absent or is none of these
    !          the label is absent (an addition: Ray has no syntax for it)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from mesh.errors import SelectorError

_LIST = re.compile(r"!?in\(")
_CHARACTER = re.compile(r"[a-zA-Z0-9_.-]")
_VALUE_CHARACTERS_MAX = 63  #: For a label's value, in Ray as in Kubernetes.
_KNOWN_WISHES = 4096  #: Cached parsed conditions; their number grows with what users write, not with tasks.


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWish:
    """Condition of a selector on one label."""

    written: str
    values: frozenset[str]
    shuns: bool  #: True: the label must have none of the values; False: one of them.
    absent: bool = False  #: The label must be absent: every value is excluded.

    def is_met(self, has: str | None) -> bool:
        """Return whether the label's value `has` meets the condition; None: the label is absent."""
        if self.shuns:
            return has is None or not (self.absent or has in self.values)
        return has in self.values


def _values(written: str) -> list[tuple[int, str]]:
    """Return the values that the condition names, each with its place, counted from 0."""
    listed = _LIST.match(written)
    if listed is None:
        place = 1 if written.startswith("!") else 0
        return [(place, written[place:])]
    if not written.endswith(")"):
        raise SelectorError(f"{written!r}, character {len(written) + 1}: `)` is missing; write {listed[0]}a, b)")
    values, place = [], listed.end()
    for part in written[place:-1].split(","):
        value = part.strip(" ")
        if not value or "(" in value or ")" in value:
            raise SelectorError(f"{written!r}, character {place + 1}: {part!r} is not a value; write {listed[0]}a, b)")
        values.append((place + part.index(value), value))
        place += len(part) + 1
    return values


@lru_cache(maxsize=_KNOWN_WISHES)
def _parse(written: str) -> LabelWish:
    if written == "!":
        return LabelWish(written=written, values=frozenset(), shuns=True, absent=True)
    return LabelWish(written=written, values=frozenset(value for _, value in _values(written)), shuns=written.startswith("!"))


def parse_wish(key: str, written: str) -> LabelWish:
    """Parse the condition `written` for the label `key`; its values must be valid values of Ray's labels.

    Raises:
        SelectorError: With the key and the place of the error.

    Source:
        Ray's `label_utils.py`: values have 1 to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
    """
    try:
        wish = _parse(written)
    except SelectorError as wrong:
        raise SelectorError(f"label {key}: {wrong}") from None
    for begin, value in () if wish.absent or written == "" else _values(written):
        wrong_at = _first_wrong(value)
        if wrong_at is not None:
            raise SelectorError(
                f"label {key}: {written!r}, character {begin + wrong_at + 1}: a value has at most {_VALUE_CHARACTERS_MAX} letters, digits,"
                " `-`, `_` and `.`, with a letter or digit at both ends; write a, !a, in(a, b), !in(a, b), or ! for a label that is absent"
            )
    return wish


def check_selector(selector: Mapping[str, str]) -> None:
    """Check a whole selector when it enters the system, so that later code never meets an invalid one.

    Raises:
        SelectorError: For the first invalid condition, by key.
    """
    for key, written in sorted(selector.items()) if selector else ():
        parse_wish(key, written)


def mismatch(wanted: Mapping[str, str], labels: Mapping[str, str], whose: str = "the mesh") -> str | None:
    """Describe the first condition of `wanted` that `labels` does not meet; None when all are met.

    Values may hold any characters here, as the labels of meshes are free text.

    Raises:
        SelectorError: An invalid list, such as `in(a`.
    """
    for key, written in sorted(wanted.items()):
        has, wish = labels.get(key), _parse(written)
        if not wish.is_met(has):
            return f"{key}={has} is excluded" if wish.shuns else _lacking(key, written, has, whose)
    return None


def matches(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether `labels` meets all of `wanted`; `mismatch` without the description.

    Raises:
        SelectorError: An invalid list, such as `in(a`.
    """
    return meets(wishes_of(wanted), labels)


def wishes_of(wanted: Mapping[str, str]) -> tuple[tuple[str, LabelWish], ...]:
    """Parse a selector once, for use with `meets` on the labels of many nodes.

    Raises:
        SelectorError: An invalid list, such as `in(a`.
    """
    return tuple((key, _parse(written)) for key, written in wanted.items())


def meets(wishes: Iterable[tuple[str, LabelWish]], labels: Mapping[str, str]) -> bool:
    """Return whether every condition is met."""
    return all(wish.is_met(labels.get(key)) for key, wish in wishes)


def _lacking(key: str, written: str, has: str | None, whose: str) -> str:
    asked = f"{key} {written} is required" if _LIST.match(written) else f"{key}={written} is required"
    return f"{asked}, {whose} has no {key}" if has is None else f"{asked}, {whose} has {key}={has}"


def _first_wrong(value: str) -> int | None:
    """Return the place of the first invalid character, counted from 0; None for a valid value."""
    for place, character in enumerate(value[: _VALUE_CHARACTERS_MAX + 1]):
        at_an_end = place in (0, len(value) - 1)
        if place == _VALUE_CHARACTERS_MAX or not _CHARACTER.match(character) or (at_an_end and not character.isalnum()):
            return place
    return None
