"""Decisions of stage admission: frozen values, imperative."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.core.ids import FlavorName, GroupId, NodeName, PoolName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireLease:
    """Request a lease for up to `demand` slots, or so many more; room for them is reserved in the pool."""

    workload: StageId
    tenant: TenantPath
    pool: PoolName
    flavor: FlavorName
    slot: ResourceSet
    demand: int
    is_growth: bool = False  #: The workload runs, and the lease pays for slots already.


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkload:
    """Run the workload on `slots` slots of the pool, under its lease."""

    workload: StageId
    pool: PoolName
    slot: ResourceSet
    slots: int
    token: int
    nodes: tuple[NodeName, ...] = ()  #: Node of each slot in no reserved group, or of each bundle, gang after gang; empty: Ray places them.
    groups: Mapping[GroupId, NodeName] = field(default_factory=dict)  #: Reserved groups, a slot each, with their nodes.


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowWorkload:
    """Give the running workload `slots` more slots of its pool, under its lease."""

    workload: StageId
    slots: int
    token: int
    nodes: tuple[NodeName, ...] = ()  #: Nodes of these slots, as for `StartWorkload`.
    groups: Mapping[GroupId, NodeName] = field(default_factory=dict)  #: Reserved groups among these slots, with their nodes.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLease:
    """Release the workload's lease."""

    workload: StageId


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainWaiting:
    """Report why the workload waits."""

    workload: StageId
    reason: Reason
    detail: str


AdmissionDecision = AcquireLease | StartWorkload | GrowWorkload | ReleaseLease | ExplainWaiting
