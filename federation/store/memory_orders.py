"""What holds for tenants, in memory: for tests, simulation and a federation of one process."""

import threading
from dataclasses import replace

from federation.quota.policies import StandingOrders
from federation.tenant_orders import OrdersInForce, TenantStop
from mesh.ids import TenantPath


class MemoryTenantOrders:
    """`TenantOrders` in this process; safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_force = OrdersInForce()

    def publish(self, filed: StandingOrders) -> None:
        """See `TenantOrders.publish`."""
        with self._lock:
            self._in_force = replace(self._in_force, filed=filed)

    def stop(self, tenant: TenantPath, stopped: TenantStop) -> None:
        """See `TenantOrders.stop`."""
        with self._lock:
            self._in_force = replace(self._in_force, stops={**self._in_force.stops, tenant: stopped})

    def release(self, tenant: TenantPath) -> bool:
        """See `TenantOrders.release`."""
        with self._lock:
            left = {path: stopped for path, stopped in self._in_force.stops.items() if path != tenant}
            was_stopped = len(left) < len(self._in_force.stops)
            if was_stopped:
                self._in_force = replace(self._in_force, stops=left)
            return was_stopped

    def in_force(self) -> OrdersInForce:
        """See `TenantOrders.in_force`."""
        with self._lock:
            return self._in_force
