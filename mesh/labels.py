"""Labels, and what work says about them.

A selector maps a label's key to a wish, in Ray's own words (`label_selector`):

    a          the label is there and says `a`
    !a         the label is absent or says something else
    in(a, b)   the label is there and says one of these
    !in(a, b)  the label is absent or says none of these
    !          the label is absent (ours: Ray has no word for it)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from mesh.errors import SelectorError

_LIST = re.compile(r"!?in\(")
_CHARACTER = re.compile(r"[a-zA-Z0-9_.-]")
_VALUE_CHARACTERS_MAX = 63  #: Of a label's value, in Ray as in Kubernetes.
_KNOWN_WISHES = 4096  #: Parsed wishes that are kept; there are as many as users write, not as many as tasks.


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWish:
    """What a selector says about one label."""

    written: str
    values: frozenset[str]
    shuns: bool  #: The label must say none of the values; else one of them.
    absent: bool = False  #: Whatever it says is shunned.

    def is_met(self, has: str | None) -> bool:
        """`has` is what the label says; None: it is absent."""
        if self.shuns:
            return has is None or not (self.absent or has in self.values)
        return has in self.values


def _values(written: str) -> list[tuple[int, str]]:
    """The values that the wish names, each with its place, counted from 0."""
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
    """What `written` says about the label `key`; its values must be such as Ray's labels may have.

    Raises:
        SelectorError: With the key and the place of what is wrong.

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
    """Read all of a selector where a stranger hands it in, so that nothing later meets a bad one.

    Raises:
        SelectorError: For the first wish, by key, that is none.
    """
    for key, written in sorted(selector.items()):
        parse_wish(key, written)


def mismatch(wanted: Mapping[str, str], labels: Mapping[str, str], whose: str = "the mesh") -> str | None:
    """The first wish of `wanted` that `labels` does not meet, in words; None when all are met.

    Values may hold any characters here, as the labels of meshes are free text.

    Raises:
        SelectorError: A list that is none, such as `in(a`.
    """
    for key, written in sorted(wanted.items()):
        has, wish = labels.get(key), _parse(written)
        if not wish.is_met(has):
            return f"{key}={has} is shunned" if wish.shuns else _lacking(key, written, has, whose)
    return None


def matches(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """All of `wanted` is met; `mismatch` without the words.

    Raises:
        SelectorError: A list that is none, such as `in(a`.
    """
    return meets(wishes_of(wanted), labels)


def wishes_of(wanted: Mapping[str, str]) -> tuple[tuple[str, LabelWish], ...]:
    """A selector read once, to be held against the labels of many nodes by `meets`.

    Raises:
        SelectorError: A list that is none, such as `in(a`.
    """
    return tuple((key, _parse(written)) for key, written in wanted.items())


def meets(wishes: Iterable[tuple[str, LabelWish]], labels: Mapping[str, str]) -> bool:
    """Every wish is met."""
    return all(wish.is_met(labels.get(key)) for key, wish in wishes)


def _lacking(key: str, written: str, has: str | None, whose: str) -> str:
    asked = f"{key} {written} is asked" if _LIST.match(written) else f"{key}={written} is asked"
    return f"{asked}, {whose} has no {key}" if has is None else f"{asked}, {whose} has {key}={has}"


def _first_wrong(value: str) -> int | None:
    """Where the value stops being one, counted from 0; None when it is one."""
    for place, character in enumerate(value[: _VALUE_CHARACTERS_MAX + 1]):
        at_an_end = place in (0, len(value) - 1)
        if place == _VALUE_CHARACTERS_MAX or not _CHARACTER.match(character) or (at_an_end and not character.isalnum()):
            return place
    return None
