"""The known name that a wrong one was probably meant to be, and calls that name a parameter which is not there."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80
#: How alike the names of two resources are, by `difflib`, when one is a slip for the other: `cpus` and `cpu` are, `npu` and `gpu` are not.
_ALIKE = 0.8
#: How it begins that a resource is nowhere in the federation.
NO_MESH_HAS = "no mesh has"
_DIGITS = re.compile(r"\d+")
_BETWEEN_WORDS = re.compile(r"[-_. ]")


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'main'?`, where a known word is like it; else empty."""
    close = get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def near_resource(name: str, known: Iterable[str]) -> str | None:
    """The known resource that differs from `name` by case, by hyphens and underscores, or by a slip of a letter; None: there is none.

    Numbers tell resources apart: `tpu_v5` is not meant by `tpu_v4`.
    """
    numbers = _DIGITS.findall(name)
    plain = {_plain(other): other for other in sorted(known, reverse=True) if other != name and _DIGITS.findall(other) == numbers}
    close = get_close_matches(_plain(name), plain, n=1, cutoff=_ALIKE)
    return plain[close[0]] if close else None


def unheld(nobody: str, name: str, known: Iterable[str]) -> str:
    """`no mesh has TPU; did you mean tpu?`, or else what there is.

    Args:
        nobody: Whose the known resources are, as in `no mesh has`.
    """
    held = sorted(known)
    meant = near_resource(name, held)
    return f"{nobody} {name}; " + (f"did you mean {meant}?" if meant is not None else f"there is {', '.join(held) or 'none'}")


def _plain(name: str) -> str:
    return _BETWEEN_WORDS.sub("", name.lower())


def wrong_call(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any], words: str) -> str:
    """What is wrong with a call that does not fit the signature, as words that follow the name of what was called.

    Args:
        words: Python's own, for what is neither an unknown name nor a value too many.
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
    """What was given by its place and cannot be: it belongs to the parameters that go by their names, as far as there are any."""
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
