"""State of the nodes of a run, in columns: one array per fact, with an entry per node.

Most nodes of a graph share most facts: their stage, their attempt, why they wait. So a fact is a number in an array, and a long
fact a number that stands for it (`Shared`). Rare facts, such as failures and checkpoints, are kept by node (`Rare`).
A `NodeRecord` is a view of one row. Steps that concern many nodes change the columns at once.

A node's row never changes. Rows count from 0 in the order of the spec.

Source: ADR 0052.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dag.run.node_facts import (
    NUMBER_OF,
    PART_ROWS,
    STATES,
    CacheUse,
    Columns,
    KeptCheckpoint,
    PastAttempt,
    Place,
    Rare,
    Rows,
    Shared,
    TimerKind,
    Words,
)
from dag.run.states import NodeState
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.stages.arrays import array_of, is_part
from mesh.stages.messages import Failure

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanges:
    """Changes of a `NodeTable` since the last commit, by their places in it."""

    has_grown: bool = False  #: Nodes were added.
    parts: frozenset[int] = frozenset()  #: Parts of the columns.
    places: frozenset[int] = frozenset()
    words: frozenset[int] = frozenset()
    rare: frozenset[int] = frozenset()  #: Rows with another `Rare`.
    stored: frozenset[int] = frozenset()  #: Rows with another stored value.
    batch: int = 0  #: Number of these values' stored row.


NO_CHANGES = NodeChanges()


@dataclass(slots=True)
class _Changed:
    has_grown: bool = False
    parts: set[int] = field(default_factory=set)
    rare: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)


class NodeTable(Mapping[NodeId, "NodeRecord"]):
    """The nodes of a run. Only the run machine writes it.

    Args:
        names: The nodes, each once; a node's row is its position.
    """

    def __init__(self, names: Iterable[NodeId] = ()) -> None:
        self.names: tuple[NodeId, ...] = tuple(names)
        self._row = {name: row for row, name in enumerate(self.names)}
        self.columns = Columns.fresh(len(self.names))
        self.places: Shared[Place] = Shared(Place())
        self.words: Shared[Words] = Shared(Words())
        self.rare: dict[int, Rare] = {}
        self.stored: dict[int, StoredValue] = {}
        self._batches = 0  #: Stored rows of values; the next commit writes the next one.
        self._counts = [len(self.names), *(0 for _ in STATES[1:])]
        self._changed = _Changed()
        self._arrays: dict[int, Rows] | None = None  #: Rows of the parts of each array, once somebody has asked.

    # -- as a mapping --------------------------------------------------------------------------------------------------

    def __getitem__(self, node: NodeId) -> NodeRecord:
        return NodeRecord(self, self._row[node])

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, node: object) -> bool:
        return node in self._row

    def at(self, row: int) -> NodeRecord:
        """Return the node of a row."""
        return NodeRecord(self, row)

    def row(self, node: NodeId) -> int:
        """Return the node's row."""
        return self._row[node]

    def rows(self, nodes: Iterable[NodeId]) -> Rows:
        """Return the rows of nodes, in their order."""
        row = self._row
        return np.array([row[node] for node in nodes], dtype=np.intp)

    def add(self, nodes: Iterable[NodeId]) -> None:
        """Add nodes that are not there yet."""
        fresh = tuple(node for node in nodes if node not in self._row)
        if fresh:
            if len(self.names) % PART_ROWS:  # This part is stored with fewer rows.
                self._changed.parts.add(len(self.names) // PART_ROWS)
            self._row.update({node: len(self.names) + number for number, node in enumerate(fresh)})
            self.names += fresh
            grown = Columns.fresh(len(self.names))
            for column, kept in zip(grown.each(), self.columns.each(), strict=True):
                column[: len(kept)] = kept
            self.columns = grown
            self._counts[0] += len(fresh)
            self._arrays = None
            self._changed.has_grown = True

    def arrays(self) -> Mapping[int, Rows]:
        """Return the rows of the parts of each array, in their order, by the array's row."""
        if self._arrays is None:
            rows: dict[int, list[int]] = {}
            for row, name in enumerate(self.names):
                if is_part(name) and (array := self._row.get(NodeId(array_of(name)))) is not None:
                    rows.setdefault(array, []).append(row)
            self._arrays = {array: np.array(parts, np.intp) for array, parts in rows.items()}
        return self._arrays

    # -- questions about many nodes ------------------------------------------------------------------------------------

    def count(self, *states: NodeState) -> int:
        """Return the number of nodes in these states."""
        return sum(self._counts[NUMBER_OF[state]] for state in states)

    def counts(self) -> dict[NodeState, int]:
        """Return the number of nodes per state, without states that no node has."""
        return {state: count for state, count in zip(STATES, self._counts, strict=True) if count}

    def counts_by(self, group_of: Callable[[Place], K | None]) -> dict[K, dict[NodeState, int]]:
        """Return the number of nodes per group of places and state; nodes without a group are left out."""
        found: dict[K, dict[NodeState, int]] = {}
        both = self.columns.place.astype(np.int64) * len(STATES) + self.columns.state
        for number, count in zip(*(part.tolist() for part in np.unique(both, return_counts=True)), strict=True):
            place, state = divmod(number, len(STATES))
            group = group_of(self.places[place])
            if group is not None:
                of_group = found.setdefault(group, {})
                of_group[STATES[state]] = of_group.get(STATES[state], 0) + count
        return found

    def among(self, *states: NodeState) -> list[NodeRecord]:
        """Return the nodes in one of these states, by row."""
        return [NodeRecord(self, row) for row in self.having(*states).tolist()]

    def having(self, *states: NodeState) -> Rows:
        """Return the rows in one of these states, in order."""
        if not self.count(*states):
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(self.are(self.columns.state, states))

    @staticmethod
    def are(column: NDArray[np.uint8], states: Iterable[NodeState]) -> NDArray[np.bool_]:
        """Return which entries of a column of states are one of these."""
        wanted = np.zeros(len(STATES), dtype=np.bool_)
        wanted[[NUMBER_OF[state] for state in states]] = True
        return wanted[column]

    def in_stage(self, rows: Rows, stage: StageId) -> NDArray[np.bool_]:
        """Return which of the rows belong to the stage."""
        return self._placed(rows, lambda place: place.stage == stage)

    def on_mesh(self, rows: Rows, mesh: MeshId) -> NDArray[np.bool_]:
        """Return which of the rows are placed on the mesh."""
        return self._placed(rows, lambda place: place.mesh == mesh)

    def without_stage(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which of the rows have no stage."""
        return self._placed(rows, lambda place: place.stage is None)

    def _placed(self, rows: Rows, is_there: Callable[[Place], bool]) -> NDArray[np.bool_]:
        """Return which of the rows have such a place; each place is asked once."""
        places = self.columns.place[rows]
        found = np.zeros(len(self.places), dtype=np.bool_)
        for number in np.flatnonzero(np.bincount(places, minlength=1)).tolist():
            found[number] = is_there(self.places[number])
        return found[places]

    def stages(self) -> frozenset[StageId]:
        """Return the stages that nodes have."""
        numbers = np.flatnonzero(np.bincount(self.columns.place)).tolist()
        return frozenset(stage for number in numbers if (stage := self.places[number].stage) is not None)

    def states_of(self, rows: Rows) -> frozenset[NodeState]:
        """Return the states that these rows have."""
        return frozenset(STATES[number] for number in np.unique(self.columns.state[rows]).tolist())

    def held_by(self, mesh: MeshId, incarnation: int) -> Rows:
        """Return the succeeded nodes whose value only this runner has."""
        rows = self.having(NodeState.SUCCEEDED)
        rows = rows[self._placed(rows, lambda place: place[1:] == (mesh, incarnation))]
        return np.array([row for row in rows.tolist() if row not in self.stored], dtype=np.intp)

    # -- changes -------------------------------------------------------------------------------------------------------

    def move(self, rows: Rows, state: NodeState) -> None:
        """Set the state of rows, each once."""
        for number, count in enumerate(np.bincount(self.columns.state[rows], minlength=len(STATES)).tolist()):
            self._counts[number] -= count
        self._counts[NUMBER_OF[state]] += len(rows)
        self.columns.state[rows] = NUMBER_OF[state]
        self.touch(rows)

    def put(self, rows: Rows, stage: StageId | None, mesh: MeshId | None, incarnation: int = 0) -> None:
        """Set the place of rows."""
        self.columns.place[rows] = self.places.number(Place(stage, mesh, incarnation))
        self.touch(rows)

    def say(self, rows: Rows, reason: Reason | None, detail: str | None = None) -> None:
        """Set the reason of rows, and their detail; None: it stays."""
        if detail is not None:
            self.columns.words[rows] = self.words.number(Words(reason, detail))
        else:
            numbers = self.columns.words[rows]
            for number in np.unique(numbers).tolist():
                if self.words[number].reason is not reason:
                    other = self.words.number(Words(reason, self.words[number].detail))
                    self.columns.words[rows[numbers == number]] = other
        self.touch(rows)

    def touch(self, rows: Rows) -> None:
        """Mark rows of the columns as changed."""
        if len(rows):
            first, last = int(rows.min()) // PART_ROWS, int(rows.max()) // PART_ROWS
            self._changed.parts.update((first,) if first == last else np.unique(rows // PART_ROWS).tolist())

    def store(self, row: int, value: StoredValue | None) -> None:
        """Set where a node's value is stored."""
        if value is not None:
            self.stored[row] = value
        elif self.stored.pop(row, None) is None:
            return
        self._changed.stored.add(row)

    def rarely(self, row: int) -> Rare:
        """Return the row's `Rare`, which the caller changes."""
        self._changed.rare.add(row)
        return self.rare.setdefault(row, Rare())

    def take_changes(self) -> NodeChanges:
        """Return what has changed since the last call. A change that is not committed leaves a table that must not be used again."""
        self.places.drop_unused(self.columns.place)
        self.words.drop_unused(self.columns.words)
        changed, self._changed = self._changed, _Changed()
        places, self.places.changed = self.places.changed, set()
        words, self.words.changed = self.words.changed, set()
        return NodeChanges(
            has_grown=changed.has_grown,
            parts=frozenset(changed.parts),
            places=frozenset(places),
            words=frozenset(words),
            rare=frozenset(changed.rare),
            stored=frozenset(changed.stored),
            batch=self._take_batch() if changed.stored else 0,
        )

    def _take_batch(self) -> int:
        self._batches += 1
        return self._batches - 1

    def restored(self, *, batches: int) -> None:
        """Go on from columns and rows that a store has filled in; `batches` is the number of stored rows of values."""
        self._batches = batches
        self._counts = np.bincount(self.columns.state, minlength=len(STATES)).tolist()

    def set_state(self, row: int, state: NodeState) -> None:
        """Set the state of one row."""
        self._counts[self.columns.state.item(row)] -= 1
        self._counts[NUMBER_OF[state]] += 1
        self.columns.state[row] = NUMBER_OF[state]
        self.touch_one(row)

    def touch_one(self, row: int) -> None:
        """Mark one row of the columns as changed."""
        self._changed.parts.add(row // PART_ROWS)


def _column(name: str) -> Any:
    """Return a property of a `NodeRecord` that is a number in a column."""
    position = Columns._fields.index(name)

    def get(self: NodeRecord) -> int:
        return self.table.columns[position].item(self.row)

    def put(self: NodeRecord, value: int) -> None:
        self.table.columns[position][self.row] = value
        self.table.touch_one(self.row)

    return property(get, put)


_NOTHING_RARE = Rare()


def _rare(name: str) -> Any:
    """Return a property of a `NodeRecord` that few nodes have."""

    def get(self: NodeRecord) -> Any:
        return getattr(self.table.rare.get(self.row, _NOTHING_RARE), name)

    def put(self: NodeRecord, value: Any) -> None:
        if getattr(self.table.rare.get(self.row, _NOTHING_RARE), name) != value:
            setattr(self.table.rarely(self.row), name, value)

    return property(get, put)


def _part(shared: str, name: str) -> Any:
    """Return a property of a `NodeRecord` that is a part of a shared value."""
    column = {"places": "place", "words": "words"}[shared]
    position = Columns._fields.index(column)

    def get(self: NodeRecord) -> Any:
        return getattr(getattr(self.table, shared)[self.table.columns[position].item(self.row)], name)

    def put(self: NodeRecord, value: Any) -> None:
        values, numbers = getattr(self.table, shared), self.table.columns[position]
        before = values[numbers.item(self.row)]
        if getattr(before, name) != value:
            numbers[self.row] = values.number(before._replace(**{name: value}))
            self.table.touch_one(self.row)

    return property(get, put)


class NodeRecord:
    """The present attempt of a node: a view of its row. Only the run machine writes it."""

    attempt: int = _column("attempt")
    retries_used: int = _rare("retries_used")  #: Attempts lost to the node's own errors.
    losses: int = _rare("losses")  #: Attempts lost with meshes and runners, without preemptions.
    kills: int = _rare("kills")  #: Workers that died while they ran the node.
    timers: dict[TimerKind, int] = _rare("timers")  #: Only `dag.run.timers.Timers` sets them.
    past: tuple[PastAttempt, ...] = _rare("past")
    memory_bytes: int = _rare("memory_bytes")
    waits_since_ms: int = _column("waits_since_ms")
    """Time since which the node is ready but lacks capacity or quota; 0: it does not wait for these."""
    stage: StageId | None = _part("places", "stage")
    mesh: MeshId | None = _part("places", "mesh")
    incarnation: int = _part("places", "incarnation")  #: Runner of the mesh that holds the value in memory; 0: none.
    reason: Reason | None = _part("words", "reason")
    detail: str = _part("words", "detail")  #: Reason for the mesh, or for the wait, as text.
    started_ms: int = _column("started_ms")
    finished_ms: int = _column("finished_ms")
    failure: Failure | None = _rare("failure")
    checkpoint: KeptCheckpoint | None = _rare("checkpoint")
    progress: float | None = _rare("progress")  #: As the node's code reported it last, from 0 to 1.
    roots: tuple[NodeId, ...] = _rare("roots")  #: Failed nodes that caused a SKIPPED state.
    elements: int | None = _rare("elements")  #: Number of elements of an array, once its first part has ended.
    cache: CacheUse | None = _rare("cache")  #: How it uses the cache; None: not, or not yet.

    def __init__(self, table: NodeTable, row: int) -> None:
        self.table = table
        self.row = row

    @property
    def node(self) -> NodeId:
        return self.table.names[self.row]

    @property
    def not_before_ms(self) -> int:
        """Earliest time of the next attempt, since the epoch; 0: now."""
        return self.timers.get(TimerKind.RETRY, 0)

    @property
    def state(self) -> NodeState:
        return STATES[self.table.columns.state.item(self.row)]

    @state.setter
    def state(self, state: NodeState) -> None:
        self.table.set_state(self.row, state)

    @property
    def exported(self) -> bool:
        """Whether the value is stored, or will be, so that other meshes can read it."""
        return bool(self.table.columns.exported.item(self.row))

    @exported.setter
    def exported(self, exported: bool) -> None:
        self.table.columns.exported[self.row] = exported
        self.table.touch_one(self.row)

    @property
    def stored(self) -> StoredValue | None:
        return self.table.stored.get(self.row)

    @stored.setter
    def stored(self, value: StoredValue | None) -> None:
        self.table.store(self.row, value)

    def facts(self) -> dict[str, Any]:
        """Return all facts by name."""
        return {name: getattr(self, name) for name in FACTS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeRecord) and self.facts() == other.facts()

    __hash__ = None  # type: ignore[assignment]  # a view of what changes

    def __repr__(self) -> str:
        return f"NodeRecord({', '.join(f'{name}={value!r}' for name, value in self.facts().items())})"


FACTS = (
    *("node", "state", "attempt", "retries_used", "losses", "kills", "timers", "past", "memory_bytes", "waits_since_ms"),
    *("stage", "mesh", "incarnation", "exported", "stored", "reason", "detail", "started_ms", "finished_ms", "failure", "checkpoint"),
    *("progress", "roots"),
)
