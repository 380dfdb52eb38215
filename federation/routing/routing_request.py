"""Demand: the needs of work that is to be routed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.quota.policies import NO_SETTINGS, QueueSettings
from mesh.core.ids import MeshId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRequest:
    """Needs of work that is to be routed."""

    tenant: TenantPath
    slot: ResourceSet  #: The least that must be granted at once for the work to start.
    priority: int = 0  #: Priority of the work; work at the threshold of a pool or above may take its reserved groups.
    gang: Gang | None = None  #: Bundles that the slot consists of; None: it lies on one node.
    labels: Mapping[str, str] = field(default_factory=dict)  #: Required labels, as in `mesh.core.labels.mismatch`.
    mesh: MeshId | None = None  #: If set, the only mesh allowed.
    near: Mapping[MeshId, int] = field(default_factory=dict)  #: Bytes of its inputs by the mesh that stores them.
    settings: QueueSettings = NO_SETTINGS  #: Settings of its tenant. Without an order of flavors, all flavors are equal.
