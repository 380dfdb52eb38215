"""Answers the verbs about pools and the slots in them."""

from __future__ import annotations

from collections.abc import Iterable

from mesh.core.ids import PoolName
from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.ray.local.status_values import PoolStatus, RequestRefused, SlotReserved
from mesh.ray.local.supervision_errors import SubmissionError
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.tasks.decisions import AnswerSlot, Decision
from mesh.tasks.events import PoolConfigured, PoolDeleted, SlotAsked, SlotCommitted, SlotReleased
from mesh.tasks.request_validation import misspelt_resource


class PoolService:
    def __init__(self, loop: ControlLoop) -> None:
        self._loop = loop

    async def configure_pool(self, spec: PoolSpec) -> PoolStatus:
        known = self._loop.state.pools.pools.get(spec.pool)
        if known is None or known.is_closing or known.spec != spec:
            misspelt = misspelt_resource(self._loop.state, spec.capacity)
            if misspelt:
                raise SubmissionError(f"capacity of pool {spec.pool}: {misspelt}")
            self._loop.send(PoolConfigured(at_ms=self._loop.clock.now_ms(), spec=spec))
        return await self.pool(spec.pool)

    async def pool_spec(self, pool: PoolName) -> PoolSpec | None:
        known = self._loop.state.pools.pools.get(pool)
        return known.spec if known is not None else None

    async def delete_pool(self, pool: PoolName) -> None:
        if pool in self._loop.state.pools.pools:
            self._loop.send(PoolDeleted(at_ms=self._loop.clock.now_ms(), pool=pool))

    async def pool(self, pool: PoolName) -> PoolStatus:
        statuses = await self.pools()
        views.check_pool(self._loop.state, pool)
        return next(status for status in statuses if status.pool == pool)

    async def pools(self) -> list[PoolStatus]:
        return views.pool_statuses(self._loop.state, self._loop.task_index)

    async def reserve_slot(self, slot: str, pool: PoolName, resources: ResourceSet) -> SlotReserved | RequestRefused:
        if resources == self._loop.state.pools.held_by(slot).get(pool):
            return SlotReserved(slot=slot, pool=pool, resources=resources)
        views.check_pool(self._loop.state, pool, resources)
        at_ms = self._loop.clock.now_ms()
        refused = _refusal(slot, self._loop.send(SlotAsked(at_ms=at_ms, slot=slot, pool=pool, resources=resources)))
        return refused if refused is not None else SlotReserved(slot=slot, pool=pool, resources=resources)

    async def commit_slot(self, slot: str) -> RequestRefused | None:
        return _refusal(slot, self._loop.send(SlotCommitted(at_ms=self._loop.clock.now_ms(), slot=slot)))

    async def release_slot(self, slot: str) -> RequestRefused | None:
        return _refusal(slot, self._loop.send(SlotReleased(at_ms=self._loop.clock.now_ms(), slot=slot)))


def _refusal(slot: str, decisions: Iterable[Decision]) -> RequestRefused | None:
    answer = next(decision for decision in decisions if isinstance(decision, AnswerSlot) and decision.slot == slot)
    return None if answer.refused is None else RequestRefused(reason=answer.refused, detail=answer.detail)
