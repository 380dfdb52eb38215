"""Settings of tenants in memory: for tests, simulations and a federation in one process."""

import threading
from dataclasses import replace

from federation.quota.policies import TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce, TenantStop
from mesh.core.ids import TenantPath


class MemoryTenantPolicies:
    """`TenantPolicyStore` in this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_force = PoliciesInForce()

    def publish(self, filed: TenantPolicies) -> None:
        with self._lock:
            self._in_force = replace(self._in_force, filed=filed)

    def stop(self, tenant: TenantPath, stopped: TenantStop) -> None:
        with self._lock:
            self._in_force = replace(self._in_force, stops={**self._in_force.stops, tenant: stopped})

    def release(self, tenant: TenantPath) -> bool:
        with self._lock:
            left = {path: stopped for path, stopped in self._in_force.stops.items() if path != tenant}
            was_stopped = len(left) < len(self._in_force.stops)
            if was_stopped:
                self._in_force = replace(self._in_force, stops=left)
            return was_stopped

    def in_force(self) -> PoliciesInForce:
        with self._lock:
            return self._in_force
