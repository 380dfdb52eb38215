"""What is scheduled on nodes, and the states that it goes through.

The states and their names are Ray's own (`scheduling_queue.h`), with `PREEMPTED` and the terminal ones added. One table,
`TRANSITIONS`, is read by the scheduler, the docs and the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from mesh.ids import AgentId, JobId, LabelName, NodeName, PoolName, TaskId, TenantPath
from mesh.resources import NOTHING, ResourceSet

NO_LABELS: Mapping[str, str] = MappingProxyType({})
NO_BYTES: Mapping[NodeName, int] = MappingProxyType({})
NO_LABEL, NO_TENANT = LabelName(""), TenantPath("")
DEFAULT_PRIORITY = 5.0


class TaskState(str, Enum):
    """Where a task stands."""

    PLACEABLE = "PLACEABLE"
    """Queued: may be placed on a node as soon as one has room."""
    WAITING = "WAITING"
    """Queued: tasks that it comes after, or arguments, are not there yet."""
    WAITING_FOR_ACTOR_CREATION = "WAITING_FOR_ACTOR_CREATION"
    """A call on an agent that is not up yet."""
    INFEASIBLE = "INFEASIBLE"
    """No node could run it even when empty; tried again when a node joins or grows."""
    READY = "READY"
    """Placed: room on its node is promised, its placement group is being made."""
    SWAP = "SWAP"
    """Between states: the order to start is out, the answer is not in."""
    RUNNING = "RUNNING"
    """Its agent is up and runs it."""
    BLOCKED = "BLOCKED"
    """Runs, and waits for something that another task makes."""
    PREEMPTED = "PREEMPTED"
    """Gave way: its state is being kept, or is kept; it goes back to its place in the queue."""
    DRIVER = "DRIVER"
    """A program of a user: counted, never scheduled."""
    SUCCEEDED = "SUCCEEDED"
    """Over, by itself."""
    FAILED = "FAILED"
    """Over: its code raised, or its agent was lost more often than it may be."""
    CANCELLED = "CANCELLED"
    """Over: somebody asked for it."""


_S = TaskState
_ENDS = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})

#: State to the states that may follow it.
TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = MappingProxyType(
    {
        _S.PLACEABLE: frozenset({_S.WAITING, _S.INFEASIBLE, _S.READY, _S.SWAP, _S.FAILED, _S.CANCELLED}),
        _S.WAITING: frozenset({_S.PLACEABLE, _S.WAITING_FOR_ACTOR_CREATION, _S.FAILED, _S.CANCELLED}),
        _S.WAITING_FOR_ACTOR_CREATION: frozenset({_S.SWAP, _S.RUNNING, _S.FAILED, _S.CANCELLED}),
        _S.INFEASIBLE: frozenset({_S.PLACEABLE, _S.FAILED, _S.CANCELLED}),
        _S.READY: frozenset({_S.PLACEABLE, _S.INFEASIBLE, _S.SWAP, _S.FAILED, _S.CANCELLED}),
        _S.SWAP: frozenset({_S.PLACEABLE, _S.RUNNING, _S.WAITING_FOR_ACTOR_CREATION, *_ENDS}),
        _S.RUNNING: frozenset({_S.PLACEABLE, _S.BLOCKED, _S.PREEMPTED, _S.WAITING_FOR_ACTOR_CREATION, *_ENDS}),
        _S.BLOCKED: frozenset({_S.PLACEABLE, _S.RUNNING, _S.PREEMPTED, *_ENDS}),
        _S.PREEMPTED: frozenset({_S.PLACEABLE, *_ENDS}),
        _S.DRIVER: _ENDS,
        _S.SUCCEEDED: frozenset(),
        _S.FAILED: frozenset(),
        _S.CANCELLED: frozenset(),
    }
)

#: Its agent is up: it runs, waiting for another task or not.
AT_WORK = frozenset({_S.RUNNING, _S.BLOCKED})
#: Nothing follows these.
TERMINAL = frozenset(state for state, after in TRANSITIONS.items() if not after)


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the node score `alpha * availability - beta * fragmentation + gamma * locality - delta * contention` (seed §5.1)."""

    availability: float = 0.1
    fragmentation: float = 1.0
    locality: float = 0.5
    contention: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """A task as it was submitted; all that its scheduling depends on. The code and arguments are not here."""

    task: TaskId
    pool: PoolName
    resources: ResourceSet = NOTHING
    label: LabelName = NO_LABEL
    tenant: TenantPath = NO_TENANT
    priority: float = DEFAULT_PRIORITY  #: P_base; 8.0 and more may take a reserved placement group.
    selector: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)  #: What the node's labels must say, beside the pool's.
    policy: str = ""  #: Name of a node policy; empty: the pool's.
    weights: Weights | None = None  #: None: those of its label, else of its workload type, else the mesh's.
    workload_type: str = ""
    node: NodeName | None = None  #: For `node_affinity`.
    soft: bool = False  #: For `node_affinity`: elsewhere, when that node is gone or could never hold it.
    local_bytes: Mapping[NodeName, int] = field(default_factory=lambda: NO_BYTES)  #: Where how much of its arguments lies.
    after: tuple[TaskId, ...] = ()  #: Not before these have succeeded.
    agent: AgentId | None = None  #: A call on this agent, which the agent itself runs: takes no room.
    job: JobId | None = None
    role: str = ""  #: In its job: `leader` or the name of a worker set.
    gang: str = ""  #: Tasks of one gang are admitted all together or not at all.
    gang_size: int = 0  #: How many tasks the gang has; the gang is looked at when all are known.
    estimated_ms: int | None = None  #: How long it will run, as far as its user knows.
    preemptible: bool = True
    has_agent: bool = True  #: False: it only holds a placement group, for whoever asked for it.
    max_restarts: int = 0  #: How often it is started again after its agent was lost; -1: always.
    bundles: tuple[ResourceSet, ...] = field(default=())  #: Its placement group, where that is more than one bundle of `resources`.
    strategy: str = "PACK"  #: Of that group, in Ray's words.
    work: str = ""  #: A digest of what it runs: the same name with other work is another task.
