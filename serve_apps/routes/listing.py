"""`/v1/runs` as a list, `/v1/events` for changes of all runs, and `/v1/whoami`: what a key reaches."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from dag.run.runs import RunPlace
from dag.run.states import RunState
from dag.spec.run_labels import labels_of_texts
from dag.store.rows import reach_of
from federation.api_keys import EVERYBODY
from mesh.core.ids import TenantPath
from serve_apps.requests.access import Asking, reaches, tops
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.requests.roles import permissions_of
from serve_apps.routes.runs import Limit
from serve_apps.schemas.callers import CallerView
from serve_apps.schemas.events import RunChangesView
from serve_apps.schemas.moments import QueriedTime
from serve_apps.schemas.runs import RunsView
from serve_apps.services.change_stream import change_stream, changes_now
from serve_apps.services.run_listing import RunFilter, run_page
from serve_apps.services.stopping import check_covered, check_reach, paths_in
from serve_apps.views.runs import run_line

#: Most characters of a text that runs are searched for.
TEXT_MAX = 200
MARK = r"^\d{1,16}-\d{1,16}$"

TenantQuery = Annotated[
    str | None, Query(description="Only runs of this tenant and the tenants below it. Default: all that the key covers.")
]

router = APIRouter(prefix="/v1", tags=["runs"])


@router.get("/runs", responses=refused(403))
def list_runs(
    ports: Ports,
    principal: Asking,
    tenant: TenantQuery = None,
    user: Annotated[str | None, Query(max_length=TEXT_MAX, description="Only runs of this user.")] = None,
    state: Annotated[list[RunState] | None, Query(description="Only runs in this state, as shown. Repeatable: in one of them.")] = None,
    text: Annotated[
        str, Query(max_length=TEXT_MAX, description="Only runs with this text in their id, user, labels or detail, in any case.")
    ] = "",
    label: Annotated[
        list[str] | None, Query(description="Only runs with this label, like `team=ads`. Repeatable: only runs with all of them.")
    ] = None,
    mesh: Annotated[str | None, Query(max_length=TEXT_MAX, description="Only runs that have had a stage on this mesh.")] = None,
    since: Annotated[
        QueriedTime | None, Query(description="Only runs submitted at this time or later, like `2026-01-31T09:00:00Z`.")
    ] = None,
    until: Annotated[QueriedTime | None, Query(description="Only runs submitted before this time.")] = None,
    cursor: Annotated[str | None, Query(max_length=300, description="`next` of the previous page.")] = None,
    limit: Limit = 50,
) -> RunsView:
    """List runs, newest first, in pages. A page may be short, even empty, while `next` leads on: a request looks at 5 000 runs at most."""
    asked = (TenantPath(tenant),) if tenant is not None else tops(principal, ports.shown())
    wanted = RunFilter(
        states=frozenset(state or ()),
        user=user,
        mesh=mesh,
        text=text,
        labels=_labels(label or []),
        since_ms=since or 0,
    )
    if tenant is not None:
        check_covered(principal, asked[0])
    below = [place for place in (_place_of(cursor), RunPlace(until, "") if until is not None else None) if place is not None]
    page = run_page(ports, asked, wanted, min(below, default=None), limit)
    if tenant is not None and not page.runs:
        check_reach(principal, asked[0], paths_in(ports.shown().tree))
    return RunsView(runs=[run_line(run) for run in page.runs], next=_cursor_of(page.last) if page.last is not None else None)


@router.get(
    "/events",
    response_model=RunChangesView,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **refused(403)},
)
async def follow_runs(
    request: Request,
    ports: Ports,
    principal: Asking,
    tenant: TenantQuery = None,
    after: Annotated[str | None, Query(pattern=MARK, description="`next` of an earlier response. Default: changes from now on.")] = None,
    last_event_id: Annotated[
        str | None, Header(pattern=MARK, description="Same as `after`, and before it; readers send it when they reconnect.")
    ] = None,
) -> Response:
    """Return the runs that have changed since `after`; with `Accept: text/event-stream` stream changes of all runs as they come."""
    if tenant is not None:
        snapshot = await run_in_threadpool(ports.shown)
        check_reach(principal, TenantPath(tenant), paths_in(snapshot.tree))
    is_within, start = partial(_is_within, principal, tenant), last_event_id or after
    if "text/event-stream" in request.headers.get("accept", ""):
        unbuffered = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(change_stream(ports, start, is_within), media_type="text/event-stream", headers=unbuffered)
    view = await changes_now(ports, start, is_within)
    return Response(view.model_dump_json(), media_type="application/json")


@router.get("/whoami")
async def show_caller(principal: Asking) -> CallerView:
    """Show whose key the request has, and what the key may do."""
    return CallerView(
        key=principal.key,
        tenant=principal.tenant,
        user=principal.user,
        operator=principal.tenant == EVERYBODY,
        role=principal.role,
        expires_ms=principal.expires_ms,
        permissions=permissions_of(principal),
    )


def _is_within(principal: Principal, tenant: str | None, of: TenantPath) -> bool:
    return reaches(principal, of) and (tenant is None or tenant in reach_of(of))


def _labels(asked: list[str]) -> dict[str, str]:
    """Return the labels that are asked for. Raises RequestValidationError."""
    try:
        return labels_of_texts(asked)
    except ValueError as wrong:
        raise RequestValidationError([{"loc": ("query", "label"), "msg": str(wrong)}]) from None


def _cursor_of(place: RunPlace) -> str:
    return f"{place.created_ms}.{place.run}"


def _place_of(cursor: str | None) -> RunPlace | None:
    """Return the place that a cursor names. Raises RequestValidationError."""
    if cursor is None:
        return None
    created_ms, dot, run = cursor.partition(".")
    if not dot or not created_ms.isdecimal() or not created_ms.isascii() or len(created_ms) > len(str(1 << 53)):
        raise RequestValidationError([{"loc": ("query", "cursor"), "msg": "the cursor is not `next` of an earlier page"}])
    return RunPlace(int(created_ms), run)
