"""`/v1/runs/{run}/graph`, `/timeline` and `/nodes/{node}`: a run as a page draws it."""

from __future__ import annotations

import gzip

from fastapi import APIRouter, Request, Response

from serve_apps.requests.access import Asking, record_within
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.routes.runs import RunPath
from serve_apps.schemas.graphs import GraphView, TimelineView
from serve_apps.schemas.nodes import NodeView
from serve_apps.views.graphs import graph_view, timeline_view
from serve_apps.views.run_graphs import graph_of
from serve_apps.views.runs import node_view

#: Smaller bodies are sent as they are; bytes.
GZIP_BYTES_MIN = 4_096
#: Columns of numbers shrink at the fastest level to a fifth.
GZIP_LEVEL = 1

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/{run_id}/graph", response_model=GraphView, responses=refused(404))
def show_graph(run_id: RunPath, request: Request, ports: Ports, principal: Asking) -> Response:
    """Return all nodes of a run and the edges between them, as columns."""
    record = record_within(ports, principal, run_id)
    return _answer(request, graph_view(record, graph_of(record)))


@router.get("/{run_id}/timeline", response_model=TimelineView, responses=refused(404))
def show_timeline(run_id: RunPath, request: Request, ports: Ports, principal: Asking) -> Response:
    """Return when each attempt of each node ran and where, as columns."""
    return _answer(request, timeline_view(record_within(ports, principal, run_id), ports.clock.wall_ms()))


@router.get("/{run_id}/nodes/{node}", responses=refused(404))
def show_node(run_id: RunPath, node: str, ports: Ports, principal: Asking) -> NodeView:
    """Show one node of a run with its attempts."""
    return node_view(record_within(ports, principal, run_id), node)


def _answer(request: Request, view: GraphView | TimelineView) -> Response:
    """Return the view without a second validation, compressed for callers that read it so."""
    body, headers = view.model_dump_json().encode(), {"Vary": "Accept-Encoding"}
    if len(body) >= GZIP_BYTES_MIN and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers = gzip.compress(body, GZIP_LEVEL), {**headers, "Content-Encoding": "gzip"}
    return Response(body, media_type="application/json", headers=headers)
