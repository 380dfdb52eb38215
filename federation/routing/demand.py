"""What a piece of work asks of a mesh."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.quota.policies import NO_SETTINGS, QueueSettings
from mesh.ids import MeshId, TenantPath
from mesh.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a piece of work asks of a mesh."""

    tenant: TenantPath
    slot: ResourceSet  #: The least that must be granted at once for it to start.
    labels: Mapping[str, str] = field(default_factory=dict)  #: See `mesh.labels.mismatch`.
    mesh: MeshId | None = None  #: Only this one, when set.
    near: Mapping[MeshId, int] = field(default_factory=dict)  #: Bytes of its inputs by the mesh that they lie in.
    settings: QueueSettings = NO_SETTINGS  #: Of its tenant. Without an order of flavors in it, they are all alike.
