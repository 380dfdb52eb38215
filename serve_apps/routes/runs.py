"""`/v1/runs`: submit, show, follow, fetch, cancel, resume.

`result` of a run that ended without a result is 409: the request is right, but the run's state has no result. The body
lists the failures and separates `run_failed` from `run_cancelled`.
"""

from __future__ import annotations

import time
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import AfterValidator, ValidationError
from starlette.concurrency import run_in_threadpool

from dag import removing
from dag.errors import UnknownRun
from dag.resuming import resume
from dag.run.runs import RunRecord, RunSummary
from dag.run.states import RUN_ENDS, NodeState, RunState
from dag.spec.columns import MEDIA_TYPE
from federation.durability import Durability
from mesh.core.ids import RunId
from mesh.core.printable import check_printable
from mesh.core.values import Encoding
from mesh.ray.worker.exporting import belongs, clear_folder
from serve_apps.requests.access import Asking, record_within, summary_within
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Dependencies, Ports
from serve_apps.requests.errors import HttpMeaning, MalformedBody, NotJson, ValueNotThere, problem_body, problem_response
from serve_apps.requests.middleware import request_id_of
from serve_apps.requests.openapi import refused
from serve_apps.schemas.events import EventsView
from serve_apps.schemas.nodes import ElementsView, NodesView
from serve_apps.schemas.results import NoResultView, ResultView
from serve_apps.schemas.runs import CancelRequest, ResumeRequest, RunLine, RunView, SubmittedView
from serve_apps.services.event_stream import event_stream, wait_for_end
from serve_apps.services.result_values import open_value, read_small
from serve_apps.services.run_outputs import output_view, outputs_of, stored_of
from serve_apps.services.submission import Submission, accept
from serve_apps.snapshot_cache.waits import with_reasons
from serve_apps.views.runs import elements_view, event_view, failures_of, nodes_view, run_line, run_view, skipped_of

#: Longest wait for `result` in one request; a client asks again.
WAIT_S_MAX = 60.0
PAGE_MAX = 1_000

RunPath = Annotated[str, Path(description="Id of the run.", max_length=200)]
WaitS = Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="Wait up to this many seconds for the end of the run.")]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="At most this many.")]

router = APIRouter(prefix="/v1/runs", tags=["runs"])

_JSON_BODY: dict[str, Any] = {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}
SPEC_BODY = {
    "requestBody": {
        "content": {**_JSON_BODY["content"], MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        "required": True,
        "description": "A graph: `dag/1` as JSON, or the same graph as columns in msgpack, as the Python client sends it.",
    }
}
Asked = TypeVar("Asked", CancelRequest, ResumeRequest)
_REASON_BODY = {"requestBody": {**_JSON_BODY, "required": False, "description": '`{"reason": "…"}`, or empty.'}}
_CANCEL_BODY = {
    "requestBody": {**_JSON_BODY, "required": False, "description": '`{"reason": "…", "cleanup": false}`, each optional, or empty.'}
}


@router.post(
    "",
    status_code=HTTPStatus.ACCEPTED,
    openapi_extra=SPEC_BODY,
    responses={
        200: {
            "model": SubmittedView,
            "description": "An earlier request submitted the same graph under this id; the response is that run.",
        },
        **refused(403, 409, 415),
    },
)
async def submit_run(
    request: Request,
    response: Response,
    ports: Ports,
    principal: Asking,
    idempotency_key: Annotated[
        Annotated[str, AfterValidator(check_printable)] | None,
        Header(
            min_length=1,
            max_length=200,
            description="Makes repeats of this submission return the same run; becomes the run's id if the spec has none.",
        ),
    ] = None,
    durability: Annotated[
        Durability | None,
        Query(description="Required durability level; refused if the store cannot provide it. Default: the root's level."),
    ] = None,
    traceparent: Annotated[
        str | None,
        Header(
            description="Span of the caller, as W3C Trace Context writes it: the run becomes part of its trace. A wrong value is ignored."
        ),
    ] = None,
) -> SubmittedView:
    """Submit a graph. The same graph with the same id or key is the same run, so a request may be repeated."""
    is_columns = expects_columns(request)
    submission = Submission(
        body=await request.body(),
        is_columns=is_columns,
        idempotency_key=idempotency_key,
        durability=durability,
        traceparent=traceparent,
    )
    view = await run_in_threadpool(accept, ports, principal, submission)
    if not view.created:
        response.status_code = HTTPStatus.OK
    response.headers["Location"] = f"/v1/runs/{quote(view.id, safe='')}"
    return view


@router.get("/{run_id}", responses=refused(404))
def show_run(run_id: RunPath, ports: Ports, principal: Asking) -> RunView:
    """Show a run: its stages and their meshes, why stages wait, and failures."""
    record = record_within(ports, principal, run_id)
    return run_view(record, [output.name for output in outputs_of(record)], ports.waits, ports.clock.wall_ms())


@router.get("/{run_id}/summary", responses=refused(404))
async def summarize_run(run_id: RunPath, ports: Ports, principal: Asking, wait_s: WaitS = 0) -> RunLine:
    """Summarize a run. Cheap for runs of any size."""
    return run_line(await _summary_after(ports, principal, run_id, wait_s))


@router.get("/{run_id}/nodes", responses=refused(404))
def list_nodes(
    run_id: RunPath,
    ports: Ports,
    principal: Asking,
    state: Annotated[NodeState | None, Query(description="Only nodes in this state.")] = None,
    after: Annotated[str, Query(description="Only nodes after this id: `next` of the previous page.")] = "",
    limit: Limit = 100,
) -> NodesView:
    """List the nodes of a run by id, in pages."""
    return nodes_view(record_within(ports, principal, run_id), state, after, limit)


@router.get("/{run_id}/nodes/{node}/elements", responses=refused(404))
def list_elements(
    run_id: RunPath,
    node: str,
    ports: Ports,
    principal: Asking,
    state: Annotated[NodeState | None, Query(description="Only elements in this state.")] = None,
    after: Annotated[int, Query(ge=-1, description="Only elements after this index: `next` of the previous page.")] = -1,
    limit: Limit = 100,
) -> ElementsView:
    """List the elements of an array by index, in pages."""
    return elements_view(record_within(ports, principal, run_id), node, state, after, limit)


@router.get(
    "/{run_id}/events",
    response_model=EventsView,
    responses={200: {"content": {"text/event-stream": {}}}, **refused(404)},
)
async def follow_run(
    run_id: RunPath,
    request: Request,
    ports: Ports,
    principal: Asking,
    after: Annotated[int, Query(ge=0, description="Only events with a greater number.")] = 0,
    limit: Limit = PAGE_MAX,
    last_event_id: Annotated[int | None, Header(ge=0, description="Same as `after`; readers send it when they reconnect.")] = None,
) -> Response:
    """Stream the events of a run until it ends (`text/event-stream`); with `Accept: application/json` return them as a list."""
    await run_in_threadpool(summary_within, ports, principal, run_id)
    run, start = RunId(run_id), max(after, last_event_id or 0)
    accepted = request.headers.get("accept", "")
    if "application/json" in accepted and "text/event-stream" not in accepted:
        events = [event_view(event) for event in await run_in_threadpool(ports.runs.events, run, start, limit)]
        return JSONResponse(EventsView(events=events, next=events[-1].seq if events else start).model_dump())
    unbuffered = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(event_stream(ports.feed, run, start), media_type="text/event-stream", headers=unbuffered)


@router.get(
    "/{run_id}/result",
    response_model=ResultView,
    responses={202: {"model": RunLine, "description": "The run has not ended."}, **refused(404), 409: {"model": NoResultView}},
)
async def fetch_result(
    run_id: RunPath,
    request: Request,
    ports: Ports,
    principal: Asking,
    wait_s: WaitS = 0,
) -> Response:
    """Return the outputs of a run that succeeded: 202 until the run ends, 409 if it ended without a result."""
    summary = await run_in_threadpool(_summary_now, ports, principal, run_id)
    is_over = summary.state in RUN_ENDS or (wait_s > 0 and await wait_for_end(ports.feed, RunId(run_id), wait_s))
    if not is_over:
        shown = await run_in_threadpool(_summary_now, ports, principal, run_id) if wait_s else summary
        return _answer(run_line(shown), HTTPStatus.ACCEPTED)
    return await run_in_threadpool(_ended_answer, ports, RunId(run_id), request_id_of(request.scope))


@router.get(
    "/{run_id}/result/{output}",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}}, **refused(404)},
)
def fetch_output(run_id: RunPath, output: str, ports: Ports, principal: Asking) -> Response:
    """Return all bytes of one output's value. `X-Content-SHA256` is their hash, and a complete response has been checked against it."""
    record = record_within(ports, principal, run_id)
    found = next((named for named in outputs_of(record) if named.name == output), None)
    if found is None:
        raise ValueNotThere(f"run {run_id} has no output {output}")
    stored = stored_of(record, found)
    if stored.uri is not None and not belongs(stored.uri, record.run, ports.storage_url):
        raise ValueNotThere(f"the value of output {output} is not in the value storage")
    is_json = stored.encoding is Encoding.JSON
    return StreamingResponse(
        open_value(ports.blobs, record.run, stored),
        media_type="application/json" if is_json else "application/octet-stream",
        headers={"Content-Length": str(stored.size_bytes), "X-Content-SHA256": stored.sha256, "X-Value-Encoding": stored.encoding.value},
    )


@router.post("/{run_id}/cancel", status_code=HTTPStatus.ACCEPTED, openapi_extra=_CANCEL_BODY, responses=refused(404))
async def cancel_run(run_id: RunPath, request: Request, ports: Ports, principal: Asking) -> RunLine:
    """Cancel a run and stop its running tasks, with `"cleanup": false` its cleanup too. Does nothing if the run has ended."""
    asked = _asked_in(CancelRequest, await request.body())
    return await run_in_threadpool(_cancel, ports, principal, run_id, asked)


@router.post("/{run_id}/resume", status_code=HTTPStatus.ACCEPTED, openapi_extra=_REASON_BODY, responses=refused(404, 409))
async def resume_run(run_id: RunPath, request: Request, ports: Ports, principal: Asking) -> RunLine:
    """Resume a run that has failed or was cancelled: it runs again what has not succeeded. Does nothing if it was resumed and goes on."""
    asked = _asked_in(ResumeRequest, await request.body())
    return await run_in_threadpool(_resume, ports, principal, run_id, asked.reason)


@router.delete("/{run_id}", status_code=HTTPStatus.NO_CONTENT, responses=refused(404, 409))
def remove_run(run_id: RunPath, ports: Ports, principal: Asking) -> None:
    """Remove a run that has ended, with its outputs, events, logs and dead letters."""
    summary_within(ports, principal, run_id)
    removing.remove_run(ports.runs, ports.queue, RunId(run_id), partial(_clear, ports.storage_url))
    ports.accepted.drop(RunId(run_id))


def _clear(storage_url: str, run: RunId) -> None:
    if storage_url:
        clear_folder(storage_url, run, frozenset())


def _asked_in(kind: type[Asked], body: bytes) -> Asked:
    """Return the request in a body, which may be empty. Raises MalformedBody."""
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as wrong:
        problems = tuple(("/" + "/".join(map(str, error["loc"])), error["msg"]) for error in wrong.errors(include_url=False))
        raise MalformedBody('the body must be like {"reason": "…"}', problems) from None


async def _summary_after(ports: Dependencies, principal: Principal, run_id: str, wait_s: float) -> RunSummary:
    """Return the summary once the run has ended or `wait_s` seconds have passed."""
    summary = await run_in_threadpool(_summary_now, ports, principal, run_id)
    if summary.state in RUN_ENDS or wait_s == 0:
        return summary
    await wait_for_end(ports.feed, RunId(run_id), wait_s)
    return await run_in_threadpool(_summary_now, ports, principal, run_id)


def _summary_now(ports: Dependencies, principal: Principal, run_id: str) -> RunSummary:
    """Return the summary with the reason that holds now."""
    (summary,) = with_reasons([summary_within(ports, principal, run_id)], ports.waits)
    return summary


def _cancel(ports: Dependencies, principal: Principal, run_id: str, asked: CancelRequest) -> RunLine:
    summary_within(ports, principal, run_id)
    ports.runs.request_cancel(RunId(run_id), asked.reason or "requested over HTTP", also_cleanup=not asked.cleanup)
    return run_line(summary_within(ports, principal, run_id))


def _resume(ports: Dependencies, principal: Principal, run_id: str, reason: str) -> RunLine:
    summary_within(ports, principal, run_id)
    resume(ports.runs, ports.blobs, RunId(run_id), ports.clock, time.sleep, reason=reason)
    return run_line(summary_within(ports, principal, run_id))


def _ended_answer(ports: Dependencies, run: RunId, request_id: str) -> Response:
    """Return the result of an ended run, which the caller may see."""
    record = ports.runs.load(run)
    if record is None:
        raise UnknownRun(f"run {run} was retired meanwhile")
    if record.state not in RUN_ENDS and (summary := ports.runs.summary(run)) is not None:
        return _answer(run_line(summary), HTTPStatus.ACCEPTED)  # It was resumed meanwhile.
    if record.state is not RunState.SUCCEEDED:
        return problem_response(_no_result(ports, record, request_id))
    listed = outputs_of(record)
    skipped = [output.name for output in listed if (kept := record.nodes.get(output.node)) and kept.state is NodeState.SKIPPED]
    outputs = [output for output in listed if output.name not in skipped]
    small = read_small(ports.blobs, record.run, [stored_of(record, output) for output in outputs])
    views = {output.name: output_view(record, output, small) for output in outputs}
    return _answer(ResultView(id=record.run, state=record.state.value, outputs=views, skipped=skipped), HTTPStatus.OK)


def _no_result(ports: Dependencies, record: RunRecord, request_id: str) -> NoResultView:
    exceptions = [
        rare.failure.pickled for rare in record.nodes.rare.values() if rare.failure is not None and rare.failure.pickled is not None
    ]
    is_failed = record.state is RunState.FAILED
    code, words = ("run_failed", "the run failed") if is_failed else ("run_cancelled", "the run was cancelled")
    problem = problem_body(HttpMeaning(HTTPStatus.CONFLICT, code), f"{words}: {record.detail}" if record.detail else words, request_id)
    return NoResultView(
        **dict(problem),
        id=record.run,
        state=record.state.value,
        reason=record.reason.value if record.reason is not None else None,
        run_detail=record.detail,
        failures=failures_of(record, read_small(ports.blobs, record.run, exceptions)),
        skipped=skipped_of(record),
    )


def _answer(view: ResultView | RunLine, status: HTTPStatus) -> Response:
    """Return the view without a second validation, because this process built it."""
    return Response(view.model_dump_json(), status_code=status, media_type="application/json")


def expects_columns(request: Request) -> bool:
    """Return whether the body is a graph as columns, by its content type; otherwise it is JSON. A body without a type counts as JSON.

    Raises:
        NotJson: The content type is another one.
    """
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == MEDIA_TYPE:
        return True
    if kind != "application/json" and not kind.endswith("+json"):
        raise NotJson(f"the body is {kind}; send JSON with the header `Content-Type: application/json`")
    return False
