"""Points in time: milliseconds since the epoch in this process, RFC 3339 text in JSON, where null is "not yet".

In Python a field is called as elsewhere in the project, with its unit (`created_ms`). In JSON it has the name of a time (`created_at`).
Lengths of time stay milliseconds in both, and keep their names (`waiting_ms`).
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from pydantic import AliasChoices, AliasGenerator, BeforeValidator, PlainSerializer, WithJsonSchema

from mesh.core.clock import date_of, ms_of, rfc3339

_PAST = (
    *("created", "started", "ended", "finished", "sent", "saved", "granted", "drained", "stopped", "last_heard", "next", "queued"),
    *("due", "used"),
)
#: Names of times in JSON, by their names in Python.
WIRE_NAMES = {
    "at_ms": "at",
    "not_before_ms": "not_before",
    "since_ms": "since",
    "estimated_end_ms": "estimated_end",
    **{f"{word}_ms": f"{word}_at" for word in (*_PAST, "start", "expires")},
}
_TEXT = {"type": "string", "format": "date-time"}


def _read(value: Any) -> Any:
    if value is None:
        return 0
    return ms_of(value) if isinstance(value, str) else value


def _written(at_ms: int) -> str | None:
    return rfc3339(at_ms) if at_ms else None


#: A time that has always come.
Moment = Annotated[int, BeforeValidator(_read), PlainSerializer(rfc3339, return_type=str), WithJsonSchema(_TEXT)]
#: A time that may not have come: 0 in Python, null in JSON.
LaterMoment = Annotated[
    int,
    BeforeValidator(_read),
    PlainSerializer(_written, return_type=str | None),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "null"}]}),
]


#: Time in a query; milliseconds since the epoch.
QueriedTime = Annotated[int, BeforeValidator(ms_of), WithJsonSchema(_TEXT)]
#: Day in a query.
QueriedDay = Annotated[date, BeforeValidator(date_of)]


def wire_names() -> AliasGenerator:
    """Return the names of fields in JSON."""
    return AliasGenerator(
        validation_alias=lambda name: AliasChoices(WIRE_NAMES[name], name) if name in WIRE_NAMES else name,
        serialization_alias=lambda name: WIRE_NAMES.get(name, name),
    )
