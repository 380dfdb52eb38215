"""Changes of a run as users see them: numbered events, and ranges that stand for the events of many nodes.

A step that changes many nodes alike records one range; each event of it is made when somebody reads it.

Source: ADR 0052.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from dag.run.states import NodeState
from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One change of a run, as users see it; numbered per run from 1 without gaps."""

    seq: int
    at_ms: int
    run: RunId
    kind: str  #: `run`, `stage` or `node`.
    node: NodeId | None = None
    attempt: int = 0
    stage: StageId | None = None
    mesh: MeshId | None = None
    cluster: str = ""
    before: str = ""
    after: str = ""
    reason: Reason | None = None
    detail: str = ""

    @property
    def last(self) -> int:
        """Its number, as ranges have the number of their last event."""
        return self.seq

    def singly(self, names: Sequence[NodeId], after: int = 0) -> Iterator[RunEvent]:  # noqa: ARG002  as ranges do
        """Yield the event, if its number is greater than `after`."""
        if self.seq > after:
            yield self


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesMoved:
    """Nodes of a stage that went from one state to another in one step: an event each, in this order."""

    seq: int  #: Number of the first event.
    at_ms: int
    run: RunId
    rows: tuple[int, ...]  #: Rows of the nodes, as `runs_of` returns them.
    attempts: tuple[int, ...] = ()  #: Empty: 1 each.
    stage: StageId | None = None
    mesh: MeshId | None = None
    cluster: str = ""
    before: str
    after: str

    @property
    def last(self) -> int:
        """Number of the last event."""
        return self.seq + sum(self.rows[1::2]) - 1

    def singly(self, names: Sequence[NodeId], after: int = 0) -> Iterator[RunEvent]:
        """Yield the events with a greater number than `after`.

        Args:
            names: The node of each row.
        """
        for place, row in _from(self.rows, max(0, after + 1 - self.seq)):
            yield RunEvent(
                seq=self.seq + place,
                at_ms=self.at_ms,
                run=self.run,
                kind="node",
                node=names[row],
                attempt=self.attempts[place] if self.attempts else 1,
                stage=self.stage,
                mesh=self.mesh,
                cluster=self.cluster,
                before=self.before,
                after=self.after,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesEnded:
    """Nodes of a stage that succeeded, as `NodesSucceeded` reports them: the end of each, after its start if that is new."""

    seq: int  #: Number of the first event.
    run: RunId
    rows: tuple[int, ...]  #: Rows of the nodes, as `runs_of` returns them.
    attempts: tuple[int, ...] = ()  #: Empty: 1 each.
    stage: StageId
    mesh: MeshId
    cluster: str = ""
    since_ms: int
    started: tuple[int, ...]  #: Milliseconds after `since_ms`.
    took: tuple[int, ...]
    workers: tuple[str, ...]
    worker: tuple[int, ...] = ()  #: Index into `workers`; empty: the first.
    with_starts: bool = True  #: Two events a node: its start and its end.

    @property
    def last(self) -> int:
        """Number of the last event."""
        return self.seq + len(self.took) * (1 + self.with_starts) - 1

    def singly(self, names: Sequence[NodeId], after: int = 0) -> Iterator[RunEvent]:
        """Yield events as `NodesMoved.singly`."""
        each = 1 + self.with_starts
        for place, row in _from(self.rows, max(0, after + 1 - self.seq) // each):
            started_ms = self.since_ms + self.started[place]
            seq = self.seq + place * each
            running, done = NodeState.RUNNING.value, NodeState.SUCCEEDED.value
            worker = self.workers[self.worker[place] if self.worker else 0]
            if self.with_starts:
                if seq > after:
                    yield self._event(seq, started_ms, names[row], place, NodeState.ASSIGNED.value, running, "")
                seq += 1
            yield self._event(seq, started_ms + self.took[place], names[row], place, running, done, worker)

    def _event(self, seq: int, at_ms: int, node: NodeId, place: int, before: str, after: str, detail: str) -> RunEvent:
        return RunEvent(
            seq=seq,
            at_ms=at_ms,
            run=self.run,
            kind="node",
            node=node,
            attempt=self.attempts[place] if self.attempts else 1,
            stage=self.stage,
            mesh=self.mesh,
            cluster=self.cluster,
            before=before,
            after=after,
            detail=detail,
        )


LoggedEvents = RunEvent | NodesMoved | NodesEnded


def singly(logged: Iterable[LoggedEvents], names: Sequence[NodeId], after: int = 0) -> Iterator[RunEvent]:
    """Yield the single events with a greater number than `after`, in order.

    Args:
        names: The node of each row.
    """
    return chain.from_iterable(each.singly(names, after) for each in logged)


def runs_of(rows: Sequence[int]) -> tuple[int, ...]:
    """Return rows as runs of consecutive ones: the first and the length of each run, in order."""
    if not rows:
        return ()
    breaks = [place for place, (row, following) in enumerate(pairwise(rows), start=1) if following != row + 1]
    return tuple(part for first, end in pairwise((0, *breaks, len(rows))) for part in (rows[first], end - first))


def rows_in(runs: Sequence[int]) -> Iterator[int]:
    """Yield the rows of runs as `runs_of` returns them."""
    return chain.from_iterable(range(first, first + length) for first, length in zip(runs[::2], runs[1::2], strict=True))


def _from(runs: Sequence[int], skip: int) -> Iterator[tuple[int, int]]:
    """Yield the rows with their places, without the first `skip`."""
    place = 0
    for first, length in zip(runs[::2], runs[1::2], strict=True):
        for offset in range(max(0, skip - place), length):
            yield place + offset, first + offset
        place += length
