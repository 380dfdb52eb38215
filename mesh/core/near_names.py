"""Suggestions for wrong names, and messages for calls whose parameters do not fit."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from difflib import get_close_matches
from typing import Any

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80
#: Most known names among which a similar one is looked for, and the longest name that is looked up: both cost time.
_AMONG_MAX, _CHARS_MAX = 1_000, 200
#: Similarity by `difflib` from which one resource name counts as a slip for another: `cpus` and `cpu` do, `npu` and `gpu` do not.
_ALIKE = 0.8
#: Start of the message that no mesh of the federation has a resource.
NO_MESH_HAS = "no mesh has"
_DIGITS = re.compile(r"\d+")
_BETWEEN_WORDS = re.compile(r"[-_. ]")


def near_name(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is similar, if need be in another case; None: there is none, or there are too many to look at."""
    if len(word) > _CHARS_MAX or (isinstance(known, Sized) and len(known) > _AMONG_MAX):
        return None
    names = sorted(known)
    folded = {name.casefold(): name for name in reversed(names)}
    close = get_close_matches(word, names, n=1) or [folded[name] for name in get_close_matches(word.casefold(), folded, n=1)]
    return close[0] if close else None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean main?` for the known name that is similar; else an empty text."""
    near = near_name(word, known)
    return f"; did you mean {near}?" if near is not None else ""


def near_resource(name: str, known: Iterable[str]) -> str | None:
    """Return the known resource that differs by case, by hyphens and underscores, or by a slip of a letter; None: there is none.

    Different numbers are different resources: `tpu_v4` never suggests `tpu_v5`.
    """
    numbers = _DIGITS.findall(name)
    plain = {_plain(other): other for other in sorted(known, reverse=True) if other != name and _DIGITS.findall(other) == numbers}
    close = get_close_matches(_plain(name), plain, n=1, cutoff=_ALIKE)
    return plain[close[0]] if close else None


def unheld(nobody: str, name: str, known: Iterable[str]) -> str:
    """Return `no mesh has TPU; did you mean tpu?`, or a list of the known resources instead of the suggestion.

    Args:
        nobody: Start of the message, such as `no mesh has`.
    """
    held = sorted(known)
    meant = near_resource(name, held)
    return f"{nobody} {name}; " + (f"did you mean {meant}?" if meant is not None else f"there is {', '.join(held) or 'none'}")


def _plain(name: str) -> str:
    return _BETWEEN_WORDS.sub("", name.lower())


def wrong_call(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any], words: str) -> str:
    """Describe why a call does not fit the signature, as text that follows the name of the function.

    Args:
        words: Python's own message, used for all but unknown names and surplus values.
    """
    parameters = signature.parameters.values()
    by_place = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(args) > len(by_place):
        by_name = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.name not in kwargs]
        return _too_many([name for name in by_place if name not in ("self", "cls")], by_name, args[len(by_place) :])
    known = tuple(_named(signature))
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    unknown = next((given for given in kwargs if given not in known), None)
    if unknown is None or takes_any:
        return f": {words}; its parameters are {', '.join(known)}"
    return f" has no parameter {unknown!r}{nearest(unknown, known) or '; there are ' + ', '.join(known)}"


def _too_many(by_place: Sequence[str], by_name: Sequence[str], surplus: Sequence[Any]) -> str:
    """Describe surplus positional values; they probably belong to the keyword-only parameters, if there are any."""
    if not by_name:
        return f" takes {', '.join(by_place) or 'nothing'}, and {_SHOWN.repr(surplus[0])} is one value too many"
    meant = list(zip(by_name, surplus, strict=False))
    names, verb = " and ".join(name for name, _ in meant), "has" if len(meant) == 1 else "have"
    written = ", ".join(f"{name}={_SHOWN.repr(value)}" for name, value in meant)
    return f" takes {', '.join(by_place) or 'nothing'} by position: {names} {verb} to be given by name, like {written}"


def _named(signature: inspect.Signature) -> Iterator[str]:
    for one in signature.parameters.values():
        if one.name not in ("self", "cls") and one.kind not in (one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            yield one.name
