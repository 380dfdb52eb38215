"""Laws of admission under any interleaving: consistent state, and no admissible work forgotten."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.shapes import UNBOUNDED, Gang, GroupPoolSpec, GroupShape
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease, ExplainWaiting, GrowWorkload, ReleaseLease, StartWorkload
from mesh.stages.admission_events import (
    ClockRead,
    LeaseCameFree,
    LeaseGranted,
    LeaseRefused,
    NodesSeen,
    PreemptionDelayed,
    PromiseEnded,
    RoomMayHaveCome,
    RoomPromised,
    SettingsChanged,
    SlotsRetired,
    UsefulSlotsKnown,
    WorkloadEnded,
    WorkloadOffered,
    WorkloadWithdrawn,
)
from mesh.stages.admission_invariants import violations
from mesh.stages.stage_settings import NodeWeights, QueueRules, StageSettings
from mesh.stages.workloads import WorkloadState

REFUSALS = [Reason.QUOTA_EXHAUSTED, Reason.QUOTA_TOO_SMALL, Reason.LEDGER_UNREACHABLE]
queues = st.dictionaries(
    st.sampled_from(["acme", "other", "*"]),
    st.builds(QueueRules, priority=st.integers(-2, 2), aging_per_s=st.sampled_from([0, 10**5, 10**6])),
)
gangs = st.builds(
    lambda size, cpu, strategy: Gang(size=size, bundle=ResourceSet({"cpu": cpu}), strategy=strategy),
    st.integers(1, 4),
    st.integers(1, 2),
    st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]),
)
slots = st.builds(lambda cpu, gpu: ResourceSet({"cpu": cpu, "gpu": gpu}), st.integers(0, 4), st.integers(0, 2))


def node_of(number, cpu):
    amounts = ResourceSet({"cpu": cpu, "gpu": 2})
    return NodeSeen(node=f"n{number}", total=amounts, labels={}, available=amounts)


class AnyInterleaving(RuleBasedStateMachine):
    """Open decisions of the scheduler: leases requested and not answered, work started and not ended."""

    names = Bundle("names")
    preemption = PreemptionPolicy(flavors=("f1",))

    @initialize(capacities=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=3))
    def begin(self, capacities):
        pools = [
            PoolSpec(pool=f"p{index}", flavor=f"f{index % 2}", capacity=ResourceSet({"cpu": cpu, "gpu": gpu}))
            for index, (cpu, gpu) in enumerate(capacities)
        ]
        self.capacity = {pool.pool: pool.capacity for pool in pools}
        self.scheduler = StageAdmission(tuple(pools))
        self.asked = {}
        self.running = {}
        self.held = {}  # Slots of each running workload.
        self.count = 0

    def report(self, *events):
        for decision in self.scheduler.handle(*events):
            if isinstance(decision, AcquireLease):
                assert decision.workload not in self.asked
                assert decision.demand >= 1
                self.asked[decision.workload] = decision
            elif isinstance(decision, StartWorkload):
                assert decision.workload not in self.running
                self.running[decision.workload] = decision
                self.held[decision.workload] = decision.slots
            elif isinstance(decision, GrowWorkload):
                self.held[decision.workload] += decision.slots
            elif isinstance(decision, ReleaseLease):
                del self.running[decision.workload], self.held[decision.workload]
            else:
                assert isinstance(decision, ExplainWaiting)
                assert decision.workload in self.scheduler.workloads
                assert decision.detail

    @rule(target=names, slot=slots, width=st.integers(1, 5), priority=st.integers(-1, 1))
    def offer(self, slot, width, priority):
        return self.offered(slot=slot, width=width, priority=priority)

    def offered(self, **about):
        self.count += 1
        name = f"w{self.count}"
        offered = WorkloadOffered(workload=name, tenant="acme", preemption=self.preemption, **about)
        self.report(replace(offered, queued_ms=1_000 * self.count))
        return name

    @rule(queues=queues, fragmentation=st.integers(0, 2_000_000))
    def change_settings(self, queues, fragmentation):
        self.report(SettingsChanged(settings=StageSettings(weights=NodeWeights(fragmentation=fragmentation), queues=queues)))

    @rule(now_ms=st.integers(0, 100_000))
    def read_the_clock(self, now_ms):
        self.report(ClockRead(now_ms=now_ms))

    @rule(name=names, detail=st.sampled_from(["", "until noon"]))
    def delay_preemption(self, name, detail):
        self.report(PreemptionDelayed(workload=name, detail=detail))

    @rule(name=names, slot=slots)
    def offer_again(self, name, slot):
        if name in self.scheduler.workloads:
            known = set(self.scheduler.workloads)
            self.report(WorkloadOffered(workload=name, tenant="other", slot=slot, width=9, priority=9))
            assert set(self.scheduler.workloads) == known

    @precondition(lambda self: self.asked)
    @rule(draw=st.data())
    def grant(self, draw):
        name = draw.draw(st.sampled_from(sorted(self.asked)))
        wanted = self.asked.pop(name)
        granted = draw.draw(st.integers(1, wanted.demand))
        before = self.held.get(name, 0)
        assert wanted.is_growth is (before > 0)
        self.report(LeaseGranted(workload=name, slots=granted, token=1))
        assert (self.held[name], self.running[name].pool, self.running[name].slot) == (before + granted, wanted.pool, wanted.slot)

    @precondition(lambda self: self.asked)
    @rule(draw=st.data(), reason=st.sampled_from(REFUSALS))
    def refuse(self, draw, reason):
        name = draw.draw(st.sampled_from(sorted(self.asked)))
        del self.asked[name]
        self.report(LeaseRefused(workload=name, reason=reason, detail="in words"))

    @rule(name=names, most=st.integers(1, 6))
    def useful_slots_are_known(self, name, most):
        self.report(UsefulSlotsKnown(workload=name, slots=most))

    @rule(name=names, left=st.integers(1, 4))
    def retire(self, name, left):
        self.report(SlotsRetired(workload=name, slots=left))
        if name in self.held:
            self.held[name] = min(self.held[name], left)

    @rule(name=names, draw=st.data())
    def promise(self, name, draw):
        kept = self.scheduler.workloads.get(name)
        fitting = [pool for pool, capacity in self.capacity.items() if kept is not None and kept.offer.slot <= capacity]
        if fitting:
            pool = draw.draw(st.sampled_from(fitting))
            victims = draw.draw(st.sets(st.sampled_from(sorted(self.running)))) if self.running else set()
            self.report(RoomPromised(workload=name, pool=pool, victims=frozenset(victims), until_ms=0, detail="others stop"))

    @rule(name=names)
    def end_promise(self, name):
        self.report(PromiseEnded(workload=name))

    @rule(name=names, withdrawn=st.booleans())
    def end(self, name, withdrawn):
        self.asked.pop(name, None)
        self.report(WorkloadWithdrawn(workload=name) if withdrawn else WorkloadEnded(workload=name))
        assert name not in self.scheduler.workloads
        assert name not in self.running

    @rule()
    def room_may_have_come(self):
        self.report(RoomMayHaveCome())

    @rule(tenant=st.sampled_from(["acme", "other"]))
    def a_lease_came_free(self, tenant):
        self.report(LeaseCameFree(tenant=tenant))

    @invariant()
    def the_state_is_consistent(self):
        assert violations(self.scheduler) == []

    @invariant()
    def never_more_is_admitted_than_a_pool_holds(self):
        for pool, capacity in self.capacity.items():
            running = [each.slot.times(self.held[each.workload]) for each in self.running.values() if each.pool == pool]
            asked = [each.slot.times(each.demand) for each in self.asked.values() if each.pool == pool]
            assert sum([*running, *asked], start=NOTHING) <= capacity

    @invariant()
    def everybody_is_where_the_decisions_put_them(self):
        states = {name: kept.state for name, kept in self.scheduler.workloads.items()}
        assert {name for name, state in states.items() if state is WorkloadState.RESERVED} == set(self.asked) - set(self.running)
        assert {name: kept.slots for name, kept in self.scheduler.workloads.items() if kept.slots} == self.held
        assert {name for name, state in states.items() if state is WorkloadState.RUNNING} == set(self.running)

    @invariant()
    def running_work_that_could_grow_asks_or_was_refused(self):
        for name in self.running:
            kept = self.scheduler.workloads[name]
            could_grow = kept.slots < kept.useful and bool(kept.offer.slot)
            assert could_grow <= (name in self.asked or kept.growth is not None)
            waits = kept.offer.preemption.in_order and any(each.slots == 0 for each in self.scheduler.workloads.values())
            if kept.growth is not None and not kept.asked and not waits:
                assert kept.pool in kept.growth.refused_by
            if name in self.asked and not kept.growth:
                assert kept.asked == self.asked[name].demand

    @invariant()
    def whoever_is_queued_has_been_refused_by_every_pool(self):
        for kept in self.scheduler.workloads.values():
            if kept.state is WorkloadState.QUEUED and not self.scheduler.is_behind(kept):
                assert set(kept.refused_by) == set(self.capacity)
                kind = [each for each in self.scheduler.workloads.values() if each.key == kept.key]
                assert kept.reported is not None or any(each.state is WorkloadState.RESERVED for each in kind)

    @invariant()
    def whoever_waits_for_room_would_not_fit(self):
        for kept in self.scheduler.workloads.values():
            for pool, (reason, _) in kept.refused_by.items():
                if kept.state is WorkloadState.QUEUED and reason in (
                    Reason.POOL_BUSY,
                    Reason.POOL_TOO_SMALL,
                    Reason.CAPACITY_RESERVED,
                ):
                    assert not kept.offer.slot <= self.scheduler.ledger.pools[pool].free

    @invariant()
    def what_comes_free_goes_to_those_who_gather_first(self):
        for kept in self.scheduler.workloads.values():
            if kept.state is WorkloadState.GATHERING:
                pool, slot = self.scheduler.ledger.pools[kept.pool], kept.offer.slot
                held = pool.reservations[kept.offer.workload]
                assert held <= slot
                assert all(held[name] == units or not pool.free[name] for name, units in slot.items())


class ReservedGroups(AnyInterleaving):
    """The same with reserved groups: work below their priority never gets their room, and urgent work waits beside no idle group."""

    @initialize(
        pools=st.lists(
            st.tuples(st.integers(0, 8), st.integers(0, 3), st.lists(slots.filter(bool), max_size=3)),
            min_size=1,
            max_size=3,
        )
    )
    def begin(self, pools):
        super().begin([(cpu, gpu) for cpu, gpu, _ in pools])
        self.reserved = {}
        specs = []
        for (name, capacity), (*_, shapes) in zip(self.capacity.items(), pools, strict=True):
            fitting = []
            for shape in shapes:
                if sum(fitting, start=shape) <= capacity:
                    fitting.append(shape)
            self.reserved[name] = sum(fitting, start=NOTHING)
            groups = GroupPoolSpec(reserved=tuple(GroupShape((shape,)) for shape in fitting), max_dynamic=UNBOUNDED, reserved_priority=1)
            specs.append(PoolSpec(pool=name, flavor=f"f{len(specs) % 2}", capacity=capacity, groups=groups))
        self.scheduler = StageAdmission(tuple(specs))

    def is_urgent(self, workload):
        return self.scheduler.workloads[workload].offer.priority >= 1

    @invariant()
    def reserved_room_is_never_given_to_work_below_the_threshold(self):
        for pool, capacity in self.capacity.items():
            running = [
                each.slot.times(self.held[each.workload])
                for each in self.running.values()
                if each.pool == pool and not self.is_urgent(each.workload)
            ]
            asked = [
                each.slot.times(each.demand) for each in self.asked.values() if each.pool == pool and not self.is_urgent(each.workload)
            ]
            assert sum([*running, *asked], start=self.reserved[pool]) <= capacity

    @invariant()
    def urgent_work_waits_beside_no_idle_group_that_fits(self):
        for kept in self.scheduler.workloads.values():
            for pool, (reason, _) in kept.refused_by.items():
                may_take = kept.offer.priority >= 1 and kept.offer.gang is None
                if kept.state is WorkloadState.QUEUED and may_take and reason not in REFUSALS:
                    assert not self.scheduler.reserved.has(pool, kept.offer.slot)


class InOrder(AnyInterleaving):
    """The same in strict order: besides those for whom others stop, only the head is tried."""

    preemption = PreemptionPolicy(flavors=("f1",), in_order=True)

    def report(self, *events):
        gathering = {name for name, kept in self.scheduler.workloads.items() if kept.state is WorkloadState.GATHERING}
        gathering |= {event.workload for event in events if isinstance(event, RoomPromised)}
        asked = set(self.asked)
        super().report(*events)
        waiting = {name: kept for name, kept in self.scheduler.workloads.items() if kept.state is not WorkloadState.RUNNING}
        for name in (set(self.asked) - asked - gathering) & waiting.keys():
            before = {other for other, kept in waiting.items() if kept.turn < waiting[name].turn}
            assert not before
            assert not any(kept.state is WorkloadState.GATHERING for kept in waiting.values())

    @invariant()
    def one_may_start_and_all_others_say_that_they_stand_behind(self):
        waiting = [kept for kept in self.scheduler.workloads.values() if kept.state is not WorkloadState.RUNNING]
        free = [kept for kept in waiting if not self.scheduler.is_behind(kept)]
        assert len(free) == bool(waiting)
        for kept in waiting:
            kind = [each for each in waiting if each.key == kept.key]
            is_answered = all(each.state is not WorkloadState.RESERVED for each in kind)
            if kept.state is WorkloadState.QUEUED and self.scheduler.is_behind(kept) and is_answered:
                assert kept.reported is not None
                assert kept.reported[0] is Reason.BEHIND_HEAD


class OfGangs(AnyInterleaving):
    """The same with gangs on nodes that come and go: `violations` finds parts of gangs."""

    @rule(cpus=st.lists(st.integers(1, 4), min_size=1, max_size=4))
    def see_nodes(self, cpus):
        self.report(NodesSeen(nodes=tuple(node_of(number, cpu) for number, cpu in enumerate(cpus))))

    @rule(target=AnyInterleaving.names, gang=gangs, width=st.integers(1, 3), priority=st.integers(-1, 1))
    def offer_gangs(self, gang, width, priority):
        return self.offered(slot=gang.slot, gang=gang, width=width, priority=priority)

    @invariant()
    def decisions_name_whole_gangs(self):
        for name, started in self.running.items():
            gang = self.scheduler.workloads[name].offer.gang
            assert gang is None or len(started.nodes) in (0, started.slots * gang.size)


class GangsBesideReservedGroups(ReservedGroups, OfGangs):
    """Both on nodes with GPUs: gangs never have reserved groups, and the instances of a lent group go with it."""

    @invariant()
    def gangs_have_no_reserved_groups(self):
        gangs = (name for name, kept in self.scheduler.workloads.items() if kept.offer.gang is not None)
        assert not any(self.scheduler.reserved.groups_of(name) for name in gangs)

    @invariant()
    def whoever_waits_for_room_would_not_fit(self):
        """Beside reserved groups, the pool may have room where no node has any."""


TestGangsBesideReservedGroups = GangsBesideReservedGroups.TestCase
TestGangsBesideReservedGroups.settings = settings(max_examples=40, stateful_step_count=30)
TestOfGangs = OfGangs.TestCase
TestOfGangs.settings = settings(max_examples=60, stateful_step_count=30)
TestInOrder = InOrder.TestCase
TestInOrder.settings = settings(max_examples=30, stateful_step_count=25)
TestReservedGroups = ReservedGroups.TestCase
TestReservedGroups.settings = settings(max_examples=60, stateful_step_count=30)
TestAnyInterleaving = AnyInterleaving.TestCase
TestAnyInterleaving.settings = settings(max_examples=60, stateful_step_count=30)
