"""`POST /v1/runs/{run_id}/signals/{name}`: gives a value to the nodes of a run that wait for the signal, now or later.

The first signal of a name counts. Sending it again is answered as the first time, so a client may repeat a call that got no answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from dag.errors import SignalConflict, SpecError, UnknownSignal
from dag.run.events import SignalSent
from dag.run.runs import RunRecord, SignalAnswer, graph_of
from dag.run.states import NODE_ENDS
from dag.spec.control import WaitSignal
from dag.spec.plans import controls_of, plans_of
from dag.spec.strict_json import read_with_doubles
from mesh.core.ids import NodeId
from mesh.core.near_names import nearest
from mesh.core.values import StoredValue, json_value
from serve_apps.requests.access import Asking, record_within
from serve_apps.requests.dependencies import Dependencies, Ports
from serve_apps.requests.errors import BodyTooLarge, MalformedBody
from serve_apps.requests.openapi import refused
from serve_apps.schemas.runs import SignalView

#: Largest value of a signal.
SIGNAL_BYTES_MAX = 64 * 1024
#: Value of a signal without a body.
TRUE = b"true"

router = APIRouter(prefix="/v1/runs", tags=["runs"])

_BODY: dict[str, Any] = {
    "requestBody": {
        "content": {"application/json": {"schema": {}}},
        "required": False,
        "description": "The value: any JSON; an empty body is `true`.",
    }
}


@router.post("/{run_id}/signals/{name}", status_code=HTTPStatus.ACCEPTED, openapi_extra=_BODY, responses=refused(404, 409))
async def send_signal(
    run_id: Annotated[str, Path(description="Id of the run.", max_length=200)],
    name: Annotated[str, Path(description="Name of the signal.", max_length=200)],
    request: Request,
    response: Response,
    ports: Ports,
    principal: Asking,
) -> SignalView:
    """Send a signal to a run. The status is 200 when the run has this signal with this value already."""
    data = _canonical(await request.body())
    record = await run_in_threadpool(record_within, ports, principal, run_id)
    view = await run_in_threadpool(_send, ports, record, name, data)
    if view.repeated:
        response.status_code = HTTPStatus.OK
    return view


def _canonical(body: bytes) -> bytes:
    if len(body) > SIGNAL_BYTES_MAX:
        raise BodyTooLarge(
            f"the value of a signal has {SIGNAL_BYTES_MAX >> 10} KiB at most; put large data into a file and send its address"
        )
    if not body.strip():
        return TRUE
    try:
        value, problems = read_with_doubles(body)
    except SpecError as wrong:
        raise MalformedBody(f"the body must be the signal's value as JSON, like true: {wrong}", wrong.problems) from None
    if problems:
        raise MalformedBody("the body must be the signal's value as JSON", problems)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _send(ports: Dependencies, record: RunRecord, name: str, data: bytes) -> SignalView:
    waiting = _waiting_for(record, name)
    value = json_value(data)
    answer = _answer_of_nodes(record, waiting, value) or ports.runs.send_signal(record.run, SignalSent(name=name, value=value), data)
    if answer is SignalAnswer.CONFLICT:
        raise SignalConflict(f"signal {name} was sent to run {record.run} with another value before; the first one counts")
    if answer is SignalAnswer.ENDED:
        raise SignalConflict(f"run {record.run} no longer waits for signal {name}: its nodes {', '.join(waiting)} have ended without it")
    return SignalView(id=record.run, signal=name, nodes=list(waiting), repeated=answer is SignalAnswer.REPEATED)


def _answer_of_nodes(record: RunRecord, waiting: Sequence[NodeId], value: StoredValue) -> SignalAnswer | None:
    """Return the answer that the nodes give; None: the store decides, since a node still lacks the signal."""
    nodes = [record.nodes[node] for node in waiting]
    before = {kept.stored.sha256 for kept in nodes if kept.stored is not None}
    if before - {value.sha256}:
        return SignalAnswer.CONFLICT
    if any(kept.stored is None and kept.state not in NODE_ENDS for kept in nodes):
        return None
    return SignalAnswer.REPEATED if before else SignalAnswer.ENDED


def _waiting_for(record: RunRecord, name: str) -> tuple[NodeId, ...]:
    """Return the nodes of the run that wait for the signal, at any time. Raises UnknownSignal if there are none."""
    controls = controls_of(plans_of(graph_of(record)))
    signals = {node: control.name for node, control in controls.items() if isinstance(control, WaitSignal)}
    found = tuple(node for node, signal in signals.items() if signal == name)
    if not found:
        known = sorted(set(signals.values()))
        words = f"it waits for {', '.join(known[:10])}" if known else "it waits for none"
        raise UnknownSignal(f"no node of run {record.run} waits for signal {name}{nearest(name, known)}; {words}")
    return found
