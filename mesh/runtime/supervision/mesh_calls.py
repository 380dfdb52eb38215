"""What all calls to a mesh share: its name, and the way to its supervisor."""

from __future__ import annotations

from mesh.ids import PoolName
from mesh.pools import PoolSpec
from mesh.runtime.supervision.answers import (
    PoolStatus,
)
from mesh.runtime.supervision.supervision_errors import PoolUnknown
from mesh.runtime.supervision.supervisor_link import SupervisorLink


class MeshCalls:
    """A mesh in the hands of a program; the calls themselves are in the classes that stand on this one."""

    def __init__(self, name: str, *, namespace: str) -> None:
        self.name = name
        self._link = SupervisorLink(name, namespace)
        self._pools_seen: set[str] = set()

    def _pool_spec(self, name: str) -> PoolSpec:
        """As it is configured. Raises `PoolUnknown`."""
        spec: PoolSpec | None = self._link.ask("pool_spec", PoolName(name))
        if spec is None:
            raise PoolUnknown(name, tuple(pool.pool for pool in self._link.ask("pools")))
        return spec

    def _known_pool(self, name: str) -> PoolName:
        """The name, where there is such a pool; one that was seen once is not asked for again. Raises `PoolUnknown`."""
        if name not in self._pools_seen:
            self._pools_seen.add(self._pool_spec(name).pool)
        return PoolName(name)

    def _configure(self, spec: PoolSpec) -> PoolStatus:
        status: PoolStatus = self._link.ask("configure_pool", spec)
        return status
