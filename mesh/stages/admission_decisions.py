"""What stage admission wants done: frozen values, imperative."""

from dataclasses import dataclass

from mesh.core.ids import FlavorName, PoolName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireLease:
    """Ask the federation for up to `demand` slots; room for them is reserved in the pool."""

    workload: StageId
    tenant: TenantPath
    pool: PoolName
    flavor: FlavorName
    slot: ResourceSet
    demand: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkload:
    """Run the work on `slots` slots of the pool, under the lease that pays for them."""

    workload: StageId
    pool: PoolName
    slot: ResourceSet
    slots: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLease:
    """Give the work's lease back."""

    workload: StageId


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainWaiting:
    """Tell whoever asks why the work waits."""

    workload: StageId
    reason: Reason
    detail: str


AdmissionDecision = AcquireLease | StartWorkload | ReleaseLease | ExplainWaiting
