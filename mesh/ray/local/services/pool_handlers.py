"""Requests about pools and the slots in them."""

from __future__ import annotations

from typing import Any

from mesh.core.ids import PoolName
from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.ray.local.status_values import PoolStatus, RequestRefused, SlotReserved
from mesh.ray.local.supervision_errors import SubmissionError
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.supervised_mesh import SupervisedMesh
from mesh.tasks.decisions import AnswerSlot
from mesh.tasks.events import PoolConfigured, PoolDeleted, SlotAsked, SlotCommitted, SlotReleased
from mesh.tasks.request_validation import misspelt_resource


class PoolHandlers(SupervisedMesh):
    async def configure_pool(self, spec: PoolSpec) -> PoolStatus:
        """Create the pool, or change it.

        Raises:
            SubmissionError: No node has a resource of the capacity, and its name is close to an existing one.
        """
        await self._ready
        known = self._state.pools.pools.get(spec.pool)
        if known is None or known.is_closing or known.spec != spec:
            misspelt = misspelt_resource(self._state, spec.capacity)
            if misspelt:
                raise SubmissionError(f"capacity of pool {spec.pool}: {misspelt}")
            self._loop.send(PoolConfigured(at_ms=self._clock.now_ms(), spec=spec))
        return await self.pool(spec.pool)

    async def pool_spec(self, pool: PoolName) -> PoolSpec | None:
        """Return the pool's configuration; None: there is no such pool."""
        await self._ready
        known = self._state.pools.pools.get(pool)
        return known.spec if known is not None else None

    async def delete_pool(self, pool: PoolName) -> None:
        """Close the pool to new tasks and cancel its tasks. Does nothing when there is no such pool."""
        await self._ready
        if pool in self._state.pools.pools:
            self._loop.send(PoolDeleted(at_ms=self._clock.now_ms(), pool=pool))

    async def pool(self, pool: PoolName) -> PoolStatus:
        """Return one pool. Raises `PoolUnknown`."""
        statuses = await self.pools()
        views.check_pool(self._state, pool)
        return next(status for status in statuses if status.pool == pool)

    async def pools(self) -> list[PoolStatus]:
        await self._ready
        return views.pool_statuses(self._state, self._loop.task_index)

    async def reserve_slot(self, slot: str, pool: PoolName, resources: ResourceSet) -> SlotReserved | RequestRefused:
        """Reserve quota under the name. Idempotent. Raises `PoolUnknown`, `SubmissionError`."""
        await self._ready
        if resources == self._state.pools.held_by(slot).get(pool):
            return SlotReserved(slot=slot, pool=pool, resources=resources)
        views.check_pool(self._state, pool, resources)
        refused = self._slot_answer(slot, self._loop.send(SlotAsked(at_ms=self._clock.now_ms(), slot=slot, pool=pool, resources=resources)))
        return refused if refused is not None else SlotReserved(slot=slot, pool=pool, resources=resources)

    async def commit_slot(self, slot: str) -> RequestRefused | None:
        """Turn the slot's reserved quota into used quota."""
        await self._ready
        return self._slot_answer(slot, self._loop.send(SlotCommitted(at_ms=self._clock.now_ms(), slot=slot)))

    async def release_slot(self, slot: str) -> RequestRefused | None:
        """Release the slot's quota. Idempotent."""
        await self._ready
        return self._slot_answer(slot, self._loop.send(SlotReleased(at_ms=self._clock.now_ms(), slot=slot)))

    def _slot_answer(self, slot: str, decisions: list[Any]) -> RequestRefused | None:
        answer = next(decision for decision in decisions if isinstance(decision, AnswerSlot) and decision.slot == slot)
        return None if answer.refused is None else RequestRefused(reason=answer.refused, detail=answer.detail)
