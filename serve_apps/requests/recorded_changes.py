"""Entries of the log of changes for all calls that change something.

The dependency that authenticates a call notes who asks, for what, and whom it is about, before the call: later the run may be gone. The
middleware adds the outcome before the caller gets the response. No route does anything for that, so none can forget it.

Calls without a valid key, and calls over a limit, leave no entry: anybody could fill the log with them. An accepted submission leaves
none either, since the run says the same; one that the key may not make does, since nothing else says it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dag.run.dead_letters import parted
from federation.api_keys import covers
from federation.change_log import Change, ChangeLog, Outcome
from federation.errors import StoreUnavailable
from federation.link import LINK_PATH
from mesh.core.clock import Clock
from mesh.core.ids import RunId, TenantPath
from mesh.core.printable import escaped
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Dependencies
from serve_apps.requests.middleware import request_id_of
from serve_apps.requests.roles import ROLES, SUBJECTS

log = structlog.get_logger(__name__)

#: Calls that are not recorded although they are no GET, each with its reason.
NOT_RECORDED = {
    ("POST", "/v1/plan"): "it changes nothing",
    ("POST", "/v1/runs"): "the run is the record: its tenant, user and times; there may be thousands a second",
}
#: Calls of these that are recorded if the key may not make them: there is no run that says so.
RECORDED_IF_FORBIDDEN = frozenset({("POST", "/v1/runs")})
#: All calls that are recorded, whatever their outcome.
RECORDED = frozenset(call for call in ROLES if call[0] != "GET") - NOT_RECORDED.keys()
#: Body that is a value of a tenant, and not recorded: neither its fields nor a digest, from which a short secret could be guessed.
_VALUE = "POST /v1/runs/{run_id}/signals/{name}"
#: Fields of all other JSON bodies that are recorded: none of them is a value, code, or secret.
_SHOWN = ("reason", "tenant", "id", "user", "run", "keys", "all", "cleanup", "cron", "timezone", "overlap", "starts_within_ms")
#: Field that is recorded as a digest of the body.
_GRAPH = "graph"
#: Characters of a recorded field.
_SHOWN_MAX = 300
#: Bytes of a body that are read for its fields; a longer one has only a digest.
_BODY_MAX = 256 << 10
#: Characters of a digest.
_DIGEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A call that changes something, before its outcome."""

    principal: Principal
    operation: str
    tenant: TenantPath | None  #: Tenant of the path and the query; None: these name none.
    tenant_in_body: tuple[str, ...]  #: Fields of the body that lead to the tenant instead.
    target: str
    source: str
    only_if_forbidden: bool  #: Only a refusal of the key is recorded.


def call_of(request: Request) -> tuple[str, str]:
    """Return the method and the route of a call, as the tables have them."""
    return request.method, request.scope["route"].path_format


def is_recorded(call: tuple[str, str]) -> bool:
    """Return whether calls of this method and route leave an entry, whatever their outcome."""
    return call in RECORDED


def note_change(request: Request, ports: Dependencies, principal: Principal, source: str) -> None:
    """Note a call that changes something, for the middleware. Raises StoreUnavailable."""
    call = call_of(request)
    if not is_noted(call):
        return
    subject, named = SUBJECTS[call], request.path_params
    request.state.change = Begun(
        principal=principal,
        operation=" ".join(call),
        tenant=_tenant_of(ports, subject.path, named.get(subject.path, "")) or _known(ports, request.query_params.get(subject.query)),
        tenant_in_body=subject.body,
        target="/".join(map(str, named.values()))[:_SHOWN_MAX],
        source=source,
        only_if_forbidden=call in RECORDED_IF_FORBIDDEN,
    )


def is_noted(call: tuple[str, str]) -> bool:
    """Return whether calls of this method and route may leave entries."""
    return call in RECORDED or call in RECORDED_IF_FORBIDDEN


def _tenant_of(ports: Dependencies, kind: str, name: str) -> TenantPath | None:
    """Return the tenant that a part of the path names, or that the named run, dead letter or key belongs to."""
    if kind == "key":
        key = ports.keys.find(name)
        return key.tenant if key is not None and key.mesh is None else None
    if kind in ("run_id", "letter"):
        summary = ports.runs.summary(RunId(name) if kind == "run_id" else parted(name)[0])
        return summary.tenant if summary is not None else None
    return _known(ports, name)


def _known(ports: Dependencies, tenant: object) -> TenantPath | None:
    """Return the tenant if it exists: a mistyped name gets no log of its own."""
    if not isinstance(tenant, str) or not tenant or not ports.shown().tree.is_configured(TenantPath(tenant)):
        return None
    return TenantPath(tenant)


class RecordedChanges:
    """ASGI middleware that appends each noted change with its outcome."""

    def __init__(self, app: ASGIApp, *, changes: ChangeLog, clock: Clock) -> None:
        self._app = app
        self._changes = changes
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS") or scope["path"].startswith(f"{LINK_PATH}/"):
            await self._app(scope, receive, send)
            return
        body, started = _Body(), list[Message]()

        async def read() -> Message:
            message = await receive()
            body.take(message)
            return message

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)  # The code of an error is in the body that follows.
                return
            if started:
                start = started.pop()
                await self._record(scope, body, start["status"], message.get("body", b""))
                await send(start)
            await send(message)

        try:
            await self._app(scope, read, answered)
        except Exception:  # The outer middleware answers it.
            await self._record(scope, body, HTTPStatus.INTERNAL_SERVER_ERROR, b"")
            raise

    async def _record(self, scope: Scope, body: _Body, status: int, answer: bytes) -> None:
        begun: Begun | None = scope.get("state", {}).pop("change", None)
        if begun is None or (begun.only_if_forbidden and status != HTTPStatus.FORBIDDEN):
            return
        change = Change(
            at_ms=self._clock.wall_ms(),
            operation=begun.operation,
            tenant=begun.principal.tenant,
            target=begun.target,
            details=body.details() if begun.operation != _VALUE else {},
            key=begun.principal.key,
            user=begun.principal.user,
            source=begun.source,
            request_id=request_id_of(scope),
            outcome=_outcome(status),
            code=_code(status, answer),
        )
        try:
            await run_in_threadpool(self._append, begun, body, change, scope["app"].state.dependencies)
        except StoreUnavailable as gone:  # The change is made; an error in place of the response would hide that.
            log.error("a change could not be recorded", error=str(gone), **_words(change))  # noqa: TRY400  no defect of this code

    def _append(self, begun: Begun, body: _Body, change: Change, ports: Dependencies) -> None:
        """Append the change to the log of its tenant; a call beyond the reach of the key is about the key's own tenant."""
        tenant = begun.tenant or _known(ports, body.found(begun.tenant_in_body))
        if tenant is not None and covers(begun.principal.tenant, tenant):
            change = replace(change, tenant=tenant)
        self._changes.append(change)


def _words(change: Change) -> dict[str, str]:
    return {
        "operation": change.operation,
        "tenant": change.tenant,
        "target": change.target,
        "key": change.key,
        "user": change.user,
        "source": change.source,
        "request_id": change.request_id,
        "outcome": change.outcome.value,
        "code": change.code,
    }


def _outcome(status: int) -> Outcome:
    if status < HTTPStatus.BAD_REQUEST:
        return Outcome.ALLOWED
    return Outcome.REFUSED if status < HTTPStatus.INTERNAL_SERVER_ERROR else Outcome.FAILED


def _code(status: int, answer: bytes) -> str:
    """Return the code of an error's body."""
    if status < HTTPStatus.BAD_REQUEST:
        return ""
    try:
        return str(json.loads(answer)["code"])
    except (ValueError, TypeError, LookupError):
        return str(int(status))


class _Body:
    """Recorded part of a request's body."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._size = 0
        self._digest = hashlib.sha256()

    def take(self, message: Message) -> None:
        part: bytes = message.get("body", b"") if message["type"] == "http.request" else b""
        self._size += len(part)
        self._digest.update(part)
        if self._size <= _BODY_MAX:
            self._kept += part

    def details(self) -> dict[str, str]:
        """Return the fields that may be shown, and the digest of a body that has a graph or is too long to be read."""
        fields = self._fields()
        # A surrogate is valid in JSON, but not in the store.
        shown = {name: escaped(str(fields[name])[:_SHOWN_MAX]) for name in _SHOWN if fields.get(name) not in (None, "")}
        digest = {"sha256": self._digest.hexdigest()[:_DIGEST]} if _GRAPH in fields or self._size > _BODY_MAX else {}
        return {**shown, **digest}

    def found(self, fields: Sequence[str]) -> object:
        """Return the value that these fields lead to, from outside in; None: there is none."""
        value: Any = self._fields() if fields else None
        for name in fields:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def _fields(self) -> dict[str, Any]:
        """Return the fields of a JSON object; empty for any other body, and for the beginning of a long one."""
        try:
            fields = json.loads(self._kept)
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}
