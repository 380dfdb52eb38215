"""What a stranger is told when something goes wrong: error type to HTTP status and code, in one table.

Every answer that is no success has the same body:
`{"error": {"code", "message", "problems": [{"place", "problem"}], "request_id"}}`, and `facts` where an
error carries numbers. Never a stack: what is not in the table is `internal`, its message says nothing,
and the log has the story under the request's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from dag.errors import BacklogFull, KeyConflict, NotRequeued, RunConflict, SpecError, StoreFull, UnknownLetter, UnknownRun, UnknownStage
from federation.errors import DurabilityUnreachable, MeshMisfit, StoreUnavailable, UnknownMesh, UnknownTenant
from federation.link import CODES, NO_BLOB, facts_of
from mesh.errors import MeshError, RuntimeDoorError
from serve_apps.schemas.errors import ErrorBody, ErrorView, ProblemView

#: (place, what is wrong there).
Problems = tuple[tuple[str, str], ...]


class RequestError(MeshError):
    """A request cannot be answered as it was asked; the subclasses say why."""

    def __init__(self, message: str, problems: Problems = ()) -> None:
        super().__init__(message)
        self.problems = problems


class MalformedBody(RequestError):
    """The body is not JSON."""


class BodyTooLarge(RequestError):
    """More bytes came than a body may have."""


class NotJson(RequestError):
    """The body says that it is something else than JSON."""


class NotAuthenticated(RequestError):
    """No API key, or one that is unknown or revoked."""


class OutOfReach(RequestError):
    """The API key does not reach the tenant."""


class WrongMesh(RequestError):
    """The mesh that the call speaks for is not the one whose key it comes with."""


class MalformedCall(RequestError):
    """The call of a mesh is not what the verb takes."""


class TooManyCalls(RequestError):
    """Whoever asks has used up what he may ask in this second."""

    def __init__(self, message: str, *, wait_ms: int) -> None:
        super().__init__(message)
        self.wait_ms = wait_ms  #: Until the next call is taken.


class UnknownBlob(RequestError):
    """The run has no such blob."""


class ValueNotThere(RequestError):
    """The run has no such output, or its value cannot be read any more."""


class CorruptValue(RequestError):
    """The bytes of a value are not those that were written."""


@dataclass(frozen=True, slots=True)
class HttpMeaning:
    """How an error type is told over HTTP."""

    status: HTTPStatus
    code: str


#: Errors of the ports that are the fault of no request: the state of the ledger does not allow it now.
_NOT_NOW = {"ledger_learning", "ledger_uninitialised", "ledger_unsafe"}
_WRONG = {"forged_receipt": HTTPStatus.FORBIDDEN, "batch_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
_WRONG |= dict.fromkeys(("future_token", "invalid_amount", "unfit_name"), HTTPStatus.UNPROCESSABLE_ENTITY)


def _status_of(code: str) -> HTTPStatus:
    """How a port's error is told: 503 when it is the ledger's state, 4xx when it is the call, 409 when the two do not agree."""
    return HTTPStatus.SERVICE_UNAVAILABLE if code in _NOT_NOW else _WRONG.get(code, HTTPStatus.CONFLICT)


#: The first row whose type matches holds, so what is special stands before what is general.
MEANINGS: tuple[tuple[type[Exception], HttpMeaning], ...] = (
    (MalformedBody, HttpMeaning(HTTPStatus.BAD_REQUEST, "malformed_json")),
    (NotAuthenticated, HttpMeaning(HTTPStatus.UNAUTHORIZED, "unauthorized")),
    (OutOfReach, HttpMeaning(HTTPStatus.FORBIDDEN, "forbidden")),
    (WrongMesh, HttpMeaning(HTTPStatus.FORBIDDEN, "wrong_mesh")),
    (UnknownBlob, HttpMeaning(HTTPStatus.NOT_FOUND, NO_BLOB)),
    (ValueNotThere, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_output")),
    (UnknownStage, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_stage")),
    (UnknownRun, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_run")),
    (UnknownMesh, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_mesh")),
    (UnknownLetter, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_letter")),
    (KeyConflict, HttpMeaning(HTTPStatus.CONFLICT, "key_conflict")),
    (RunConflict, HttpMeaning(HTTPStatus.CONFLICT, "run_conflict")),
    (NotRequeued, HttpMeaning(HTTPStatus.CONFLICT, "not_requeued")),
    (BodyTooLarge, HttpMeaning(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large")),
    (NotJson, HttpMeaning(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type")),
    (SpecError, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_spec")),
    (UnknownTenant, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "unknown_tenant")),
    (MeshMisfit, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "mesh_misfit")),
    (MalformedCall, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "malformed_call")),
    (TooManyCalls, HttpMeaning(HTTPStatus.TOO_MANY_REQUESTS, "too_many_calls")),
    *((kind, HttpMeaning(_status_of(code), code)) for code, kind in CODES.items()),
    (DurabilityUnreachable, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "durability_unreachable")),
    (StoreFull, HttpMeaning(HTTPStatus.SERVICE_UNAVAILABLE, "store_full")),
    (BacklogFull, HttpMeaning(HTTPStatus.TOO_MANY_REQUESTS, "backlog_full")),
    (CorruptValue, HttpMeaning(HTTPStatus.BAD_GATEWAY, "corrupt_value")),
    (StoreUnavailable, HttpMeaning(HTTPStatus.SERVICE_UNAVAILABLE, "store_unavailable")),
    (RuntimeDoorError, HttpMeaning(HTTPStatus.BAD_GATEWAY, "broken_record")),
)

#: What no route has raised: there is none, it takes another method, a parameter of it is wrong, a proxy sent what is no request, or the
#: body did not come in time.
OF_ROUTING = {
    HTTPStatus.NOT_FOUND: "unknown_route",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.UNPROCESSABLE_ENTITY: "invalid_parameters",
    HTTPStatus.BAD_REQUEST: "malformed_request",
    HTTPStatus.REQUEST_TIMEOUT: "body_too_slow",  # Told by `slow_clients`, around the application.
}

INTERNAL = HttpMeaning(HTTPStatus.INTERNAL_SERVER_ERROR, "internal")

#: Failures of this side: their words may hold addresses and rows of the store, which are for the log alone.
_OWN_WORDS = {
    "store_unavailable": "the store does not answer; nothing is known about whether the request took effect, and it is safe to repeat",
    "broken_record": "a record or a file cannot be read as it was written; tell the operator the request id",
    "ledger_unsafe": "the server of the ledger is set up in a way that could lose leases; the operator's log names the settings",
    "internal": "something broke here; tell the operator the request id",
}

_SPEC_PROBLEMS = "the graph was not accepted; every problem that was found is listed"


def meaning_of(error: Exception) -> HttpMeaning:
    """The error's row in the table."""
    return next((meaning for kind, meaning in MEANINGS if isinstance(error, kind)), INTERNAL)


def body_of(error: Exception, request_id: str) -> ErrorBody:
    """What the caller is told about the error."""
    code = meaning_of(error).code
    problems: Problems = getattr(error, "problems", ()) if code not in _OWN_WORDS else ()
    words = _SPEC_PROBLEMS if isinstance(error, SpecError) else str(error)
    return problem_body(code, _OWN_WORDS.get(code, words), request_id, problems, facts=facts_of(error))


def problem_body(code: str, message: str, request_id: str, problems: Problems = (), *, facts: Mapping[str, int] | None = None) -> ErrorBody:
    """An error body in parts."""
    listed = [ProblemView(place=place, problem=problem) for place, problem in problems]
    return ErrorBody(error=ErrorView(code=code, message=message, problems=listed, request_id=request_id, facts=dict(facts or {})))
