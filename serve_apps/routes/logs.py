"""`/v1/runs/{run}/logs`: what the nodes of a run have printed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from mesh.core.ids import RunId
from serve_apps.requests.access import Asking, record_within, summary_within
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Dependencies, Ports
from serve_apps.requests.openapi import refused
from serve_apps.routes.runs import PAGE_MAX, RunPath
from serve_apps.schemas.logs import LogsView
from serve_apps.services.log_stream import LogFilter, log_page, log_stream
from serve_apps.views.runs import check_node

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get(
    "/{run_id}/logs",
    response_model=LogsView,
    responses={200: {"content": {"text/event-stream": {}}}, **refused(404)},
)
async def show_logs(
    run_id: RunPath,
    request: Request,
    ports: Ports,
    principal: Asking,
    node: Annotated[str | None, Query(max_length=200, description="Only output of this node, or of all parts of this array.")] = None,
    attempt: Annotated[int | None, Query(ge=1, description="Only output of this attempt.")] = None,
    after: Annotated[int, Query(ge=0, description="Only entries with a greater number.")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX, description="At most this many entries.")] = 200,
    follow: Annotated[bool, Query(description="Stream until the run ends, as `Accept: text/event-stream` does.")] = False,
    last_event_id: Annotated[int | None, Header(ge=0, description="Same as `after`; readers send it when they reconnect.")] = None,
) -> Response:
    """Return what the nodes of a run have printed, in pages; or stream it until the run ends (`text/event-stream`)."""
    await run_in_threadpool(summary_within, ports, principal, run_id)
    run, start, asked = RunId(run_id), max(after, last_event_id or 0), LogFilter(node=node, attempt=attempt)
    if follow or "text/event-stream" in request.headers.get("accept", ""):
        await run_in_threadpool(_check_named, ports, principal, run, node)
        unbuffered = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(log_stream(ports, run, start, asked), media_type="text/event-stream", headers=unbuffered)
    page = await run_in_threadpool(log_page, ports, run, start, limit, asked)
    if not page.entries:
        await run_in_threadpool(_check_named, ports, principal, run, node)
    return Response(page.model_dump_json(), media_type="application/json")


def _check_named(ports: Dependencies, principal: Principal, run: RunId, node: str | None) -> None:
    """Check that the run has the node, if one is named. Raises UnknownNode."""
    if node is not None:
        check_node(record_within(ports, principal, run), node)
