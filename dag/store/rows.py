"""Stored rows of a run. Both stores keep the same bytes, so tests in memory find what Redis would lose.

A run is one hash of fields (among them the spec and the names of the nodes, which are written once), a hash of its nodes
(`dag.store.node_rows`), one row per stage, and one row of events per commit. Unknown keys in a row are refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dag.run.array_states import shown_counts
from dag.run.dead_letters import DeadLetter
from dag.run.node_table import NodeTable
from dag.run.run_events import LoggedEvents, NodesEnded, NodesMoved, RunEvent, rows_in, runs_of
from dag.run.run_status import shown_state
from dag.run.runs import (
    NOTHING_CHANGED,
    CancelStage,
    Decision,
    DeliverInput,
    DropValue,
    ForgetRun,
    KeepCached,
    ReleaseCached,
    RunChange,
    RunRecord,
    RunSummary,
    SendAgain,
    SendStage,
    StageRecord,
    StopNode,
)
from dag.run.states import RunState
from dag.spec.growth import Growth
from dag.store.node_rows import names_of, names_row, table_of
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.wire import decode, encode
from mesh.errors import LedgerError, RuntimeAdapterError

#: Beginning of the names of fields with nodes that were added to the graph; their number follows.
_GROWTH = "growth."
#: Fields of a summary; all of them are small.
SUMMARY_FIELDS = ("tenant", "user", "labels", "state", "shown", "created_ms", "ended_ms", "reason", "detail", "counts", "meshes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """A decision with its kind: the decisions share fields, so a bare union could decode one as another."""

    send: SendAgain | None = None
    deliver: DeliverInput | None = None
    cancel: CancelStage | None = None
    stop: StopNode | None = None
    drop: DropValue | None = None
    forget: ForgetRun | None = None
    keep: KeepCached | None = None
    release: ReleaseCached | None = None


_DECIDED = tuple[_Decided, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logged:
    """Events of one kind; see `_Decided`."""

    event: RunEvent | None = None
    moved: NodesMoved | None = None
    ended: NodesEnded | None = None


_LOGGED = tuple[_Logged, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StageRow:
    """A stage, with the rows of its nodes in place of their names."""

    stage: StageRecord
    rows: tuple[int, ...] = ()


def fixed_fields(record: RunRecord) -> dict[str, bytes]:
    """Return the fields of a run that never change."""
    return {
        "tenant": record.tenant.encode(),
        "user": record.user.encode(),
        **({"labels": labels_row(record.labels)} if record.labels else {}),
        "digest": record.digest.encode(),
        "spec": record.spec,
        "names": names_row(record.nodes.names),
        "created_ms": str(record.created_ms).encode(),
        **({"key": record.key.encode()} if record.key else {}),
        **({"traceparent": record.traceparent.encode()} if record.traceparent else {}),
    }


def labels_row(labels: Mapping[str, str]) -> bytes:
    """Return the stored form of a run's labels."""
    return encode(dict(labels), dict[str, str])


def labels_of(row: bytes | None) -> dict[str, str]:
    """Return a run's labels from their stored form; None: it has none."""
    return decode(dict[str, str], row) if row else {}


def lists_of(tenant: TenantPath, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the lists of runs by label that contain the run: one for each label, of the tenant and its ancestors."""
    return tuple(list_name(above, name, value) for above in reach_of(tenant) for name, value in sorted(labels.items()))


def list_name(tenant: str, name: str, value: str) -> str:
    """Return the name of the list of a tenant's runs with this label. Names of tenants and labels contain neither `|` nor `=`."""
    return f"{tenant}|{name}={value}"


def moving_fields(record: RunRecord, *, version: int, change: RunChange = NOTHING_CHANGED) -> dict[str, bytes]:
    """Return the run's own fields that each commit writes, with all that a summary shows, so that a summary reads no node and no stage."""
    fields = {
        "state": record.state.value.encode(),
        "shown": shown_state(record).value.encode(),
        "version": str(version).encode(),
        "seq": str(record.seq).encode(),
        "ended_ms": str(record.ended_ms).encode(),
        "resumed_ms": str(record.resumed_ms).encode(),
        "forget_ms": str(record.forget_ms).encode(),
        "forgotten": b"1" if record.forgotten else b"",
        **({"removing": b"1"} if record.is_removing else {}),
        "reason": record.reason.value.encode() if record.reason is not None else b"",
        "detail": record.detail.encode(),
        "last_entry": record.last_entry.encode(),
        "counts": encode({state.value: count for state, count in shown_counts(record.nodes).items()}, dict[str, int]),
        "outbox": _outbox_row(record.outbox),
    }
    if change.stages:
        fields["meshes"] = "|".join(sorted({stage.mesh for stage in record.stages.values()})).encode()
    if change.nodes.has_grown:
        fields["names"] = names_row(record.nodes.names)
    if change.expected_ms is not None:
        fields["expected_ms"] = encode(dict(change.expected_ms), dict[str, int])
    first = len(record.growths) - len(change.growths)
    fields.update({f"{_GROWTH}{number}": growth.packed() for number, growth in enumerate(change.growths, first)})
    return fields


def _growths_of(fields: Mapping[str, bytes]) -> tuple[Growth, ...]:
    """Return the nodes that were added to a run, in the order in which they were."""
    numbers = sorted(int(name.removeprefix(_GROWTH)) for name in fields if name.startswith(_GROWTH))
    return tuple(Growth.unpacked(fields[f"{_GROWTH}{number}"]) for number in numbers)


def check_numbers(record: RunRecord, change: RunChange) -> int:
    """Return the number of the last event before this change.

    Raises:
        LedgerError: The events of the change are not numbered without gaps up to `record.seq`; nothing may be written.
    """
    if not change.events:
        return record.seq
    base = change.events[0].seq - 1
    has_gap = any(following.seq != before.last + 1 for before, following in pairwise(change.events))
    if has_gap or base < 0 or change.events[-1].last != record.seq:
        numbers = [event.seq for event in change.events]
        raise LedgerError(f"run {record.run}: events {numbers[:3]}… do not lead without gaps to number {record.seq}")
    return base


def event_row(events: tuple[LoggedEvents, ...]) -> bytes:
    """Return the events of one commit; empty without events."""
    return encode(tuple(map(_logged, events)), _LOGGED, sparse=True) if events else b""


def events_in(rows: Iterable[bytes], names: Callable[[], Sequence[NodeId]], after: int = 0) -> Iterator[RunEvent]:
    """Yield the single events with a greater number than `after` from the rows of commits, in order.

    Args:
        names: Returns the node of each row; called only for events of many nodes.
    """
    known: Sequence[NodeId] | None = None
    for row in rows:
        logged: tuple[_Logged, ...] = decode(_LOGGED, row)
        for one in logged:
            event = one.event or one.moved or one.ended
            if event is not None and event.last > after:
                if known is None and one.event is None:
                    known = names()
                yield from event.singly(known or (), after)


def _logged(event: LoggedEvents) -> _Logged:
    if isinstance(event, NodesMoved):
        return _Logged(moved=event)
    return _Logged(ended=event) if isinstance(event, NodesEnded) else _Logged(event=event)


def stage_rows(stages: Iterable[StageRecord], nodes: NodeTable) -> dict[str, bytes]:
    """Return the rows of stages, by id."""
    return {stage.stage: encode(_stage_row(stage, nodes), sparse=True) for stage in stages}


def _stage_row(stage: StageRecord, nodes: NodeTable) -> _StageRow:
    return _StageRow(stage=replace(stage, nodes=()), rows=runs_of([nodes.row(node) for node in stage.nodes]))


def _stage_of(row: bytes, names: Sequence[NodeId]) -> StageRecord:
    stored: _StageRow = decode(_StageRow, row)
    stored.stage.nodes = tuple(names[row] for row in rows_in(stored.rows))
    return stored.stage


def record_of(run: RunId, fields: Mapping[str, bytes], nodes: Mapping[str, bytes], stages: Iterable[bytes]) -> RunRecord:
    """Return the whole record. Stages are ordered by length of id, then by id, so that `run.10` follows `run.9`.

    Args:
        nodes: The rows of `dag.store.node_rows`.

    Raises:
        RuntimeAdapterError: A field is missing, or a row cannot be decoded.
    """
    try:
        table = table_of(names_of(fields["names"]), nodes)
        stage_records = [_stage_of(row, table.names) for row in stages]
        return RunRecord(
            run=run,
            tenant=TenantPath(fields["tenant"].decode()),
            user=fields.get("user", b"").decode(),  # Runs of older versions have no user.
            labels=labels_of(fields.get("labels")),
            digest=fields["digest"].decode(),
            spec=fields["spec"],
            growths=_growths_of(fields),
            state=RunState(fields["state"].decode()),
            version=int(fields["version"]),
            seq=int(fields["seq"]),
            created_ms=int(fields["created_ms"]),
            ended_ms=int(fields["ended_ms"]),
            resumed_ms=int(fields["resumed_ms"]),
            forget_ms=int(fields["forget_ms"]),
            forgotten=fields["forgotten"] == b"1",
            is_removing="removing" in fields,
            reason=_reason(fields["reason"]),
            detail=fields["detail"].decode(),
            last_entry=fields["last_entry"].decode(),
            nodes=table,
            stages={StageId(stage.stage): stage for stage in sorted(stage_records, key=lambda stage: (len(stage.stage), stage.stage))},
            outbox=_decisions(fields["outbox"]),
            key=fields.get("key", b"").decode(),
            traceparent=fields.get("traceparent", b"").decode(),
            expected_ms=decode(dict[str, int], fields["expected_ms"]) if "expected_ms" in fields else {},
        )
    except (KeyError, IndexError, ValueError) as broken:
        raise RuntimeAdapterError(f"the stored rows of run {run} are damaged: {broken!r}") from None


def summary_of(run: RunId, fields: Mapping[str, bytes]) -> RunSummary:
    """Return the summary from `SUMMARY_FIELDS`.

    Raises:
        RuntimeAdapterError: As for `record_of`.
    """
    try:
        return RunSummary(
            run=run,
            tenant=TenantPath(fields["tenant"].decode()),
            state=RunState(fields.get("shown", fields["state"]).decode()),  # Runs of older versions have only the stored state.
            created_ms=int(fields["created_ms"]),
            ended_ms=int(fields["ended_ms"]),
            reason=_reason(fields["reason"]),
            detail=fields["detail"].decode(),
            counts=decode(dict[str, int], fields["counts"]),
            user=fields.get("user", b"").decode(),
            labels=labels_of(fields.get("labels")),
            meshes=tuple(MeshId(mesh) for mesh in fields.get("meshes", b"").decode().split("|") if mesh),
        )
    except (KeyError, ValueError) as broken:
        raise RuntimeAdapterError(f"the stored rows of run {run} are damaged: {broken!r}") from None


def dead_rows(letters: Iterable[DeadLetter]) -> dict[str, bytes]:
    """Return the rows of dead letters, by node."""
    return {letter.node: encode(letter) for letter in letters}


def weight_of(record: RunRecord, blobs: Mapping[str, bytes]) -> int:
    """Return the bytes that an open run counts against the limits: its graph and blobs."""
    return len(record.spec) + sum(map(len, blobs.values()))


def reach_of(tenant: TenantPath) -> tuple[str, ...]:
    """Return the tenant and its ancestors, whose lists of runs contain the run."""
    parts = tenant.split("/")
    return tuple("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))


def _reason(field: bytes) -> Reason | None:
    return Reason(field.decode()) if field else None


def _outbox_row(decisions: Iterable[Decision | SendAgain]) -> bytes:
    rows = []
    for decision in decisions:
        if isinstance(decision, SendStage):
            rows.append(_Decided(send=SendAgain(stage=decision.spec.stage, preemption=decision.spec.preemption)))
        elif isinstance(decision, SendAgain):
            rows.append(_Decided(send=decision))
        elif isinstance(decision, DeliverInput):
            rows.append(_Decided(deliver=decision))
        elif isinstance(decision, CancelStage):
            rows.append(_Decided(cancel=decision))
        elif isinstance(decision, StopNode):
            rows.append(_Decided(stop=decision))
        elif isinstance(decision, DropValue):
            rows.append(_Decided(drop=decision))
        elif isinstance(decision, KeepCached):
            rows.append(_Decided(keep=decision))
        elif isinstance(decision, ReleaseCached):
            rows.append(_Decided(release=decision))
        else:
            rows.append(_Decided(forget=decision))
    return encode(tuple(rows), _DECIDED)


def _decisions(row: bytes) -> tuple[Decision | SendAgain, ...]:
    decided: tuple[_Decided, ...] = decode(_DECIDED, row)
    one_of = ((one.send, one.deliver, one.cancel, one.stop, one.drop, one.keep, one.release, one.forget) for one in decided)
    return tuple(decision for kinds in one_of for decision in kinds if decision is not None)
