"""Strict reader for JSON from untrusted clients: each text has one meaning, or an error with all its problems.

Python's reader takes more than JSON: `NaN`, repeated keys (the last one wins), `1e999` as infinity, and unpaired surrogates, which
UTF-8 cannot encode. This module refuses all of these, so later code need not handle them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dag.errors import SpecError

#: Limit on nested containers, with the document itself; a spec uses five of them before its arguments begin.
DEPTH_MAX = 64

TWICE = "this key occurs twice; keep one"

#: Objects with repeated keys, by their `id`, and those keys. The object is kept alive, so that no other gets its `id`.
Duplicates = dict[int, tuple[dict[str, Any], Sequence[str]]]


def read(body: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        SpecError: Lists every problem with its place (a JSON pointer); malformed text has a single problem, at the root.
    """
    value, doubles = read_with_doubles(body)
    if doubles:
        raise SpecError(doubles)
    return value


def read_with_doubles(body: bytes) -> tuple[Any, tuple[tuple[str, str], ...]]:
    """Return the value of a JSON text, with a problem for each repeated key. The last one of repeated keys counts.

    Raises:
        SpecError: As `read`, for all other problems.
    """
    duplicates: Duplicates = {}
    value = _loaded(body, duplicates)
    problems = _problems(value, duplicates, may_hold_halves=b"\\u" in body)
    if any(problem != TWICE for _, problem in problems):
        raise SpecError(tuple(problems))
    return value, tuple(problems)


def pointer(place: str, key: str | int) -> str:
    """Return the JSON pointer of a part (RFC 6901)."""
    step = str(key)
    return f"{place}/{step.replace('~', '~0').replace('/', '~1') if '~' in step or '/' in step else step}"


def is_writable(text: str) -> bool:
    """Return whether UTF-8 can encode the text: it contains no unpaired surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _loaded(body: bytes, duplicates: Duplicates) -> Any:
    def built(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            duplicates[id(found)] = (found, sorted(name for name, count in counts.items() if count > 1))
        return found

    try:
        return json.loads(body.decode(), object_pairs_hook=built, parse_constant=_refuse_constant)
    except UnicodeDecodeError as broken:
        raise SpecError((("", f"not UTF-8: byte {broken.start} begins no character"),)) from None
    except json.JSONDecodeError as broken:
        raise SpecError((("", f"not JSON: {broken.msg} (line {broken.lineno}, column {broken.colno})"),)) from None
    except RecursionError:
        raise SpecError((("", f"nested deeper than {DEPTH_MAX} levels"),)) from None
    except ValueError as broken:  # A constant such as NaN, or a number with too many digits for Python.
        raise SpecError((("", f"not JSON: {broken}"),)) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number; send null or text")


def _problems(value: Any, duplicates: Duplicates, *, may_hold_halves: bool) -> list[tuple[str, str]]:
    """Return the problems of a value that could be read. Iterative, because the value may be as deep as the reader allows.

    Args:
        may_hold_halves: False if no text can contain an unpaired surrogate, because JSON text can only write them as escapes.
    """
    problems: list[tuple[str, str]] = []
    pending: list[tuple[Any, str, int]] = [(value, "", 1)]
    while pending:
        part, place, depth = pending.pop()
        if not isinstance(part, (dict, list)):
            problems.extend((place, problem) for problem in _problems_of_scalar(part))
        elif depth > DEPTH_MAX:
            problems.append((place, f"nested deeper than {DEPTH_MAX} levels"))
        else:
            if isinstance(part, dict):
                problems.extend((pointer(place, name), TWICE) for name in duplicates.get(id(part), (part, ()))[1])
                if may_hold_halves and not all(map(is_writable, part)):
                    problems.append((place, "a key holds half of a surrogate pair, which no file or store can keep"))
            for key, below in part.items() if isinstance(part, dict) else enumerate(part):
                if isinstance(below, (dict, list, float)) or (may_hold_halves and isinstance(below, str)):
                    pending.append((below, pointer(place, key), depth + 1))
    return sorted(problems)


def _problems_of_scalar(scalar: Any) -> list[str]:
    if isinstance(scalar, float) and not math.isfinite(scalar):
        return ["this number is larger than a float can be"]
    if isinstance(scalar, str) and not is_writable(scalar):
        return ["this text holds half of a surrogate pair, which no file or store can keep"]
    return []
