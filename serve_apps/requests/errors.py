"""Errors over HTTP: one table from error type to status and code.

Every response that is not a success has the same body, problem details by RFC 9457: `code` names the error, `problems` lists all that is
wrong with its places, and `facts` has its numbers, if it has any. No response has a stack trace: an error that is not in the table is
`internal` with a fixed text, and the log has the details under the request's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.responses import Response

from dag.errors import (
    BacklogFull,
    KeyConflict,
    NotRemoved,
    NotRequeued,
    NotResumed,
    RunConflict,
    SignalConflict,
    SpecError,
    StoreFull,
    TooManySchedules,
    UnknownArray,
    UnknownLetter,
    UnknownNode,
    UnknownRun,
    UnknownSchedule,
    UnknownSignal,
    UnknownStage,
)
from federation.errors import DurabilityUnreachable, MeshMisfit, StoreUnavailable, UnknownMesh, UnknownTenant
from federation.link import CODES, NO_BLOB, facts_of
from mesh.errors import MeshError, RuntimeAdapterError
from serve_apps.requests.problem_json import MEDIA_TYPE, title_of, type_of
from serve_apps.schemas.errors import ProblemDetails, ProblemView

#: (place, problem there).
Problems = tuple[tuple[str, str], ...]


class RequestError(MeshError):
    """The request cannot be answered; subclasses say why."""

    def __init__(self, message: str, problems: Problems = ()) -> None:
        super().__init__(message)
        self.problems = problems


class MalformedBody(RequestError):
    """The body is not JSON."""


class BodyTooLarge(RequestError):
    """The body is larger than the limit."""


class NoMeshFits(RequestError):
    """No mesh could ever run part of the graph, unless the work, the meshes or the quotas change; `problems` has a line for each mesh."""


class ScheduleBusy(RequestError):
    """Others change the schedule at the same time. Repeat the call."""


class NotJson(RequestError):
    """The content type of the body is not JSON."""


class NotAuthenticated(RequestError):
    """The API key is missing, unknown, revoked or expired."""


class OutOfReach(RequestError):
    """The API key does not cover the tenant."""


class RoleTooLow(RequestError):
    """The role of the API key does not include the call."""


class UnknownKey(RequestError):
    """There is no such API key within reach."""


class WrongMesh(RequestError):
    """The call names another mesh than its key."""


class MalformedCall(RequestError):
    """The body of a mesh's call does not fit the verb."""


class TooManyCalls(RequestError):
    """The caller is over its call limit."""

    def __init__(self, message: str, *, wait_ms: int) -> None:
        super().__init__(message)
        self.wait_ms = wait_ms  #: Until the next call is accepted.


class UnknownBlob(RequestError):
    """The run has no such blob."""


class ValueNotThere(RequestError):
    """The run has no such output, or its value can no longer be read."""


class CorruptValue(RequestError):
    """The bytes of a value differ from those that were written."""


@dataclass(frozen=True, slots=True)
class HttpMeaning:
    """HTTP status and code of an error type."""

    status: HTTPStatus
    code: str


#: Errors caused by the state of the ledger, not by the request.
_NOT_NOW = {"ledger_recovering", "ledger_uninitialised", "ledger_unsafe"}
_WRONG = {"forged_receipt": HTTPStatus.FORBIDDEN, "batch_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
_WRONG |= dict.fromkeys(("future_token", "invalid_amount", "unfit_name"), HTTPStatus.UNPROCESSABLE_ENTITY)


def _status_of(code: str) -> HTTPStatus:
    """Return the status of a port's error: 503 for the ledger's state, 4xx for a wrong call, 409 if the two disagree."""
    return HTTPStatus.SERVICE_UNAVAILABLE if code in _NOT_NOW else _WRONG.get(code, HTTPStatus.CONFLICT)


#: The first row with a matching type applies, so subclasses precede their base classes.
MEANINGS: tuple[tuple[type[Exception], HttpMeaning], ...] = (
    (MalformedBody, HttpMeaning(HTTPStatus.BAD_REQUEST, "malformed_json")),
    (NotAuthenticated, HttpMeaning(HTTPStatus.UNAUTHORIZED, "unauthorized")),
    (OutOfReach, HttpMeaning(HTTPStatus.FORBIDDEN, "forbidden")),
    (RoleTooLow, HttpMeaning(HTTPStatus.FORBIDDEN, "role_too_low")),
    (UnknownKey, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_key")),
    (WrongMesh, HttpMeaning(HTTPStatus.FORBIDDEN, "wrong_mesh")),
    (UnknownBlob, HttpMeaning(HTTPStatus.NOT_FOUND, NO_BLOB)),
    (ValueNotThere, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_output")),
    (UnknownStage, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_stage")),
    (UnknownNode, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_node")),
    (UnknownArray, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_array")),
    (UnknownRun, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_run")),
    (UnknownMesh, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_mesh")),
    (UnknownSchedule, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_schedule")),
    (UnknownLetter, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_letter")),
    (UnknownSignal, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_signal")),
    (SignalConflict, HttpMeaning(HTTPStatus.CONFLICT, "signal_conflict")),
    (KeyConflict, HttpMeaning(HTTPStatus.CONFLICT, "key_conflict")),
    (RunConflict, HttpMeaning(HTTPStatus.CONFLICT, "run_conflict")),
    (NotRemoved, HttpMeaning(HTTPStatus.CONFLICT, "not_removed")),
    (NotResumed, HttpMeaning(HTTPStatus.CONFLICT, "not_resumed")),
    (NotRequeued, HttpMeaning(HTTPStatus.CONFLICT, "not_requeued")),
    (BodyTooLarge, HttpMeaning(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large")),
    (NotJson, HttpMeaning(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type")),
    (NoMeshFits, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "no_mesh_fits")),
    (SpecError, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_spec")),
    (UnknownTenant, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "unknown_tenant")),
    (MeshMisfit, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "mesh_misfit")),
    (MalformedCall, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "malformed_call")),
    (TooManyCalls, HttpMeaning(HTTPStatus.TOO_MANY_REQUESTS, "too_many_calls")),
    *((kind, HttpMeaning(_status_of(code), code)) for code, kind in CODES.items()),
    (DurabilityUnreachable, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "durability_unreachable")),
    (TooManySchedules, HttpMeaning(HTTPStatus.CONFLICT, "too_many_schedules")),
    (ScheduleBusy, HttpMeaning(HTTPStatus.CONFLICT, "schedule_busy")),
    (StoreFull, HttpMeaning(HTTPStatus.SERVICE_UNAVAILABLE, "store_full")),
    (BacklogFull, HttpMeaning(HTTPStatus.TOO_MANY_REQUESTS, "backlog_full")),
    (CorruptValue, HttpMeaning(HTTPStatus.BAD_GATEWAY, "corrupt_value")),
    (StoreUnavailable, HttpMeaning(HTTPStatus.SERVICE_UNAVAILABLE, "store_unavailable")),
    (RuntimeAdapterError, HttpMeaning(HTTPStatus.BAD_GATEWAY, "broken_record")),
)

#: Errors that no route raises: unknown path, wrong method, wrong parameter, a request that is not HTTP, or a body that is too slow.
OF_ROUTING = {
    HTTPStatus.NOT_FOUND: "unknown_route",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.UNPROCESSABLE_ENTITY: "invalid_parameters",
    HTTPStatus.BAD_REQUEST: "malformed_request",
    HTTPStatus.REQUEST_TIMEOUT: "body_too_slow",  # Sent by `request_timeouts`, which wraps the application.
}

INTERNAL = HttpMeaning(HTTPStatus.INTERNAL_SERVER_ERROR, "internal")

#: Failures of the server: their messages may hold addresses and store rows, which belong only into the log.
_OWN_WORDS = {
    "store_unavailable": "the store does not answer; the request may or may not have taken effect, and is safe to repeat",
    "broken_record": "a record or a file cannot be read; report the request id to the operator",
    "ledger_unsafe": "the ledger's server has settings that could lose leases; the operator's log names them",
    "internal": "internal error; report the request id to the operator",
}

_SPEC_PROBLEMS = "the submission was refused"


def meaning_of(error: Exception) -> HttpMeaning:
    """Return the error's row in the table."""
    return next((meaning for kind, meaning in MEANINGS if isinstance(error, kind)), INTERNAL)


def body_of(error: Exception, request_id: str) -> ProblemDetails:
    """Return the response body for the error."""
    meaning = meaning_of(error)
    problems: Problems = getattr(error, "problems", ()) if meaning.code not in _OWN_WORDS else ()
    words = _SPEC_PROBLEMS if isinstance(error, SpecError) else str(error)
    return problem_body(meaning, _OWN_WORDS.get(meaning.code, words), request_id, problems, facts=facts_of(error))


def problem_body(
    meaning: HttpMeaning, detail: str, request_id: str, problems: Problems = (), *, facts: Mapping[str, int] | None = None
) -> ProblemDetails:
    """Build an error body from its parts."""
    return ProblemDetails(
        type=type_of(meaning.code),
        title=title_of(meaning.code),
        status=meaning.status,
        detail=detail,
        code=meaning.code,
        problems=[ProblemView(place=place, problem=problem) for place, problem in problems],
        request_id=request_id,
        facts=dict(facts or {}),
    )


def problem_response(body: ProblemDetails, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response with this body, and a link to the page about its code."""
    linked = {**(headers or {}), "Link": f'</codes/{body.code}>; rel="help"'}
    return Response(body.model_dump_json(), status_code=body.status, media_type=MEDIA_TYPE, headers=linked)
