"""Places of the parts of a JSON text, so that an error can name its line."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping

from dag.spec.strict_json import pointer

_SIGN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_LINE_END = re.compile(r"\n")

#: Line and column, both from 1.
Place = tuple[int, int]


def places_of(text: str) -> Mapping[str, Place]:
    """Return the place of each key and list item of a JSON text by its JSON pointer. A repeated key has its first place.

    Raises:
        ValueError: The text is not JSON. Some invalid texts pass.
    """
    offsets: dict[str, int] = {}
    inside: list[tuple[str, bool]] = []  #: Pointers of the open objects and lists, and whether each is a list.
    counts: list[int] = []
    place: str | None = ""  #: Pointer of the next value; None: a key comes next.
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
    """Return the place of the part, or of its nearest existing parent."""
    while place and place not in places:
        place = place.rpartition("/")[0]
    return places.get(place, (1, 1))


def _place_at(offset: int, starts: list[int]) -> Place:
    line = bisect_right(starts, offset)
    return line, offset - starts[line - 1] + 1
