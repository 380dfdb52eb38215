"""Views of runs, from their records. Pure."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from dag.errors import UnknownArray, UnknownNode
from dag.progress.estimate import estimated_end_ms
from dag.run.array_states import ArrayCounts, ArrayElements, arrays_in, shown_counts, shown_name, shown_rows, shown_state_of
from dag.run.node_facts import KeptCheckpoint, PastAttempt, Words
from dag.run.node_table import NodeRecord, NodeTable
from dag.run.run_events import RunEvent
from dag.run.run_status import shown_state
from dag.run.runs import RunRecord, RunSummary, StageRecord
from dag.run.states import NodeState, RunState, StageState
from dag.spec.control import as_json, is_control
from dag.spec.spec import DagSpec
from mesh.core.ids import MeshId, NodeId
from mesh.core.near_names import nearest
from mesh.core.reasons import Reason
from mesh.stages.arrays import is_part
from mesh.stages.messages import Failure
from serve_apps.schemas.events import EventView
from serve_apps.schemas.nodes import AttemptView, ElementsView, ElementView, NodesView, NodeView
from serve_apps.schemas.runs import (
    ArrayView,
    BlockedView,
    CheckpointView,
    FailureView,
    MeshShare,
    ProgressView,
    RunLine,
    RunView,
    SkippedView,
    StageView,
)
from serve_apps.snapshot_cache.waits import Waits, is_reason_partial, is_run_reason_partial
from serve_apps.views.run_graphs import calls_of, graph_of
from serve_apps.views.run_progress import group_views

#: Most nodes in a list within the view of a run.
LISTED_MAX = 1_000
#: Most running nodes whose progress the view of a run has.
PROGRESS_NAMED = 20
#: Most arrays that the view of a run has.
ARRAYS_NAMED = 50
#: Most blocked nodes named per reason.
BLOCKED_NAMED = 5
#: Reasons for which the root lets nodes wait.
_WAITS_AT_ROOT = (Reason.SLEEPING, Reason.WAITING_FOR_SIGNAL, Reason.CACHE_IN_FLIGHT)


def run_line(summary: RunSummary) -> RunLine:
    return RunLine(**_line_of(summary))


def run_view(record: RunRecord, outputs: Iterable[str], look: Callable[[], Waits], now_ms: int) -> RunView:
    """Return the run with its stages.

    Args:
        now_ms: Time since the epoch, for the estimate of the end.
        look: Returns why queued stages wait; called only if it may say more than the record.
    """
    line = RunSummary(
        run=record.run,
        tenant=record.tenant,
        state=shown_state(record),
        created_ms=record.created_ms,
        ended_ms=record.ended_ms,
        reason=record.reason,
        detail=record.detail,
        counts=_by_name(shown_counts(record.nodes)),
        user=record.user,
        labels=record.labels,
        meshes=tuple(sorted({stage.mesh for stage in record.stages.values()})),
    )
    stages = list(record.stages.values())
    if is_run_reason_partial(line) or any(map(is_reason_partial, stages)):
        waits = look()
        line, stages = waits.line(line), [waits.stage(stage) for stage in stages]
    by_stage = record.nodes.counts_by(lambda place: place.stage)
    arrays = _arrays_of(record)
    return RunView(
        **_line_of(line),
        estimated_end_ms=estimated_end_ms(record, calls_of(record), now_ms) or 0 if record.state is RunState.RUNNING else 0,
        outputs=list(outputs),
        stages=[_stage_view(stage, _by_name(by_stage.get(stage.stage, {}))) for stage in stages],
        blocked=blocked_of(blocked_in(record)),
        waiting=blocked_of(waiting_in(record)),
        meshes=_mesh_shares(record),
        arrays=list(map(array_view, arrays)),
        groups=group_views(record, arrays),
        progress=progress_of(record),
        failures=failures_of(record),
        skipped=skipped_of(record),
        trace_id=record.trace.trace_id,
    )


def failures_of(record: RunRecord, pickled: Mapping[str, bytes] | None = None) -> list[FailureView]:
    """Return the nodes that failed for good, earliest first, with their exceptions if the bytes (by SHA-256) are given."""
    failed = [node for node in record.nodes.among(NodeState.FAILED) if node.failure is not None]
    failed.sort(key=lambda node: (node.finished_ms, node.node))
    return [_failure_view(node, node.failure, pickled or {}) for node in failed if node.failure is not None]


def skipped_of(record: RunRecord) -> list[SkippedView]:
    """Return the first nodes that did not run because another node failed."""
    nodes = record.nodes
    skipped = [
        node for node in nodes.among(NodeState.SKIPPED) if not is_part(node.node) and shown_state_of(nodes, node.row) is NodeState.SKIPPED
    ]
    skipped.sort(key=lambda node: node.node)
    return [SkippedView(node=node.node, roots=_shown_roots(node)) for node in skipped[:LISTED_MAX]]


def _shown_roots(node: NodeRecord) -> list[str]:
    """Return the failed nodes that caused the node's state, arrays in place of their parts."""
    return list(dict.fromkeys(shown_name(root) for root in node.roots if shown_name(root) != node.node))


def arrays_of(record: RunRecord) -> list[ArrayView]:
    """Return the first arrays with their elements by state."""
    return list(map(array_view, _arrays_of(record)))


def _arrays_of(record: RunRecord) -> list[ArrayCounts]:
    if not record.nodes.arrays():
        return []
    spec = graph_of(record)
    return [ArrayElements(record.nodes, spec, array).counts() for array in arrays_in(record.nodes, spec)[:ARRAYS_NAMED]]


def array_view(counts: ArrayCounts) -> ArrayView:
    """Return the elements of an array by state."""
    return ArrayView(
        node=counts.node,
        state=counts.state.value,
        elements=counts.elements,
        parts=counts.parts,
        counts=_by_name(counts.counts),
        failed=counts.failed,
    )


def elements_view(record: RunRecord, node: str, state: NodeState | None, after: int, limit: int) -> ElementsView:
    """Return a page of the elements of an array: those after `after`, in one state or all.

    Raises:
        UnknownArray: The run has no such array.
    """
    name, spec = NodeId(node), graph_of(record)
    if name not in arrays_in(record.nodes, spec):
        arrays = ", ".join(arrays_in(record.nodes, spec)[:ARRAYS_NAMED]) or "none of its nodes is one"
        raise UnknownArray(f"run {record.run} has no array {node}; its arrays: {arrays}")
    elements = ArrayElements(record.nodes, spec, name)
    found = elements.page(state, after, limit + 1)
    page = found[:limit]
    return ElementsView(
        array=array_view(elements.counts()),
        elements=[
            ElementView(index=one.index, state=one.state.value, attempt=one.attempt, type=one.type_name, message=one.message)
            for one in page
        ],
        next=page[-1].index if len(found) > limit else None,
    )


def nodes_view(record: RunRecord, state: NodeState | None, after: str, limit: int) -> NodesView:
    """Return a page of nodes by id: those after `after`, in one state or all."""
    nodes = record.nodes
    if nodes.arrays():
        names = [nodes.names[row] for row, shown in shown_rows(nodes) if state in (None, shown)]
    else:
        names = list(nodes.names) if state is None else [node.node for node in nodes.among(state)]
    found = sorted(name for name in names if name > after)
    page = found[:limit]
    return NodesView(nodes=_node_views(record, page), next=page[-1] if len(found) > limit else None)


def node_view(record: RunRecord, node: str) -> NodeView:
    """Return one node.

    Raises:
        UnknownNode: The run has no such node.
    """
    if is_part(node):
        raise _unknown_node(record, node)
    check_node(record, node)
    return _node_views(record, [NodeId(node)])[0]


def check_node(record: RunRecord, node: str) -> None:
    """Check that the run has the node, or the part of an array. Raises UnknownNode, which suggests a similar name."""
    if NodeId(node) not in record.nodes:
        raise _unknown_node(record, node)


def _unknown_node(record: RunRecord, node: str) -> UnknownNode:
    shown = (name for name in record.nodes.names if not is_part(name))
    return UnknownNode(f"run {record.run} has no node {node}{nearest(node, list(islice(shown, LISTED_MAX)))}")


def _node_views(record: RunRecord, names: list[NodeId]) -> list[NodeView]:
    nodes = record.nodes
    spec = graph_of(record) if names else None
    if spec is None:
        return []
    needs = {name: [need for needs in spec.needs_of(name) for need in needs] for name in names}
    views = [_node_view(nodes[name], needs[name], _control_of(spec, name)) for name in names]
    return [_with_parts(view, nodes, spec) for view in views] if nodes.arrays() else views


def _with_parts(view: NodeView, nodes: NodeTable, spec: DagSpec) -> NodeView:
    """Return the view of a node with what its parts say, if it is an array or a reduction."""
    row = nodes.row(NodeId(view.node))
    rows = nodes.arrays().get(row)
    if rows is None:
        return view
    parts = [nodes.at(part) for part in rows.tolist()]
    failed = next((part for part in parts if part.state is NodeState.FAILED and part.failure is not None), None)
    begun = [part.started_ms for part in parts if part.started_ms]
    is_array = NodeId(view.node) in arrays_in(nodes, spec)
    return view.model_copy(
        update={
            "state": shown_state_of(nodes, row).value,
            "attempt": max(part.attempt for part in parts),
            "retries_used": sum(part.retries_used for part in parts),
            "losses": sum(part.losses for part in parts),
            "started_ms": min(begun, default=view.started_ms),
            "failure": _failure_view(failed, failed.failure, {}) if failed is not None and failed.failure is not None else view.failure,
            "array": array_view(ArrayElements(nodes, spec, NodeId(view.node)).counts()) if is_array else None,
        }
    )


def event_view(event: RunEvent) -> EventView:
    return EventView(
        seq=event.seq,
        at_ms=event.at_ms,
        run=event.run,
        kind=event.kind,
        node=event.node,
        attempt=event.attempt,
        stage=event.stage,
        mesh=event.mesh,
        cluster=event.cluster,
        before=event.before,
        after=event.after,
        reason=event.reason.value if event.reason is not None else None,
        detail=event.detail,
    )


def _line_of(summary: RunSummary) -> dict[str, Any]:
    return {
        "id": summary.run,
        "tenant": summary.tenant,
        "state": summary.state.value,
        "created_ms": summary.created_ms,
        "ended_ms": summary.ended_ms,
        "reason": summary.reason.value if summary.reason is not None else None,
        "detail": summary.detail,
        "counts": summary.counts,
        "user": summary.user,
        "labels": dict(summary.labels),
        "mesh_names": list(summary.meshes),
    }


def _stage_view(stage: StageRecord, counts: dict[str, int]) -> StageView:
    return StageView(
        id=stage.stage,
        mesh=stage.mesh,
        cluster=stage.cluster,
        level=stage.level,
        state=stage.state.value,
        reason=stage.reason.value if stage.reason is not None else None,
        detail=stage.detail,
        why_here=stage.why_here,
        slots=stage.slots,
        width=stage.width,
        sent_ms=stage.sent_ms,
        started_ms=stage.started_ms,
        ended_ms=stage.ended_ms,
        counts=counts,
    )


def _control_of(spec: DagSpec, node: NodeId) -> str | None:
    """Return the key that the node has as JSON if the root does it itself."""
    function = spec.calls.functions[spec.calls.function[spec.calls.place_of[node]]]
    return next(iter(as_json(function, spec.calls.call(spec.calls.place_of[node]).args))) if is_control(function) else None


def _node_view(node: NodeRecord, needs: list[NodeId], control: str | None) -> NodeView:
    return NodeView(
        node=node.node,
        control=control,
        needs=list(needs),
        state=node.state.value,
        attempt=node.attempt,
        retries_used=node.retries_used,
        losses=node.losses,
        attempts=[_attempt_view(past) for past in node.past],
        not_before_ms=node.not_before_ms,
        stage=node.stage,
        mesh=node.mesh,
        reason=node.reason.value if node.reason is not None else None,
        detail=node.detail,
        started_ms=node.started_ms,
        finished_ms=node.finished_ms,
        progress=node.progress,
        checkpoint=_checkpoint_view(node.checkpoint),
        failure=_failure_view(node, node.failure, {}) if node.failure is not None else None,
        roots=_shown_roots(node),
        cache=node.cache.state.value if node.cache is not None else None,
        value_bytes=node.stored.size_bytes if node.stored is not None else None,
    )


def _attempt_view(past: PastAttempt) -> AttemptView:
    return AttemptView(
        attempt=past.attempt,
        mesh=past.mesh,
        started_ms=past.started_ms,
        ended_ms=past.ended_ms,
        reason=past.reason.value,
        type=past.type_name,
        detail=past.detail,
    )


def _checkpoint_view(kept: KeptCheckpoint | None) -> CheckpointView | None:
    if kept is None:
        return None
    return CheckpointView(attempt=kept.attempt, number=kept.number, saved_ms=kept.saved_ms, size_bytes=kept.stored.size_bytes)


def _failure_view(node: NodeRecord, failure: Failure, pickled: Mapping[str, bytes]) -> FailureView:
    sha256 = failure.pickled.sha256 if failure.pickled is not None else ""
    data = pickled.get(sha256)
    return FailureView(
        node=shown_name(node.node),
        attempt=node.attempt,
        mesh=node.mesh,
        reason=failure.reason.value,
        type=failure.type_name,
        message=failure.message,
        traceback=failure.traceback,
        pickled=base64.b64encode(data).decode() if data is not None else None,
        pickled_sha256=sha256 if data is not None else None,
    )


def progress_of(record: RunRecord) -> list[ProgressView]:
    """Return the first running nodes that report progress or save checkpoints."""
    running = (
        node
        for node in record.nodes.among(NodeState.RUNNING)
        if (node.progress is not None or node.checkpoint is not None) and not is_part(node.node)
    )
    return [
        ProgressView(node=node.node, progress=node.progress, checkpoint=_checkpoint_view(node.checkpoint))
        for node in islice(running, PROGRESS_NAMED)
    ]


def blocked_in(record: RunRecord) -> Iterator[tuple[NodeId, Words]]:
    """Yield the blocked nodes with the reasons, by id."""
    blocked: dict[NodeId, NodeRecord] = {}
    for node in sorted(record.nodes.among(NodeState.BLOCKED), key=lambda node: node.node):
        blocked.setdefault(shown_name(node.node), node)
    return ((name, Words(node.reason, node.detail)) for name, node in blocked.items())


def waiting_in(record: RunRecord) -> Iterator[tuple[NodeId, Words]]:
    """Yield the nodes that the root lets wait for a time, a signal or a twin's value, with the reasons, by id."""
    waiting = (node for node in record.nodes.among(NodeState.WAITING) if node.reason in _WAITS_AT_ROOT)
    return ((node.node, Words(node.reason, node.detail)) for node in sorted(waiting, key=lambda node: node.node))


def blocked_of(nodes: Iterable[tuple[NodeId, Words]]) -> list[BlockedView]:
    """Return blocked nodes, grouped by reason."""
    alike: defaultdict[tuple[str, str], list[NodeId]] = defaultdict(list)
    for node, words in nodes:
        alike[words.reason.value if words.reason is not None else "", words.detail].append(node)
    return [
        BlockedView(reason=reason, detail=detail, count=len(names), nodes=list(names[:BLOCKED_NAMED]))
        for (reason, detail), names in alike.items()
    ]


def _mesh_shares(record: RunRecord) -> list[MeshShare]:
    counts = record.nodes.counts_by(lambda place: place.mesh)
    stages = Counter(stage.mesh for stage in record.stages.values())
    slots: Counter[MeshId] = Counter()
    for stage in record.stages.values():
        slots[stage.mesh] += stage.slots if stage.state is StageState.RUNNING else 0
    return [
        MeshShare(mesh=mesh, stages=stages.get(mesh, 0), slots=slots[mesh], counts=_by_name(counts.get(mesh, {})))
        for mesh in sorted({*stages, *counts})
    ]


def _by_name(counts: Mapping[NodeState, int]) -> dict[str, int]:
    return {state.value: count for state, count in counts.items()}
