"""Callers of requests and what their keys cover. Resources out of reach look as if they did not exist, except at submission."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from dag.errors import UnknownRun
from dag.run.runs import RunRecord, RunSummary
from federation.api_keys import EVERYBODY, ApiKey, covers
from federation.errors import StoreUnavailable
from federation.snapshot import FederationSnapshot
from mesh.core.ids import RunId, TenantPath
from serve_apps.requests.auth import Denial, Denied, MeshPrincipal, Principal, authenticate, authenticate_mesh, key_in
from serve_apps.requests.dependencies import Dependencies, Ports, dependencies_of
from serve_apps.requests.errors import NotAuthenticated, OutOfReach
from serve_apps.requests.recorded_changes import call_of, is_noted, is_recorded, note_change
from serve_apps.requests.roles import check_role

_LISTED = "`schedulemesh runs` and GET /v1/runs list the runs that the key covers"

_WORDS = {
    Denial.MISSING: "no API key; send the header `Authorization: Bearer smk_…`",
    Denial.MALFORMED: "the Authorization header is not `Bearer smk_<id>_<secret>`",
    Denial.UNKNOWN: "unknown API key; `schedulemesh keys create` makes one",
    Denial.REVOKED: "the API key was revoked; `schedulemesh keys create` makes another one",
    Denial.EXPIRED: "the API key has expired; `schedulemesh keys create` makes another one",
}
_MESHS_WORDS = {denial: words.replace("smk_", "smm_").replace("API key", "mesh key") for denial, words in _WORDS.items()}

#: Only for the button in `/docs`; `asking` reads the header itself.
_scheme = HTTPBearer(auto_error=False, scheme_name="API key", description="An API key: `smk_<id>_<secret>`.")


async def asking(request: Request, ports: Ports, _shown: Annotated[object, Security(_scheme)] = None) -> Principal:
    """Return the holder of the request's API key.

    Raises:
        NotAuthenticated: The request has no valid key.
        RoleTooLow: The role of the key does not include the call.
        TooManyCalls: The key is over its call limit, or its address has sent too many wrong keys.
        StoreUnavailable: The key ring does not answer.
    """
    key = key_in(request.headers.get("authorization"))
    record = ports.known_keys.kept(key) if key is not None else None
    if record is not None and ports.limiter.is_use_noted(record.key, ports.clock.monotonic_ms()) and not is_recorded(call_of(request)):
        return _asking(request, ports, lambda _: record)  # The store is not asked, so the way to a thread would be most of the cost.
    return await run_in_threadpool(_asking, request, ports, ports.known_keys.find)


def _asking(request: Request, ports: Dependencies, lookup: Callable[[str], ApiKey | None]) -> Principal:
    now_ms = ports.clock.monotonic_ms()
    answer = authenticate(request.headers.get("authorization"), lookup, ports.clock.wall_ms())
    if isinstance(answer, Denied):
        ports.limiter.refuse(address_of(request), NotAuthenticated(_WORDS[answer.reason]), now_ms)
    try:
        ports.limiter.count_call(answer, now_ms)
    finally:
        request.state.rate = ports.limiter.calls_left(answer, now_ms)
    _note_use(answer.key, ports)
    note_change(request, ports, answer, address_of(request))
    check_role(answer, request.method, request.scope["route"].path_format)
    return answer


async def note_unread(request: Request) -> None:
    """Note a call that is refused before its route asks who calls, such as one whose body is no JSON, for the log of changes.

    Raises:
        NotAuthenticated, RoleTooLow, TooManyCalls, StoreUnavailable: As `asking`.
    """
    route = request.scope.get("route")
    if route is not None and not hasattr(request.state, "rate") and is_noted((request.method, route.path_format)):
        await asking(request, dependencies_of(request))


def _note_use(key: str, ports: Dependencies) -> None:
    """Record the use of a key, at most once a minute. A store that takes no writes refuses no call for it."""
    if ports.limiter.is_use_due(key, ports.clock.monotonic_ms()):
        with contextlib.suppress(StoreUnavailable):
            ports.keys.note_use(key, ports.clock.wall_ms())


def address_of(request: Request) -> str:
    """Return the client address of the request; several clients may share one."""
    return request.client.host if request.client is not None else ""


def asking_mesh(authorization: str | None, ports: Dependencies) -> MeshPrincipal:
    """Return the mesh whose key is in the `Authorization` header. Raises as `asking`."""
    answer = authenticate_mesh(authorization, ports.keys.find, ports.clock.wall_ms())
    if isinstance(answer, Denied):
        raise NotAuthenticated(_MESHS_WORDS[answer.reason])
    _note_use(answer.key, ports)
    return answer


#: Route parameter: the caller.
Asking = Annotated[Principal, Depends(asking)]


async def looking(request: Request, principal: Asking, ports: Ports) -> None:
    """Count a call of a route that reads the whole ledger. Raises TooManyCalls."""
    now_ms = ports.clock.monotonic_ms()
    try:
        ports.limiter.count_look(principal, now_ms)
    finally:
        request.state.rate = ports.limiter.looks_left(principal, now_ms)


async def operating(principal: Asking) -> Principal:
    """Return the holder of a key of all tenants.

    Raises:
        OutOfReach: The key belongs to a tenant.
    """
    if principal.tenant != EVERYBODY:
        raise OutOfReach("this needs an API key of all tenants; `schedulemesh keys create '*'` makes one")
    return principal


#: Route parameter: the caller, whose key must cover all tenants.
Operating = Annotated[Principal, Depends(operating)]


def reaches(principal: Principal, tenant: TenantPath) -> bool:
    """Return whether the key covers the tenant."""
    return covers(principal.tenant, tenant)


def tops(principal: Principal, snapshot: FederationSnapshot) -> tuple[TenantPath, ...]:
    """Return the path prefixes of all tenants that the key covers."""
    if principal.tenant != EVERYBODY:
        return (principal.tenant,)
    return snapshot.tree.first_names()


def summary_within(ports: Dependencies, principal: Principal, run: str) -> RunSummary:
    """Return the summary of the run.

    Raises:
        UnknownRun: There is no such run within reach.
        StoreUnavailable: The store does not answer.
    """
    found = ports.runs.summary(RunId(run))
    if found is None or not reaches(principal, found.tenant):
        raise UnknownRun(f"there is no run {run}; {_LISTED}")
    return found


def record_within(ports: Dependencies, principal: Principal, run: str) -> RunRecord:
    """Return the whole run. Raises as `summary_within`."""
    summary_within(ports, principal, run)
    record = ports.runs.load(RunId(run))
    if record is None:
        raise UnknownRun(f"there is no run {run}; {_LISTED}")
    return record
