"""Stored rows of a run. Both stores keep the same bytes, so tests in memory find what Redis would lose.

A run is one hash of fields (among them the spec, which is written once), and one row per node, stage and event. A row is the JSON
of its record; unknown keys in it are refused.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from dag.run.dead_letters import DeadLetter
from dag.run.run_status import shown_state
from dag.run.runs import (
    CancelStage,
    Decision,
    DeliverInput,
    DropValue,
    ForgetRun,
    NodeRecord,
    RunChange,
    RunRecord,
    RunSummary,
    SendStage,
    StageRecord,
)
from dag.run.states import RunState
from mesh.core.ids import NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.wire import decode, encode
from mesh.errors import LedgerError, RuntimeAdapterError

#: Fields of a summary; all of them are small.
SUMMARY_FIELDS = ("tenant", "user", "state", "shown", "created_ms", "ended_ms", "reason", "detail", "counts")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """A decision with its kind: the decisions share fields, so a bare union could decode one as another."""

    send: SendStage | None = None
    deliver: DeliverInput | None = None
    cancel: CancelStage | None = None
    drop: DropValue | None = None
    forget: ForgetRun | None = None


_DECIDED = tuple[_Decided, ...]


def fixed_fields(record: RunRecord) -> dict[str, bytes]:
    """Return the fields of a run that never change."""
    return {
        "tenant": record.tenant.encode(),
        "user": record.user.encode(),
        "digest": record.digest.encode(),
        "spec": record.spec,
        "created_ms": str(record.created_ms).encode(),
        **({"key": record.key.encode()} if record.key else {}),
    }


def moving_fields(record: RunRecord, *, version: int, with_outbox: bool) -> dict[str, bytes]:
    """Return the run's own fields that each commit writes, with all that a summary shows, so that a summary reads no node and no stage."""
    counts = Counter(
        map(attrgetter("state"), record.nodes.values())
    )  # All nodes are counted at each commit, so this avoids a loop in Python.
    fields = {
        "state": record.state.value.encode(),
        "shown": shown_state(record).value.encode(),
        "version": str(version).encode(),
        "seq": str(record.seq).encode(),
        "ended_ms": str(record.ended_ms).encode(),
        "reason": record.reason.value.encode() if record.reason is not None else b"",
        "detail": record.detail.encode(),
        "last_entry": record.last_entry.encode(),
        "counts": encode({state.value: count for state, count in counts.items()}, dict[str, int]),
    }
    if with_outbox:
        fields["outbox"] = _outbox_row(record.outbox)
    return fields


def writes_outbox(record: RunRecord, change: RunChange) -> bool:
    """Return whether a commit writes the outbox: only if it changes, because it holds whole stages.

    The outbox changes with new decisions, and when it is emptied.
    """
    return bool(change.decisions) or not record.outbox


def check_numbers(record: RunRecord, change: RunChange) -> int:
    """Return the number of the last event before this change.

    Raises:
        LedgerError: The events of the change are not numbered without gaps up to `record.seq`; nothing may be written.
    """
    base = record.seq - len(change.events)
    numbers = [event.seq for event in change.events]
    if base < 0 or numbers != list(range(base + 1, record.seq + 1)):
        raise LedgerError(f"run {record.run}: events {numbers[:3]}… do not lead without gaps to number {record.seq}")
    return base


def node_rows(nodes: Iterable[NodeRecord]) -> dict[str, bytes]:
    """Return the rows of nodes, by id."""
    return {node.node: encode(node) for node in nodes}


def stage_rows(stages: Iterable[StageRecord]) -> dict[str, bytes]:
    """Return the rows of stages, by id."""
    return {stage.stage: encode(stage) for stage in stages}


def record_of(run: RunId, fields: Mapping[str, bytes], nodes: Iterable[bytes], stages: Iterable[bytes]) -> RunRecord:
    """Return the whole record. Nodes are ordered by id; stages by length of id, then by id, so that `run.10` follows `run.9`.

    Raises:
        RuntimeAdapterError: A field is missing, or a row cannot be decoded.
    """
    node_records: list[NodeRecord] = [decode(NodeRecord, row) for row in nodes]
    stage_records: list[StageRecord] = [decode(StageRecord, row) for row in stages]
    try:
        return RunRecord(
            run=run,
            tenant=TenantPath(fields["tenant"].decode()),
            user=fields.get("user", b"").decode(),  # Runs of older versions have no user.
            digest=fields["digest"].decode(),
            spec=fields["spec"],
            state=RunState(fields["state"].decode()),
            version=int(fields["version"]),
            seq=int(fields["seq"]),
            created_ms=int(fields["created_ms"]),
            ended_ms=int(fields["ended_ms"]),
            reason=_reason(fields["reason"]),
            detail=fields["detail"].decode(),
            last_entry=fields["last_entry"].decode(),
            nodes={NodeId(node.node): node for node in sorted(node_records, key=lambda node: node.node)},
            stages={StageId(stage.stage): stage for stage in sorted(stage_records, key=lambda stage: (len(stage.stage), stage.stage))},
            outbox=_decisions(fields["outbox"]),
            key=fields.get("key", b"").decode(),
        )
    except (KeyError, ValueError) as broken:
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
        )
    except (KeyError, ValueError) as broken:
        raise RuntimeAdapterError(f"the stored rows of run {run} are damaged: {broken!r}") from None


def dead_rows(letters: Iterable[DeadLetter]) -> dict[str, bytes]:
    """Return the rows of dead letters, by node."""
    return {letter.node: encode(letter) for letter in letters}


def weight_of(record: RunRecord, blobs: Mapping[str, bytes]) -> int:
    """Return the bytes that an open run counts against the limits: its graph and blobs."""
    return len(record.spec) + sum(map(len, blobs.values()))


def uris_of(nodes: Iterable[bytes]) -> tuple[str, ...]:
    """Return the files of the nodes' values and pickled exceptions, each once."""
    found: dict[str, None] = {}
    for row in nodes:
        node: NodeRecord = decode(NodeRecord, row)
        for value in (node.stored, node.failure.pickled if node.failure is not None else None):
            if value is not None and value.uri is not None:
                found[value.uri] = None
    return tuple(found)


def reach_of(tenant: TenantPath) -> tuple[str, ...]:
    """Return the tenant and its ancestors, whose lists of runs contain the run."""
    parts = tenant.split("/")
    return tuple("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))


def _reason(field: bytes) -> Reason | None:
    return Reason(field.decode()) if field else None


def _outbox_row(decisions: Iterable[Decision]) -> bytes:
    rows = []
    for decision in decisions:
        if isinstance(decision, SendStage):
            rows.append(_Decided(send=decision))
        elif isinstance(decision, DeliverInput):
            rows.append(_Decided(deliver=decision))
        elif isinstance(decision, CancelStage):
            rows.append(_Decided(cancel=decision))
        elif isinstance(decision, DropValue):
            rows.append(_Decided(drop=decision))
        else:
            rows.append(_Decided(forget=decision))
    return encode(tuple(rows), _DECIDED)


def _decisions(row: bytes) -> tuple[Decision, ...]:
    decided: tuple[_Decided, ...] = decode(_DECIDED, row)
    one_of = ((one.send, one.deliver, one.cancel, one.drop, one.forget) for one in decided)
    return tuple(decision for kinds in one_of for decision in kinds if decision is not None)
