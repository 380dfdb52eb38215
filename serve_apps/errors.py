"""What a stranger is told when something goes wrong: error type to HTTP status and code, in one table.

Every answer that is no success has the same body:
`{"error": {"code", "message", "problems": [{"place", "problem"}], "request_id"}}`. Never a stack: what is not in the
table is `internal`, its message says nothing, and the log has the story under the request's id.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from dag.errors import BacklogFull, KeyConflict, NotRequeued, RunConflict, SpecError, StoreFull, UnknownLetter, UnknownRun
from federation.errors import DurabilityUnreachable, StoreUnavailable, UnknownMesh, UnknownTenant
from mesh.errors import MeshError, RuntimeDoorError
from serve_apps.schemas import ErrorBody, ErrorView, ProblemView

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


class ValueNotThere(RequestError):
    """The run has no such output, or its value cannot be read any more."""


class CorruptValue(RequestError):
    """The bytes of a value are not those that were written."""


@dataclass(frozen=True, slots=True)
class HttpMeaning:
    """How an error type is told over HTTP."""

    status: HTTPStatus
    code: str


#: The first row whose type matches holds, so what is special stands before what is general.
MEANINGS: tuple[tuple[type[Exception], HttpMeaning], ...] = (
    (MalformedBody, HttpMeaning(HTTPStatus.BAD_REQUEST, "malformed_json")),
    (NotAuthenticated, HttpMeaning(HTTPStatus.UNAUTHORIZED, "unauthorized")),
    (OutOfReach, HttpMeaning(HTTPStatus.FORBIDDEN, "forbidden")),
    (ValueNotThere, HttpMeaning(HTTPStatus.NOT_FOUND, "unknown_output")),
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
    (DurabilityUnreachable, HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, "durability_unreachable")),
    (StoreFull, HttpMeaning(HTTPStatus.SERVICE_UNAVAILABLE, "store_full")),
    (BacklogFull, HttpMeaning(HTTPStatus.TOO_MANY_REQUESTS, "backlog_full")),
    (CorruptValue, HttpMeaning(HTTPStatus.BAD_GATEWAY, "corrupt_value")),
    (StoreUnavailable, HttpMeaning(HTTPStatus.SERVICE_UNAVAILABLE, "store_unavailable")),
    (RuntimeDoorError, HttpMeaning(HTTPStatus.BAD_GATEWAY, "broken_record")),
)

INTERNAL = HttpMeaning(HTTPStatus.INTERNAL_SERVER_ERROR, "internal")

#: Failures of this side: their words may hold addresses and rows of the store, which are for the log alone.
_OWN_WORDS = {
    "store_unavailable": "the store does not answer; nothing is known about whether the request took effect, and it is safe to repeat",
    "broken_record": "a record or a file cannot be read as it was written; tell the operator the request id",
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
    return problem_body(code, _OWN_WORDS.get(code, words), request_id, problems)


def problem_body(code: str, message: str, request_id: str, problems: Problems = ()) -> ErrorBody:
    """An error body in parts."""
    listed = [ProblemView(place=place, problem=problem) for place, problem in problems]
    return ErrorBody(error=ErrorView(code=code, message=message, problems=listed, request_id=request_id))
