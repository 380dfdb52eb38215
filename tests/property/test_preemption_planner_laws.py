"""Laws of preemption within a tenant on a mesh: each choice raises (priority, age), so there are no cycles; no stage stops in vain.

The tests drive the whole chain of the mesh: state, choice, reservation, end of the victim, and its return to the queue.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.child.lease_accounting import LeaseAccounting
from federation.child.preemption_planner import PreemptionPlanner
from federation.explaining.pending_stages import PendingStage
from federation.explaining.preemption_preview import StartedStage, preview_preemption
from federation.leases import Lease, LedgerResponse
from federation.snapshot import MeshRecord, MeshView, PoolRecord
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import MICROS, Occupant, PreemptionLimits, PreemptionPolicy, preemptor_of, select_victims
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease
from mesh.stages.admission_events import LeaseGranted, LeaseRefused, RoomMayHaveCome, RoomPromised, WorkloadEnded, WorkloadOffered
from mesh.stages.admission_invariants import violations
from mesh.stages.workloads import WorkloadState

NOW_MS, MIN_RUN_MS = 1_000, 100
KEY = ("acme", "standard")
sizes = st.integers(1, 4)
priorities = st.integers(-2, 3)
ages = st.integers(0, 3)
occupants = st.lists(
    st.builds(
        lambda priority, pool, units, started_ms, tenant: (priority, pool, units, started_ms, tenant),
        priorities,
        st.sampled_from(["here", "there"]),
        sizes,
        st.integers(0, NOW_MS),
        st.sampled_from(["acme", "acme", "other"]),
    ),
    max_size=8,
)


limits_of_a_mesh = st.builds(
    PreemptionLimits,
    threshold=st.none() | st.integers(-2 * MICROS, 3 * MICROS),
    lost_work_per_s=st.integers(0, 3 * MICROS),
    protected_pools=st.sampled_from([(), ("there",), ("here", "there")]),
)


def stages(rows):
    return [
        Occupant(stage=f"s{index}", tenant=tenant, priority=priority, pool=pool, amounts=ResourceSet({"cpu": units}), started_ms=started)
        for index, (priority, pool, units, started, tenant) in enumerate(rows)
    ]


def may_stop(one, preemptor):
    return one.tenant == preemptor.tenant and one.priority < preemptor.priority and NOW_MS - one.started_ms >= MIN_RUN_MS


def makes_good(victims, room, quota):
    return sum(one.amounts["cpu"] for one in victims if one.pool == "here") >= room and sum(one.amounts["cpu"] for one in victims) >= quota


@settings(max_examples=150)
@given(rows=occupants, priority=priorities, room=st.integers(0, 6), quota=st.integers(0, 6))
def test_enough_stop_or_nobody_does_and_none_of_them_in_vain(rows, priority, room, quota):
    preemptor = preemptor_of("urgent", "acme", priority, "here")
    running = stages(rows)
    victims = select_victims(preemptor, running, room={"cpu": room}, quota={"cpu": quota}, min_run_ms=MIN_RUN_MS, now_ms=NOW_MS)
    able = [one for one in running if may_stop(one, preemptor)]
    assert all(one in able for one in victims)
    assert bool(victims) == ((room > 0 or quota > 0) and makes_good(able, room, quota))
    if victims:
        assert makes_good(victims, room, quota)
    for one in victims:
        assert not makes_good([other for other in victims if other is not one], room, quota)
    if victims:  # No victim is more urgent than necessary.
        levels = sorted({one.priority for one in able})
        least = next(level for level in levels if makes_good([one for one in able if one.priority <= level], room, quota))
        assert max(one.priority for one in victims) == least


@settings(max_examples=150)
@given(rows=occupants, priority=priorities, room=st.integers(0, 6), quota=st.integers(0, 6), limits=limits_of_a_mesh)
def test_limits_of_a_mesh_add_no_victim(rows, priority, room, quota, limits):
    preemptor = preemptor_of("urgent", "acme", priority, "here")
    running, short = stages(rows), {"room": {"cpu": room}, "quota": {"cpu": quota}}
    victims = select_victims(preemptor, running, **short, min_run_ms=MIN_RUN_MS, now_ms=NOW_MS, limits=limits)
    plain = select_victims(preemptor, running, **short, min_run_ms=MIN_RUN_MS, now_ms=NOW_MS)
    assert all(may_stop(one, preemptor) for one in victims)
    assert bool(victims) <= bool(plain)
    for one in victims:
        assert not (one.pool in limits.protected_pools and one.pool != "here")
        lost_s = (NOW_MS - one.started_ms) / 1_000
        score = priority - one.priority - limits.lost_work_per_s / MICROS * lost_s
        assert limits.threshold is None or score > limits.threshold / MICROS
    if limits.threshold is None and not limits.protected_pools:
        assert bool(victims) == bool(plain)


class Mesh:
    """One pool and one lease that grows no more; a stopped stage is offered again with its old priority and creation time."""

    def __init__(self, cpus, quota, takes_newer=False, answers=()):
        self.rules = PreemptionPolicy(takes=True, takes_newer=takes_newer, min_run_ms=0)
        self.admission = StageAdmission((PoolSpec(pool="p", flavor="standard", capacity=ResourceSet({"cpu": cpus})),))
        self.accounting = LeaseAccounting()
        units = ResourceSet({"cpu": quota})
        self.accounting.apply(LedgerResponse(leases=(Lease(mesh="m", tenant="acme", flavor="standard", held=units, target=units),)))
        self.answers = answers
        self.stopping = {}
        self.count = 0
        self.asks = 0

    def offer(self, units, priority, created_ms):
        self.count += 1
        about = {"slot": ResourceSet({"cpu": units}), "priority": priority, "created_ms": created_ms, "preemption": self.rules}
        self.handle(WorkloadOffered(workload=f"w{self.count}", tenant="acme", width=1, **about))

    def handle(self, *events):
        for decision in self.admission.handle(*events):
            if isinstance(decision, AcquireLease):
                self.acquire(decision)
        assert violations(self.admission) == []

    def acquire(self, wanted):
        if self.accounting.room(KEY, wanted.slot, wanted.workload) < 1:
            self.refuse(wanted)
            return
        self.accounting.spend(wanted.workload, KEY, wanted.slot, 0)
        self.handle(LeaseGranted(workload=wanted.workload, slots=1, token=1))

    def refuse(self, wanted):
        self.handle(LeaseRefused(workload=wanted.workload, reason=Reason.QUOTA_EXHAUSTED, detail="the lease is full"))

    def running(self):
        return {name: kept for name, kept in self.admission.workloads.items() if kept.state is WorkloadState.RUNNING}

    def occupant(self, name, kept):
        about = {"priority": kept.offer.priority, "created_ms": kept.offer.created_ms, "amounts": kept.offer.slot}
        return Occupant(stage=name, tenant="acme", pool="p", started_ms=-int(name[1:]), **about)

    def ranks(self):
        """Return what each choice raises: the priorities of the running stages, and their ages where these count."""
        running = (kept.offer for kept in self.running().values())
        return Counter((offer.priority, -offer.created_ms if self.rules.takes_newer else 0) for offer in running)

    def preemption_planner(self):
        asked = tuple(self.occupant(name, kept) for name, kept in self.running().items())
        scorer = self.scores if self.answers else None
        return PreemptionPlanner(admission=self.admission, accounting=self.accounting, occupants=asked, leaving=(), now_ms=0, scorer=scorer)

    def scores(self, preemptor, occupants, _now_ms):
        """Answer as any plugin might."""
        return [self.answers[(int(one.stage[1:]) + int(preemptor.task[1:])) % len(self.answers)] for one in occupants]

    def round(self):
        """Carry out one choice to its end; return False when nobody has to stop."""
        self.handle(RoomMayHaveCome())
        preemption_planner = self.preemption_planner()
        ways = (preemption_planner.preempt_for(workload, lambda *_: False) for workload in preemption_planner.waiting())
        planned = next((planned for planned in ways if planned is not None), None)
        if planned is None:
            return False
        names = [victim.stage for victim in planned.victims]
        back = [self.admission.workloads[name].offer for name in names]
        self.accounting.hold(planned.stage, KEY, planned.slot)
        self.handle(RoomPromised(workload=planned.stage, pool="p", victims=frozenset(names), until_ms=0, detail="stops"))
        for name in names:
            self.accounting.put_back(name, 0)
            self.handle(WorkloadEnded(workload=name))
        assert self.admission.workloads[planned.stage].state is WorkloadState.RUNNING
        for offer in back:
            self.offer(offer.slot["cpu"], offer.priority, offer.created_ms)
        return True


def rises(before, after):
    """Return whether the multiset rises: each removed element is outweighed by a greater new one."""
    gone, came = before - after, after - before
    return bool(came) and all(any(new > old for new in came) for old in gone)


@settings(max_examples=60)
@given(
    cpus=st.integers(2, 8),
    quota=st.integers(2, 8),
    work=st.lists(st.tuples(sizes, priorities, ages), min_size=1, max_size=10),
    takes_newer=st.booleans(),
    answers=st.lists(st.none() | st.floats(allow_nan=False), max_size=5),
)
def test_each_round_raises_what_runs_so_rounds_end(cpus, quota, work, takes_newer, answers):
    mesh = Mesh(cpus, quota, takes_newer, answers)
    for row in work:
        mesh.offer(*row)
    for _ in range(200):
        before = mesh.ranks()
        chosen = mesh.round()
        after = mesh.ranks()
        if not chosen:
            return
        assert rises(before, after)
    raise AssertionError("they stop each other for ever")


@settings(max_examples=60)
@given(
    cpus=st.integers(2, 8),
    quota=st.integers(2, 8),
    work=st.lists(st.tuples(sizes, priorities, ages), min_size=1, max_size=8),
    wanted=st.tuples(sizes, priorities, ages),
    takes_newer=st.booleans(),
)
def test_what_is_foreseen_at_the_root_is_what_the_mesh_does(cpus, quota, work, wanted, takes_newer):
    mesh = Mesh(cpus, quota, takes_newer)
    for row in work:
        mesh.offer(*row)
    running = [
        StartedStage(
            stage=name,
            tenant="acme",
            mesh="m",
            slot=kept.offer.slot,
            slots=1,
            priority=kept.offer.priority,
            started_ms=-int(name[1:]),
            created_ms=kept.offer.created_ms,
        )
        for name, kept in mesh.running().items()
    ]
    ledger = mesh.admission.ledger.pools["p"]
    pool = PoolRecord(pool="p", flavor="standard", capacity=ledger.capacity, used=ledger.used)
    view = MeshView(
        record=MeshRecord(mesh="m", labels={}, pools=(pool,), cluster="c"),
        incarnation=1,
        alive=True,
        heartbeat_age_ms=0,
        waiting=0,
        claimed=0,
    )
    mesh.offer(*wanted)
    name = f"w{mesh.count}"
    kept = mesh.admission.workloads[name]
    stage = PendingStage(stage=name, tenant="acme", mesh="m", slot=kept.offer.slot, priority=kept.offer.priority, created_ms=wanted[2])
    held = {"standard": ResourceSet({"cpu": quota})}
    preview = preview_preemption(stage, view, held, running, is_quota_free=False, rules=kept.offer.preemption, now_ms=0)
    if kept.state is WorkloadState.RUNNING:
        assert preview is None
        return
    mesh.handle(RoomMayHaveCome())
    planned = mesh.preemption_planner().preempt_for(kept, lambda *_: False)
    assert (preview.stages if preview is not None else None) == (
        tuple(victim.stage for victim in planned.victims) if planned is not None else None
    )
