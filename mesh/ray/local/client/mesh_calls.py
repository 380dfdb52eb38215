"""Base of all calls to a mesh: its name, and the link to its supervisor."""

from __future__ import annotations

from mesh.core.ids import PoolName
from mesh.core.pools import PoolSpec
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.status_values import (
    PoolStatus,
)
from mesh.ray.local.supervision_errors import PoolUnknown
from mesh.ray.local.verbs import PoolVerbs


class MeshCalls:
    """Client of one mesh; subclasses hold the calls."""

    def __init__(self, name: str, *, namespace: str) -> None:
        self.name = name
        self._link = SupervisorLink(name, namespace)

    def _pool_spec(self, name: str) -> PoolSpec:
        """Return the pool's configuration. Raises `PoolUnknown`."""
        spec: PoolSpec | None = self._link.ask(PoolVerbs.pool_spec, PoolName(name))
        if spec is None:
            raise PoolUnknown(name, tuple(pool.pool for pool in self._link.ask(PoolVerbs.pools)))
        return spec

    def _configure(self, spec: PoolSpec) -> PoolStatus:
        status: PoolStatus = self._link.ask(PoolVerbs.configure_pool, spec)
        return status
