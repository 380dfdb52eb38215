"""One lookup over reasons and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

from mesh.core.reasons import PASSING, Reason
from serve_apps.codes.errors import ERRORS
from serve_apps.codes.member_docs import meanings
from serve_apps.codes.reasons import REMEDIES

#: Remedy of a code that needs none.
NOTHING = "Nothing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A reason or an error of the root."""

    name: str
    kind: str  #: Sort of code, in a few words.
    meaning: str
    remedy: str


@cache
def codes() -> Mapping[str, Code]:
    """Return all codes by name: reasons in capitals, errors in small letters."""
    described = meanings(Reason)
    found = {
        reason.value: Code(name=reason.value, kind=kind_of(reason), meaning=described[reason.name], remedy=REMEDIES.get(reason, NOTHING))
        for reason in Reason
    }
    for name, known in ERRORS.items():
        kind = f"error, HTTP status {known.status} {HTTPStatus(known.status).phrase}"
        found[name] = Code(name=name, kind=kind, meaning=known.meaning, remedy=known.remedy)
    return found


def kind_of(reason: Reason) -> str:
    """Return whether the reason passes by itself, in words."""
    return "reason that passes with a later event" if reason in PASSING else "reason that stays until somebody changes something"


def find(name: str) -> Code | None:
    """Return the code of this name in any case."""
    return codes().get(name) or codes().get(name.upper()) or codes().get(name.lower())
