"""Requests for tasks, and the states of a task.

States and names are Ray's (`scheduling_queue.h`), plus `PREEMPTED` and the terminal ones. The scheduler, the docs and the tests read one
table, `TRANSITIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from mesh.core.ids import AgentId, JobId, LabelName, NodeName, PoolName, TaskId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet

NO_LABELS: Mapping[str, str] = MappingProxyType({})
NO_BYTES: Mapping[NodeName, int] = MappingProxyType({})
NO_LABEL, NO_TENANT = LabelName(""), TenantPath("")
DEFAULT_PRIORITY = 5.0


class TaskState(str, Enum):
    """State of a task."""

    PLACEABLE = "PLACEABLE"
    """Queued: it is placed as soon as a node has capacity."""
    WAITING = "WAITING"
    """Queued: its dependencies or arguments are not ready."""
    WAITING_FOR_ACTOR_CREATION = "WAITING_FOR_ACTOR_CREATION"
    """Call on an agent that is not up yet."""
    INFEASIBLE = "INFEASIBLE"
    """No node could run it even when empty; tried again when a node joins or grows."""
    READY = "READY"
    """Placed: node resources are promised, its placement group is being created."""
    SWAP = "SWAP"
    """Start ordered, not yet confirmed."""
    RUNNING = "RUNNING"
    """Its agent is up and runs it."""
    BLOCKED = "BLOCKED"
    """Running, and waiting for another task's output."""
    PREEMPTED = "PREEMPTED"
    """Preempted: its state is being saved or is saved; it returns to its position in the queue."""
    DRIVER = "DRIVER"
    """Program of a user: counted, never scheduled."""
    SUCCEEDED = "SUCCEEDED"
    """Over: it ended successfully by itself."""
    FAILED = "FAILED"
    """Over: its code raised, or its agent was lost more often than allowed."""
    CANCELLED = "CANCELLED"
    """Over: it was cancelled."""


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

#: States in which its agent is up, whether the task waits for another one or not.
AT_WORK = frozenset({_S.RUNNING, _S.BLOCKED})
#: States that nothing follows.
TERMINAL = frozenset(state for state, after in TRANSITIONS.items() if not after)


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the node score `alpha * availability - beta * fragmentation + gamma * locality - delta * contention`."""

    availability: float = 0.1
    fragmentation: float = 1.0
    locality: float = 0.5
    contention: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """Task as submitted, with all that its scheduling depends on; code and arguments are elsewhere."""

    task: TaskId
    pool: PoolName
    resources: ResourceSet = NOTHING
    label: LabelName = NO_LABEL
    tenant: TenantPath = NO_TENANT
    priority: float = DEFAULT_PRIORITY  #: P_base; 8.0 and more may use a reserved placement group.
    selector: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)  #: Required node labels, in addition to the pool's.
    policy: str = ""  #: Name of a node policy; empty: the pool's.
    weights: Weights | None = None  #: None: weights of its label, else of its workload type, else the mesh's.
    workload_type: str = ""
    node: NodeName | None = None  #: For `node_affinity`.
    soft: bool = False  #: For `node_affinity`: use another node if that one is gone or too small.
    local_bytes: Mapping[NodeName, int] = field(default_factory=lambda: NO_BYTES)  #: Bytes of its arguments by node.
    after: tuple[TaskId, ...] = ()  #: It starts only when these have succeeded.
    agent: AgentId | None = None  #: Call on this agent, which runs it; it takes no resources.
    job: JobId | None = None
    role: str = ""  #: Role in its job: `leader` or the name of a worker set.
    gang: str = ""  #: Tasks of one gang are admitted all together or not at all.
    gang_size: int = 0  #: Number of tasks in the gang; it is admitted only once all are known.
    estimated_ms: int | None = None  #: Expected run time, as estimated by its user.
    preemptible: bool = True
    has_agent: bool = True  #: False: it only holds a placement group for its requester.
    max_restarts: int = 0  #: Restarts after loss of its agent; -1: unlimited.
    bundles: tuple[ResourceSet, ...] = field(default=())  #: Its placement group, if more than one bundle of `resources`.
    strategy: str = "PACK"  #: Strategy of that group, as in Ray.
    work: str = ""  #: Digest of its payload: the same id with another payload is another task.
