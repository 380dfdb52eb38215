"""Strict, limited parsing of a mesh's call over the link.

JSON with a repeated key, a fraction, an integer beyond 2^53, or more depth, entries or text than any call needs is refused with
its place; the rest must be exactly what the verb takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from federation.errors import BatchTooLarge
from federation.link import FREE_TEXTS, LIST_MAX, LONG_TEXTS, TEXT_MAX, A, Verb, meshes_in
from mesh.core.ids import MeshId
from mesh.core.printable import check_printable
from mesh.core.resources import AMOUNT_MAX
from mesh.core.wire import decode
from mesh.errors import RuntimeAdapterError
from serve_apps.requests.errors import MalformedBody, MalformedCall, WrongMesh

DEPTH_MAX = 32
#: Digits, with the sign, of the longest integer that is parsed.
_DIGITS_MAX = len(str(AMOUNT_MAX)) + 1
#: Longest error of the reader, which may quote its input.
_WORDS_MAX = 500


def read_call(verb: Verb[A, Any], body: bytes, mesh: MeshId) -> A:
    """Parse the call of the mesh whose key the request has.

    Raises:
        MalformedBody: The body is not JSON.
        MalformedCall: The JSON does not fit the verb.
        BatchTooLarge: A list has more entries than any call needs.
        WrongMesh: The call names another mesh.
    """
    _refuse_excess(_json_in(body))
    try:
        asked: A = decode(verb.asked, body)
    except RuntimeAdapterError as wrong:
        raise MalformedCall(f"the body does not fit {verb.name}: {str(wrong)[:_WORDS_MAX]}") from None
    for named in meshes_in(asked):
        if named != mesh:
            raise WrongMesh(f"the key belongs to mesh {mesh}, but the call names {named[:TEXT_MAX]!r}")
    return asked


def _json_in(body: bytes) -> Any:
    try:
        return json.loads(body, object_pairs_hook=_unique, parse_int=_bounded, parse_float=_no_fraction, parse_constant=_no_fraction)
    except RecursionError:
        raise MalformedCall(f"more than {DEPTH_MAX} levels") from None
    except ValueError as wrong:
        raise MalformedBody(f"the body is not JSON: {wrong}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedCall("an object has a repeated key")
    return found


def _bounded(digits: str) -> int:
    if len(digits) > _DIGITS_MAX or abs(int(digits)) > AMOUNT_MAX:
        raise MalformedCall("an integer of 2^53 or more")
    return int(digits)


def _no_fraction(text: str) -> NoReturn:
    raise MalformedCall(f"expected an integer, got {text[:32]}")


def _refuse_excess(value: Any) -> None:
    """Check the limits level by level, without recursion."""
    level = [("", value)]
    for _ in range(DEPTH_MAX):
        for key, part in level:
            _refuse_large(key, part)
        level = [entry for key, part in level for entry in _entries(key, part)]
        if not level:
            return
    raise MalformedCall(f"more than {DEPTH_MAX} levels")


def _entries(key: str, part: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is in a part, without the integers of a list: they have no limit left to check, and a column has many."""
    if isinstance(part, dict):
        yield from part.items()
    elif isinstance(part, list):
        yield from ((key, entry) for entry in part if type(entry) is not int)


def _refuse_large(key: str, part: Any) -> None:
    if isinstance(part, (list, dict)) and len(part) > LIST_MAX:
        raise BatchTooLarge(f"{len(part)} entries in one list; send at most {LIST_MAX}")
    if isinstance(part, dict) and any(len(name) > TEXT_MAX for name in part):
        raise MalformedCall(f"a key of more than {TEXT_MAX} characters")
    if isinstance(part, str) and len(part) > LONG_TEXTS.get(key, TEXT_MAX):
        raise MalformedCall(f"{key[:TEXT_MAX] or 'a text'}: more than {LONG_TEXTS.get(key, TEXT_MAX)} characters")
    names = part if isinstance(part, dict) else [part] if isinstance(part, str) and key not in FREE_TEXTS else []
    for name in names:
        try:
            check_printable(name)
        except ValueError as wrong:
            raise MalformedCall(f"{key[:TEXT_MAX] or 'a name'}: {wrong}") from None
