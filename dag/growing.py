"""Reads the nodes that functions have returned, before the run machine adds them to the graph of their run.

The bytes lie beside the run, or in a file. They are checked as a submission is, for the same tenant, and what they name is stored. A
refusal becomes a failure of the node. Bytes that are gone are a lost attempt: the node runs again. Safe to repeat.

Source: ADR 0064.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from dag.errors import SpecError
from dag.run.events import NodeGrown
from dag.run.machine import RunInput
from dag.run.runs import RunRecord
from dag.spec.growth import GROWTH_LIMITS, graph_returned, growth_of
from dag.spec.spec import DagSpec
from federation.blobs import BlobStore
from mesh.core.ids import RunId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.errors import RuntimeAdapterError
from mesh.stages.messages import Failure, NodeFailed, NodeGrew

#: Problems of a refused graph that a failure lists; more are counted.
_PROBLEMS_SHOWN = 10

Problems = tuple[tuple[str, str], ...]


def read_growths(
    events: Iterable[RunInput],
    record: RunRecord,
    blobs: BlobStore,
    fetch: Callable[[RunId, StoredValue], bytes],
    refused: Callable[[DagSpec], Problems],
) -> Iterator[RunInput]:
    """Yield the events, those about returned nodes with what was read.

    Args:
        fetch: Returns the verified bytes of a value in a file; raises RuntimeAdapterError.
        refused: Returns what the run's tenant may not run or ask for, as (place, problem).

    Raises:
        StoreUnavailable: Nothing is lost; call again.
    """
    for event in events:
        yield _read(event, record, blobs, fetch, refused) if isinstance(event, NodeGrew) else event


def _read(
    grew: NodeGrew,
    record: RunRecord,
    blobs: BlobStore,
    fetch: Callable[[RunId, StoredValue], bytes],
    refused: Callable[[DagSpec], Problems],
) -> NodeGrown | NodeFailed:
    try:
        GROWTH_LIMITS.check_size(grew.graph.size_bytes)
        data = _bytes_of(grew.graph, record.run, blobs, fetch)
        spec = graph_returned(data, grew.node, grew.attempt)
        problems = refused(spec)
    except SpecError as wrong:
        return _refused(grew, wrong.problems)
    except RuntimeAdapterError as gone:
        return _failed(grew, Reason.VALUE_LOST, "schedulemesh.WorkLost", f"the nodes that {grew.node} returned are lost: {gone}")
    if problems:
        return _refused(grew, problems)
    for sha256, blob in spec.blob_bytes().items():
        blobs.put(record.run, sha256, blob)
    return NodeGrown(
        stage=grew.stage,
        node=grew.node,
        attempt=grew.attempt,
        started_ms=grew.started_ms,
        finished_ms=grew.finished_ms,
        growth=growth_of(grew.node, spec, len(data), record.growths),
        graph=grew.graph,
    )


def _bytes_of(graph: StoredValue, run: RunId, blobs: BlobStore, fetch: Callable[[RunId, StoredValue], bytes]) -> bytes:
    """Return the bytes. Raises RuntimeAdapterError if they are gone or altered."""
    if graph.uri is not None:
        return fetch(run, graph)
    data = blobs.get(run, (graph.sha256,)).get(graph.sha256)
    if data is None or hashlib.sha256(data).hexdigest() != graph.sha256:
        raise RuntimeAdapterError(f"the store has no bytes {graph.sha256[:16]} of run {run}")
    return data


def _failed(grew: NodeGrew, reason: Reason, type_name: str, message: str) -> NodeFailed:
    return NodeFailed(
        stage=grew.stage,
        node=grew.node,
        attempt=grew.attempt,
        started_ms=grew.started_ms,
        finished_ms=grew.finished_ms,
        failure=Failure(reason=reason, type_name=type_name, message=message),
    )


def _refused(grew: NodeGrew, problems: Problems) -> NodeFailed:
    shown = [f"{place}: {problem}" if place else problem for place, problem in problems[:_PROBLEMS_SHOWN]]
    left_out = len(problems) - len(shown)
    words = f"{grew.node} returned nodes that cannot be added: " + "; ".join([*shown, *([f"and {left_out} more"] if left_out else [])])
    return _failed(grew, Reason.GROWTH_REFUSED, "schedulemesh.GrowthRefused", words)
