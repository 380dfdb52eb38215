"""Where the parts of a JSON text stand, so that a complaint about one can name its line."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping

from dag.strict_json import pointer

_SIGN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_LINE_END = re.compile(r"\n")

#: Line and column, both from 1.
Place = tuple[int, int]


def places_of(text: str) -> Mapping[str, Place]:
    """The place of each part of a text that is JSON, by its pointer: of a key, or of an item of a list. Of a key twice, the first.

    Raises:
        ValueError: The text is no JSON; not everything that is none is found out.
    """
    offsets: dict[str, int] = {}
    inside: list[tuple[str, bool]] = []  #: Objects and lists that are open: their pointers, and whether they are lists.
    counts: list[int] = []
    place: str | None = ""  #: Of the value that comes next; None: a key comes next.
    for found in _SIGN.finditer(text):
        sign = found[0]
        if sign in ("{", "["):
            offsets.setdefault(place or "", found.start())
            inside.append((place or "", sign == "["))
            counts.append(0)
            place = pointer(place or "", 0) if sign == "[" else None
        elif sign in ("}", "]"):
            inside.pop()
            counts.pop()
        elif sign == ",":
            counts[-1] += 1
            place = pointer(inside[-1][0], counts[-1]) if inside[-1][1] else None
        elif place is None:
            place = pointer(inside[-1][0], json.loads(sign))
            offsets.setdefault(place, found.start())
        elif sign != ":":
            offsets.setdefault(place, found.start())
    starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
    return {place: _place_at(offset, starts) for place, offset in offsets.items()}


def nearest(places: Mapping[str, Place], place: str) -> Place:
    """Where the part stands, or what should hold it."""
    while place and place not in places:
        place = place.rpartition("/")[0]
    return places.get(place, (1, 1))


def _place_at(offset: int, starts: list[int]) -> Place:
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1
