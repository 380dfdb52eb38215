"""Workloads that want slots, by kind: which of them are tried next, in which order, and why the others wait. Pure.

A refusal holds for a whole kind (`admission_kinds`), so only kinds with a change are tried again, and only kinds whose reason may have
changed are explained again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from mesh.core.counting import counted
from mesh.core.ids import PoolName, StageId, TenantPath
from mesh.core.pools import Pool
from mesh.core.reasons import PASSING, Reason
from mesh.core.shapes import SlotShape
from mesh.stages.admission_decisions import ExplainWaiting
from mesh.stages.admission_kinds import CrowdKey, Crowds, Kind, KindKey, Turn, aged
from mesh.stages.admission_order import StrictQueues
from mesh.stages.admission_room import AdmissionRoom
from mesh.stages.hosting import NO_POOL
from mesh.stages.stage_settings import NO_QUEUE, QueueRules, StageSettings
from mesh.stages.workloads import Workload

#: Refusals that more quota may lift.
LACK_OF_QUOTA = frozenset({Reason.QUOTA_EXHAUSTED, Reason.QUOTA_CONTESTED})
#: Refusals that room in a pool may lift.
LACK_OF_ROOM = frozenset({Reason.POOL_BUSY, Reason.CAPACITY_RESERVED})
#: First workload of a kind, the kind, and the room for which it waits; (): it is tried without a question about room.
_Trial = tuple[Turn, KindKey, CrowdKey | tuple[()]]
#: Change of a tenant's queue under `strict_order`: see `StrictQueues`.
_Change = Callable[[TenantPath, Turn], tuple[Turn, ...]]
#: Does not name the workload ahead: each start would then be a new reason for the whole queue.
_BEHIND = (Reason.BEHIND_HEAD, "work of its tenant that comes before it waits on this mesh, and starts first (strict_order)")


class WaitingKinds:
    """All kinds of a mesh.

    Args:
        workloads: All workloads of the mesh.
        room: Answers whether a pool has room for a slot.
    """

    def __init__(self, workloads: Mapping[StageId, Workload], room: AdmissionRoom) -> None:
        self._workloads = workloads
        self._room = room
        self._kinds: dict[KindKey, Kind] = {}
        self._crowds = Crowds()
        self._unleased: dict[TenantPath, dict[KindKey, None]] = {}  #: Kinds that a lease was refused to since quota last came.
        self._has_freed = False  #: Room has come; `fits` asks for which slots.
        self._open: set[KindKey] = set()  #: Kinds that some pool has not refused yet.
        self._unexplained: dict[KindKey, None] = {}  #: Kinds whose reason for waiting may have changed, in order.
        self._strict_queues = StrictQueues()
        #: Refusals for want of room, shared by all kinds with this slot until the next reservation.
        self._refusals: dict[tuple[SlotShape, PoolName, bool], tuple[Reason, str]] = {}

    def kind(self, key: KindKey, rules: QueueRules = NO_QUEUE) -> Kind:
        """Return the kind, a new one if it is not kept."""
        return self._kinds.get(key) or Kind(key=key, crowds=self._crowds, rules=rules)

    def is_behind(self, workload: Workload) -> bool:
        """Return whether `strict_order` makes the workload wait for others of its tenant."""
        return workload.offer.preemption.in_order and self._strict_queues.first(workload.offer.tenant) != workload.turn

    # -- queued workloads ----------------------------------------------------------------------------------------------

    def enter(self, workload: Workload) -> None:
        """Queue a new workload."""
        self._queue(workload)
        self._change_order(workload, self._strict_queues.add)

    def _queue(self, workload: Workload) -> None:
        key = workload.key
        workload.kind = self._kinds.setdefault(key, workload.kind)
        workload.kind.rules = workload.rules
        self._want_slots(workload.kind, workload.turn)
        self._unexplained[key] = None

    def _want_slots(self, kind: Kind, turn: Turn) -> None:
        """Add the workload to the kind. Nobody has looked for room while the kind had none."""
        if not kind.queue:
            self._lift_where_room_is(kind)
        kind.add(turn)
        self._open.add(kind.key)

    def _lift_where_room_is(self, kind: Kind) -> None:
        """Let the kind try the pools again that have refused it for want of room, and have room by now."""
        for pool in tuple(kind.crowded):
            if self._room.has(kind.room_in(pool)):
                kind.lift(pool)

    def leave(self, workload: Workload, *, was_queued: bool) -> None:
        """Forget a workload that is gone. `was_queued`: it waited with its kind."""
        self._change_order(workload, self._strict_queues.remove)
        if was_queued:
            workload.kind.remove(workload.turn)
        self._unexplained[workload.key] = None

    def set_apart(self, workload: Workload) -> None:
        """Take a queued workload out of its kind: room is reserved for it alone. It stays the first of a strict queue."""
        workload.kind.remove(workload.turn)
        self._change_order(workload, self._strict_queues.start_reservation)

    def put_back(self, workload: Workload) -> None:
        """Queue a workload again that got no lease, or no room in time."""
        self._queue(workload)
        self._change_order(workload, self._strict_queues.end_reservation)

    def start(self, workload: Workload) -> None:
        """Note that a workload starts."""
        self.end_request(workload)
        self._change_order(workload, self._strict_queues.remove)

    def _change_order(self, workload: Workload, change: _Change) -> None:
        """Under `strict_order`, change the tenant's queue; try and explain its old and its new head again."""
        for turn in change(workload.offer.tenant, workload.turn) if workload.offer.preemption.in_order else ():
            other = self._workloads.get(turn[-1])
            if other is not None and other.key in self._kinds:
                self._unexplained[other.key] = None
                self._open.add(other.key)
        if workload.offer.preemption.in_order and self._strict_queues.first(workload.offer.tenant) is None:
            self._open.update(key for key in self._kinds if key[0] == workload.offer.tenant and key[2] != NO_POOL)

    # -- running workloads that could use more slots -------------------------------------------------------------------

    def want_growth(self, workload: Workload) -> None:
        """Queue the running workload for more slots, if it could use them."""
        self.leave_growth(workload)
        if workload.slots < workload.useful and workload.offer.slot and not workload.asked:
            key = workload.growth_key
            workload.growth = self._kinds.setdefault(key, self.kind(key))
            self._want_slots(workload.growth, workload.growth_turn)

    def leave_growth(self, workload: Workload) -> None:
        """Take the running workload out of the queue for more slots."""
        if workload.growth is not None and not workload.asked:
            workload.growth.remove(workload.growth_turn)
            workload.growth = None
            self._unexplained[workload.growth_key] = None

    def refuse_more(self, workload: Workload) -> None:
        """Note that the lease does not cover more slots, until the federation reports new quota."""
        if workload.growth is not None and workload.pool is not None:
            detail = f"the lease covers {workload.slots} of {counted(workload.useful, 'slot')}"
            self.refuse_lease(workload.growth, workload.pool, (Reason.QUOTA_EXHAUSTED, detail))

    # -- lease requests ------------------------------------------------------------------------------------------------

    def end_request(self, workload: Workload) -> None:
        """Note that its lease request is answered."""
        workload.kind.asking -= 1
        self._unexplained[workload.key] = None

    def end_growth_request(self, workload: Workload) -> int:
        """Note that its request for further slots is answered; return for how many slots it was."""
        asked, workload.asked = workload.asked, 0
        if workload.growth is not None:
            workload.growth.asking -= 1
            workload.growth = None
        self._unexplained[workload.growth_key] = None
        return asked

    def refuse_lease(self, kind: Kind, pool: PoolName, refusal: tuple[Reason, str]) -> None:
        """Note that no lease was granted, until new quota is reported."""
        kind.refuse_lease(pool, refusal)
        self._unleased.setdefault(kind.key[0], {})[kind.key] = None

    # -- what may have changed -----------------------------------------------------------------------------------------

    def reopen(self, key: KindKey) -> None:
        """Try a kind again in every pool."""
        self._kinds[key].reopen()
        self._open.add(key)

    def reopen_all(self) -> None:
        """Try every kind again."""
        for key in self._kinds:
            self.reopen(key)

    def quota_came(self, tenant: TenantPath | None = None) -> None:
        """Try the kinds of the tenant again that no lease was granted to; None: those of all tenants."""
        for each in (tenant,) if tenant is not None else tuple(self._unleased):
            for key in self._unleased.pop(each, ()):
                if key in self._kinds:
                    self.reopen(key)
        self.capacity_came()

    def capacity_came(self) -> None:
        """Lift refusals for want of room, where there is room when kinds are tried. Refused leases stand until new quota is reported.

        A kind that still does not fit keeps its refusal: wording it again for each ended stage would cost more than the stages. Where
        other kinds take the room, the first of those that waited for it is refused in new words.
        """
        self._has_freed = True

    def explain_again(self, workload: Workload) -> None:
        """Note that the reason why the workload waits may have changed."""
        self._unexplained[workload.key] = None

    def sort_again(self, settings: StageSettings) -> None:
        """Follow other settings, after the workloads have taken over their rules."""
        for (tenant, _, pool, _), kind in self._kinds.items():
            known = [self._workloads[name] for *_, name in kind.queue]
            rules = settings.queue_of(tenant) if pool == NO_POOL else NO_QUEUE
            kind.sort_again(rules, (workload.turn if pool == NO_POOL else workload.growth_turn for workload in known))
        self._strict_queues.sort_again(lambda turn: self._workloads[turn[-1]].turn)
        self.reopen_all()
        self._unexplained.update(dict.fromkeys(self._kinds))

    # -- trials --------------------------------------------------------------------------------------------------------

    def fits(self, now_ms: int) -> Iterator[tuple[Workload, Pool]]:
        """Try the first workload of each kind, the most urgent kind first, until every pool has refused each kind.

        Yield each workload with a pool that has room for a slot of it; the caller takes the room before it asks for the next one.

        Of the kinds that wait for the same room, only the first is among those that are tried. The next follows it as long as there is
        room.
        """
        heap: list[_Trial] = [(kind.first_at(now_ms), key, ()) for key in self._open if (kind := self._kinds[key]).queue]
        heapify(heap)
        for freed in self._crowds if self._has_freed else ():
            self._follow(freed, heap, now_ms)
        self._has_freed = False
        self._refusals.clear()
        while heap:
            turn, key, crowd = heappop(heap)
            kind = self._kinds[key]
            if crowd:
                if self._first_of(crowd, now_ms) != (turn, key):
                    self._follow(crowd, heap, now_ms)
                    continue  # It is tried already: for other room, or as a kind with a change.
                self._lift_where_room_is(kind)  # In all pools, of which its tenant may prefer another.
                kind.lift(crowd.pool)  # If kinds before it have taken the room, it is refused in new words.
            workload = self._workloads[turn[-1]]
            pool = self._try_to_grow(workload, kind) if key[2] != NO_POOL else self._try_to_start(workload)
            if pool is not None:
                kind.remove(kind.queue[0])
                kind.asking += 1
                yield workload, pool
                self._refusals.clear()
                if kind.queue:
                    heappush(heap, (kind.first_at(now_ms), key, ()))
            self._unexplained[key] = None
            if crowd:
                self._follow(crowd, heap, now_ms)
        self._open.clear()

    def _follow(self, crowd: CrowdKey, heap: list[_Trial], now_ms: int) -> None:
        """If there is room, let the first kind that waits for it be tried."""
        first = self._first_of(crowd, now_ms) if self._room.has(crowd) else None
        if first is not None:
            heappush(heap, (*first, crowd))

    def _first_of(self, crowd: CrowdKey, now_ms: int) -> tuple[Turn, KindKey] | None:
        """Return the first kind that waits for this room, with its turn as it compares with those of other kinds now."""
        first = self._crowds.first(crowd)
        return (aged(first[0], crowd.rules, now_ms), first[1]) if first is not None else None

    def _try_to_start(self, workload: Workload) -> Pool | None:
        if self.is_behind(workload):
            return None
        return self._try_pools(workload, workload.kind, self._room.in_order(workload.offer.preemption.flavors))

    def _try_to_grow(self, workload: Workload, kind: Kind) -> Pool | None:
        if workload.offer.preemption.in_order and self._strict_queues.first(workload.offer.tenant) is not None:
            return None  # The head of the queue comes first.
        return self._try_pools(workload, kind, (self._room.ledger.pool(workload.pool or NO_POOL),))

    def _try_pools(self, workload: Workload, kind: Kind, pools: Iterable[Pool]) -> Pool | None:
        """Return the first of the pools with room for a slot, skipping pools that have refused the kind."""
        for pool in pools:
            name = pool.spec.pool
            if name in kind.refused_by:
                continue
            if self._room.has(kind.room_in(name)):
                return pool
            key = kind.shape, name, name in kind.reserves
            refusal = self._refusals.get(key)
            if refusal is None:
                refusal = self._refusals[key] = self._room.refusal(workload, pool)
            kind.refuse_room(name, refusal)
        return None

    # -- reasons -------------------------------------------------------------------------------------------------------

    def explain(self) -> Iterator[ExplainWaiting]:
        """Report new reasons for waiting. Skip kinds with a lease request: its answer will be the reason for all of the kind."""
        for key in [key for key in self._unexplained if key not in self._kinds or not self._kinds[key].asking]:
            del self._unexplained[key]
            kind = self._kinds.get(key)
            if kind is not None and not kind.queue:
                del self._kinds[key]
            elif kind is not None and key[2] == NO_POOL:
                explanation = kind.explanation(PASSING) if kind.refused_by else _BEHIND
                for *_, name in kind.queue:
                    workload = self._workloads[name]
                    because = _BEHIND if self.is_behind(workload) else explanation
                    if workload.delayed and because[0] in LACK_OF_ROOM:
                        because = (Reason.PREEMPTION_LIMIT, workload.delayed)
                    yield from explain_one(workload, *because)

    def check(self, settings: StageSettings) -> Iterator[str]:
        """Yield a message per queue that is not in the order of its workloads' present positions, and per kind with a wrong place."""
        crowded = {(kind.room_in(pool), kind.queue[0], key) for key, kind in self._kinds.items() if kind.queue for pool in kind.crowded}
        listed = {(crowd, turn, key) for crowd in self._crowds for turn, key in self._crowds.listed(crowd)}
        yield from (f"{key} waits for {crowd.shape} in {crowd.pool} as {turn}" for crowd, turn, key in crowded ^ listed)
        yield from (f"{crowd.pool} has room for {crowd.shape}, and kinds wait for it" for crowd in self._crowds if self._room.has(crowd))
        for (tenant, _, pool, _), kind in self._kinds.items():
            known = [self._workloads[name] for *_, name in kind.queue]
            turns = sorted(workload.turn if pool == NO_POOL else workload.growth_turn for workload in known)
            if kind.queue != turns or any(workload.rules != settings.queue_of(tenant) for workload in known):
                yield f"a queue of {tenant} is {kind.queue}, expected {turns}"


def explain_one(workload: Workload, reason: Reason, detail: str) -> list[ExplainWaiting]:
    """Report why the workload waits, unless that was the last report."""
    if workload.reported == (reason, detail):
        return []
    workload.reported = (reason, detail)
    return [ExplainWaiting(workload=workload.offer.workload, reason=reason, detail=detail)]
