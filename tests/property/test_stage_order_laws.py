"""Laws of the order of waiting stages with the priorities and aging of queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.dispatch import QueuedStage
from federation.explaining.pending_stages import queue_order
from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease
from mesh.stages.admission_events import ClockRead, LeaseGranted, RoomMayHaveCome, SettingsChanged, WorkloadEnded, WorkloadOffered
from mesh.stages.admission_invariants import violations
from mesh.stages.stage_settings import MICROS, QueueRules, StageSettings
from mesh.stages.workloads import WorkloadState

TENANTS = ("acme", "acme/vision", "acme/nlp", "rival")
CPU = ResourceSet.of({"cpu": 1})
QUEUED_MS = 1_700_000_000_000  #: When the first stage was queued.

rules = st.builds(QueueRules, priority=st.integers(-3, 3), aging_per_s=st.sampled_from([0, 1, MICROS // 100, MICROS // 2, MICROS]))
settings_of_a_mesh = st.builds(StageSettings, queues=st.dictionaries(st.sampled_from((*TENANTS, "*")), rules))
stages = st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(-3, 3), st.integers(0, 20_000)), min_size=1, max_size=12)


def points(waiting, settings, now_ms):
    """Return P_label + P_base + aging * wait, in millionths of a point and thousandths of a second, exactly."""
    tenant, priority, queued_ms = waiting
    own = settings.queue_of(tenant)
    return (own.priority + priority) * MICROS * 1_000 + own.aging_per_s * (now_ms - queued_ms)


def full_mesh(settings):
    """Return a mesh of one CPU, on which a stage runs."""
    admission = StageAdmission((PoolSpec(pool="p", flavor="f", capacity=CPU),), settings=settings)
    admission.handle(offered("first", "acme", 0, 0))
    admission.handle(LeaseGranted(workload="first", slots=1, token=1))
    return admission


def offered(name, tenant, priority, queued_ms):
    return WorkloadOffered(workload=name, tenant=tenant, slot=CPU, width=1, priority=priority, queued_ms=queued_ms)


def order_of_starts(admission, count):
    """End one stage after the other, and return the order in which the waiting ones ask for their lease."""
    order, running = [], "first"
    for _ in range(count):
        (asked,) = [each for each in admission.handle(WorkloadEnded(workload=running)) if isinstance(each, AcquireLease)]
        running = asked.workload
        admission.handle(LeaseGranted(workload=running, slots=1, token=1))
        order.append(running)
        assert violations(admission) == []
    return order


@given(settings=settings_of_a_mesh, drawn=stages, wait_ms=st.integers(0, 10_000_000))
def test_stages_start_by_priority_and_age(settings, drawn, wait_ms):
    waiting = [(tenant, priority, QUEUED_MS + after_ms) for tenant, priority, after_ms in drawn]
    now_ms = QUEUED_MS + 20_000 + wait_ms
    admission = full_mesh(settings)
    admission.handle(*(offered(f"s{number:02}", *one) for number, one in enumerate(waiting)), ClockRead(now_ms=now_ms))
    expected = sorted(range(len(waiting)), key=lambda number: (-points(waiting[number], settings, now_ms), number))
    assert order_of_starts(admission, len(waiting)) == [f"s{number:02}" for number in expected]


@given(settings=settings_of_a_mesh, later=settings_of_a_mesh, drawn=stages)
def test_changed_settings_order_stages_that_wait_already(settings, later, drawn):
    waiting = [(tenant, priority, QUEUED_MS + after_ms) for tenant, priority, after_ms in drawn]
    changed, fresh = full_mesh(settings), full_mesh(later)
    for admission in (changed, fresh):
        admission.handle(*(offered(f"s{number:02}", *one) for number, one in enumerate(waiting)), ClockRead(now_ms=QUEUED_MS + 60_000))
    changed.handle(SettingsChanged(settings=later))
    assert violations(changed) == []
    assert order_of_starts(changed, len(waiting)) == order_of_starts(fresh, len(waiting))


@given(settings=settings_of_a_mesh, drawn=stages, wait_ms=st.integers(0, 10_000_000))
def test_explanations_list_stages_as_the_mesh_tries_them(settings, drawn, wait_ms):
    queued = [
        QueuedStage(stage=f"s{number:02}", run="r", tenant=tenant, slot=CPU, width=1, priority=priority, queued_ms=QUEUED_MS + after_ms)
        for number, (tenant, priority, after_ms) in enumerate(drawn)
    ]
    now_ms = QUEUED_MS + 20_000 + wait_ms
    admission = full_mesh(settings)
    events = (offered(each.stage, each.tenant, each.priority, each.queued_ms) for each in queued)
    admission.handle(*events, ClockRead(now_ms=now_ms))
    as_stored = sorted(queued, key=lambda each: (-each.priority, each.stage))
    listed = queue_order(as_stored, settings, now_ms)
    started = order_of_starts(admission, len(queued))
    tied = {each.stage: points((each.tenant, each.priority, each.queued_ms), settings, now_ms) for each in queued}
    assert [tied[each.stage] for each in listed] == [tied[name] for name in started]
    if len(set(tied.values())) == len(tied):
        assert [each.stage for each in listed] == started


@given(settings=settings_of_a_mesh, drawn=stages)
def test_every_waiting_stage_of_an_aging_queue_starts(settings, drawn):
    """A stage of an aging queue comes before any later stage of any priority, once it has waited long enough."""
    aging = {tenant: QueueRules(priority=settings.queue_of(tenant).priority, aging_per_s=MICROS) for tenant in TENANTS}
    admission = full_mesh(StageSettings(queues=aging))
    admission.handle(offered("old", "rival", -3, QUEUED_MS))
    late_ms = QUEUED_MS + 1_000 * 13  # More than the greatest difference of priorities, in seconds.
    admission.handle(*(offered(f"s{number:02}", tenant, priority, late_ms) for number, (tenant, priority, _) in enumerate(drawn)))
    admission.handle(ClockRead(now_ms=late_ms), RoomMayHaveCome())
    assert order_of_starts(admission, 1) == ["old"]
    assert all(each.state is not WorkloadState.RESERVED for each in admission.workloads.values())
