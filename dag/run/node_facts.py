"""Facts about nodes, as `dag.run.node_table` keeps them: columns, values that many nodes share, and what few nodes have."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dag.run.states import NodeState
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.stages.messages import Failure

#: Numbers of rows.
Rows = NDArray[np.intp]
V = TypeVar("V", bound=Hashable)

#: Rows per stored part of the columns. A commit writes the parts with changed rows.
PART_ROWS = 1_024
#: Shared values that may pile up before unused ones are dropped.
SHARED_MIN = 64

#: Past attempts that are kept of a node.
PAST_MAX = 10

STATES = tuple(NodeState)
NUMBER_OF = {state: number for number, state in enumerate(STATES)}


class Columns(NamedTuple):
    """One array per fact, of equal length."""

    state: NDArray[np.uint8]  #: Index into `STATES`.
    attempt: NDArray[np.uint32]
    exported: NDArray[np.uint8]
    place: NDArray[np.uint32]  #: Number of its `Place`.
    words: NDArray[np.uint32]  #: Number of its `Words`.
    waits_since_ms: NDArray[np.int64]
    started_ms: NDArray[np.int64]
    finished_ms: NDArray[np.int64]

    @classmethod
    def fresh(cls, count: int) -> Columns:
        """Return the columns of nodes that have not begun."""
        columns = cls(*(np.zeros(count, dtype=kind) for kind in COLUMN_TYPES))
        columns.attempt[:] = 1
        return columns

    def each(self) -> tuple[NDArray[Any], ...]:
        """Return the columns in order."""
        return self


COLUMN_TYPES = ("u1", "u4", "u1", "u4", "u4", "i8", "i8", "i8")


class Place(NamedTuple):
    """Stage and mesh of a node, and the runner that holds its value in memory."""

    stage: StageId | None = None
    mesh: MeshId | None = None
    incarnation: int = 0


class Words(NamedTuple):
    """Why a node waits, or why it is where it is."""

    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheckpoint:
    """The newest checkpoint of a node: the next attempt continues from it."""

    attempt: int  #: Attempt that saved it.
    number: int  #: Counts up from 1 within that attempt.
    saved_ms: int  #: When it arrived, since the epoch.
    stored: StoredValue


class TimerKind(str, Enum):
    """Purpose of a timer of a node."""

    RETRY = "RETRY"
    """End of the wait before the next attempt."""
    CLOSE = "CLOSE"
    """End of the node's `schedule_to_close_s`."""
    WAKE = "WAKE"
    """End of a sleep, or of the wait for a signal."""


class CacheState(str, Enum):
    """Use that a node makes of the cache."""

    HIT = "HIT"
    """The node has a value of the cache."""
    CLAIMED = "CLAIMED"
    """The cache has no value; this node computes it, and others with its key wait for it."""
    IN_FLIGHT = "IN_FLIGHT"
    """Another node computes the value, and this one waits for it."""
    KEPT = "KEPT"
    """The node has computed its value, which the cache keeps."""
    OFF = "OFF"
    """The node runs without the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """Use of the cache by a node."""

    state: CacheState
    key: str = ""  #: As `dag.spec.cache_keys` makes it.


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempt:
    """An attempt of a node that another one followed."""

    attempt: int
    mesh: MeshId | None
    started_ms: int  #: On the mesh's clock; 0: it had not begun.
    ended_ms: int  #: When the root heard of its end.
    reason: Reason
    type_name: str = ""  #: Class of the error, if the attempt failed by one.
    detail: str = ""
    stage: StageId | None = None


@dataclass(slots=True, kw_only=True)
class Rare:
    """Facts that few nodes have."""

    retries_used: int = 0
    losses: int = 0
    kills: int = 0
    timers: dict[TimerKind, int] = field(default_factory=dict)  #: When each is due, since the epoch.
    past: tuple[PastAttempt, ...] = ()  #: The last attempts before the present one, oldest first.
    memory_bytes: int = 0  #: Memory that the next attempt asks for after one ran out of it; 0: as the node's options say.
    failure: Failure | None = None
    checkpoint: KeptCheckpoint | None = None
    progress: float | None = None
    roots: tuple[NodeId, ...] = ()
    elements: int | None = None  #: Number of elements of an array, as its first part has reported it.
    cache: CacheUse | None = None  #: None: the node is not cached, or the cache was not asked yet.


class Shared(Generic[V]):
    """Distinct values of a column, each under a number that the rows hold. Number 0 is the value of a fresh node."""

    def __init__(self, fresh: V) -> None:
        self._values: list[V] = [fresh]
        self._numbers: dict[V, int] = {fresh: 0}
        self._free: list[int] = []
        self._full = SHARED_MIN
        self.changed: set[int] = set()  #: Numbers with another value since the last commit.

    def __getitem__(self, number: int) -> V:
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)

    def number(self, value: V) -> int:
        """Return the number of the value; a new value gets one."""
        found = self._numbers.get(value)
        if found is None:
            found = self._free.pop() if self._free else len(self._values)
            self.restore(found, value)
            self.changed.add(found)
        return found

    def restore(self, number: int, value: V) -> None:
        """Set a value under its number."""
        self._values.extend([self._values[0]] * (number + 1 - len(self._values)))
        self._values[number] = value
        self._numbers[value] = number

    def drop_unused(self, column: NDArray[np.uint32]) -> None:
        """Free the numbers that no row holds, once many have piled up."""
        if len(self._values) - len(self._free) < self._full:
            return
        used = {0, *np.unique(column).tolist()}
        self._free = [number for number in range(len(self._values)) if number not in used]
        self._numbers = {self._values[number]: number for number in used}
        self.changed &= used
        self._full = max(SHARED_MIN, 2 * len(used))
