"""Running stages grow with room and quota, and give back slots that no task can use."""

from __future__ import annotations

import pytest
from child_bed import CPU, DURATION_MS, TTL_MS, Federation, all_is_free, nodes, pool

from federation.leases import TargetUpdate
from mesh.core.reasons import Reason
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodeFailed, StageResized

FOUR = ("a:", "b:", "c:", "d:")


def slots(federation):
    """Return the slots of each running stage, as its mesh knows them."""
    return {stage: running.note.slots for stage, running in federation.child.state.running.items()}


def in_use(federation):
    """Return the CPUs that the mesh counts as used in its pool."""
    (kept,) = federation.child.state.as_reported().pools
    return kept.used["cpu"] // 10_000


@pytest.fixture
def crowded():
    """A mesh of four CPUs on which `wide` has one slot of four beside `first` with three."""
    federation = Federation()
    federation.submit("first", "x:", "y:", "z:", width=3)
    federation.heartbeat()
    federation.submit("wide", *FOUR, width=4)
    federation.heartbeat()
    assert slots(federation) == {"first": 3, "wide": 1}
    return federation


def test_a_stage_grows_into_the_room_of_one_that_ended(crowded):
    crowded.host.behaviour = lambda task: (DURATION_MS * (20 if task.node in "abcd" else 1), False)
    crowded.work()
    assert crowded.running() == {"wide"}
    assert slots(crowded) == {"wide": 4}
    crowded.work(0)
    assert crowded.host.slots_in_use("acme") == 4
    assert ("wide", "stage_resized") in crowded.kinds()
    (row,) = crowded.store.snapshot().running
    assert row.amounts == CPU.times(4)


def test_growth_is_within_the_lease():
    federation = Federation(quota=2)
    federation.submit("wide", *FOUR, width=4)
    federation.heartbeat(3)
    assert slots(federation) == {"wide": 2}
    assert federation.held() == in_use(federation) == 2


def test_refused_growth_is_no_demand():
    """Nobody is preempted so that work that runs may grow."""
    federation = Federation(quota=2)
    federation.submit("wide", *FOUR, width=4)
    federation.heartbeat(3)
    assert federation.store.snapshot().demands == ()


def test_growth_asks_again_with_each_heartbeat():
    federation = Federation(quota=2)
    federation.host.behaviour = lambda _task: (100 * DURATION_MS, False)
    federation.submit("wide", *FOUR, width=4)
    federation.heartbeat(2)
    federation.store.configure(Federation(quota=3).store.snapshot().tree)
    federation.heartbeat()
    assert slots(federation) == {"wide": 3}


def test_work_that_waits_starts_before_running_work_grows(crowded):
    crowded.host.behaviour = lambda task: (DURATION_MS * (20 if task.node in "abcd" else 1), False)
    crowded.submit("next", *FOUR, width=2)
    crowded.heartbeat()
    crowded.work()
    assert slots(crowded) == {"wide": 2, "next": 2}


def test_urgent_running_work_grows_before_other_work_starts(crowded):
    crowded.host.behaviour = lambda task: (DURATION_MS * (20 if task.node in "abcd" else 1), False)
    crowded.submit("next", *FOUR, width=2, priority=-1)
    crowded.heartbeat()
    crowded.work()
    assert slots(crowded) == {"wide": 4}


def test_a_straggler_gives_back_the_other_slots():
    federation = Federation()
    federation.host.behaviour = lambda task: (DURATION_MS * (50 if task.node == "a" else 1), False)
    federation.submit("fan", *FOUR, width=4)
    federation.heartbeat()
    federation.work()
    federation.heartbeat()
    federation.work(0)
    assert slots(federation) == {"fan": 1}
    assert in_use(federation) == 1
    federation.submit("next", "x:", "y:", "z:", width=3)
    federation.heartbeat()
    assert slots(federation) == {"fan": 1, "next": 3}


def test_a_slot_is_given_back_when_its_task_has_ended():
    federation = Federation()
    federation.host.behaviour = lambda task: (DURATION_MS * (50 if task.node in "ab" else 1), False)
    federation.submit("fan", *FOUR, "e:", width=4)
    federation.heartbeat()
    federation.work()
    federation.heartbeat()
    federation.work(0)
    assert slots(federation) == {"fan": 3}
    assert federation.host.slots_in_use("acme") == 3


def reclaimed(federation, cpus, **wait):
    """Lower quota and lease to so many CPUs, and let the mesh hear of it."""
    store = federation.store
    store.configure(Federation(quota=cpus).store.snapshot().tree)
    update = TargetUpdate(mesh="east", tenant="acme", flavor="standard", target=CPU.times(cpus), **wait)
    store.plan_apply(store.elect("p", 60_000), store.snapshot().version, (update,))
    federation.notifications()
    federation.heartbeat()


@pytest.fixture(params=[(20, 10)])
def fan(request):
    """A stage of long tasks on all four slots of its mesh."""
    federation = Federation()
    longer, shorter = request.param
    federation.host.behaviour = lambda task: (DURATION_MS * (longer if task.node in "ab" else shorter), False)
    federation.submit("fan", *FOUR, width=4)
    federation.heartbeat()
    federation.work(0)
    federation.kinds()
    return federation


def test_reclaimed_quota_takes_slots_and_not_the_stage(fan):
    reclaimed(fan, 3)
    fan.work(0)
    fan.heartbeat()
    assert slots(fan) == {"fan": 3}
    assert fan.held() == 3
    assert fan.running() == {"fan"}
    fan.kinds()
    (failed,) = [message for message in fan.messages if isinstance(message, NodeFailed)]
    assert failed.failure.reason is Reason.QUOTA_RECLAIMED


def test_all_quota_gone_takes_the_whole_stage(fan):
    reclaimed(fan, 0)
    fan.work(0)
    fan.heartbeat()
    assert (fan.running(), fan.held()) == (set(), 0)
    assert "stage_lost" in [kind for _, kind in fan.kinds()]


def test_slots_whose_tasks_end_in_time_lose_nothing(fan):
    reclaimed(fan, 2, wait_ms=30 * DURATION_MS + TTL_MS)
    assert fan.held() == 4
    for _ in range(3):
        fan.work(5 * DURATION_MS)
        fan.heartbeat()
    assert slots(fan) == {"fan": 2}
    assert fan.held() == 2
    fan.kinds()
    assert not [message for message in fan.messages if isinstance(message, NodeFailed)]


@pytest.mark.parametrize("fan", [(1_000, 1_000)], indirect=True)
def test_young_work_is_interrupted_when_its_time_is_over(fan):
    reclaimed(fan, 1, wait_ms=2 * TTL_MS)
    fan.work(0)
    assert slots(fan) == {"fan": 4}
    for _ in range(16):
        fan.heartbeat()
        fan.work(0)
    assert slots(fan) == {"fan": 1}
    assert fan.held() == 1


def test_tasks_behind_a_failed_one_use_no_slot():
    federation = Federation()
    federation.host.behaviour = lambda task: (DURATION_MS * (50 if task.node == "b" else 1), task.node == "a")
    federation.submit("fan", "a:", "b:", "c: a", "d: c", width=3)
    federation.heartbeat()
    federation.work()
    federation.heartbeat()
    federation.work(0)
    assert slots(federation) == {"fan": 1}


def test_a_growth_between_two_retirements_is_kept():
    """Each retirement takes what it gave back, whatever has grown since it was reported."""
    federation = Federation(pool("general", 8), quota=4)
    federation.host.behaviour = lambda _task: (50 * DURATION_MS, False)
    federation.submit("fan", *"abcdefgh", width=8)
    federation.heartbeat()
    federation.work(0)
    running = federation.child.state.running["fan"]
    running.shrink(federation.host, 2)
    messages = tuple(StageResized(stage="fan", slots=4 - retired, retired=retired) for retired in (1, 2))
    federation.child.take_report(HostReport(stage="fan", number=1_000, messages=messages))
    federation.heartbeat(2)
    workload = federation.child.state.admission.workloads["fan"]
    assert running.note.slots == workload.slots == federation.held() == in_use(federation)


@pytest.mark.parametrize("is_slow", [True, False])
def test_slots_on_their_way_back_are_not_asked_for_twice(is_slow):
    federation = Federation()
    federation.host.behaviour = lambda _task: (50 * DURATION_MS, False)
    for name in ("one", "two"):
        federation.submit(name, "a:", "b:", width=2)
        federation.heartbeat()
    federation.work(0)
    reclaimed(federation, 3)
    if is_slow:
        federation.heartbeat()
    stopping = [running.retiring for running in federation.child.state.running.values()]
    assert sorted(stopping) == [0, 1]


def test_a_wide_stage_stops_whole_where_no_part_of_it_can_stay():
    """A host takes the slots of a wide stage in parts of several."""
    federation = Federation(pool("general", 128), quota=128)
    federation.host.behaviour = lambda _task: (50 * DURATION_MS, False)
    federation.submit("fan", *(f"t{number}:" for number in range(128)), width=128)
    federation.heartbeat()
    reclaimed(federation, 1)
    assert federation.host.stopping == {"fan"}


def test_a_stage_that_stops_grows_no_more(crowded):
    crowded.host.behaviour = lambda task: (DURATION_MS * (20 if task.node in "abcd" else 1), False)
    crowded.store.cancel("wide")
    crowded.notifications()
    crowded.heartbeat()
    crowded.work()
    assert all_is_free(crowded)


def test_a_stage_that_ends_while_it_would_grow_leaves_nothing(crowded):
    crowded.work()
    crowded.work()
    crowded.work(10 * DURATION_MS)
    assert all_is_free(crowded)
    assert in_use(crowded) == 0


def test_grown_slots_lie_on_nodes_with_room():
    federation = Federation(pool("general", 4))
    federation.host.listed = nodes(CPU.times(3), CPU.times(1))
    federation.host.behaviour = lambda task: (DURATION_MS * (20 if task.node in "abcd" else 1), False)
    federation.submit("first", "x:", "y:", "z:", width=3)
    federation.heartbeat()
    federation.submit("wide", *FOUR, width=4)
    federation.heartbeat()
    before = federation.host.nodes_of("wide")
    federation.work()
    assert sorted(federation.host.nodes_of("wide")) == ["n0", "n0", "n0", "n1"]
    assert len(before) == 1


def test_a_new_process_knows_the_grown_slots(crowded):
    crowded.host.behaviour = lambda task: (DURATION_MS * (20 if task.node in "abcd" else 1), False)
    crowded.work()
    (held,) = crowded.host.find().stages
    assert b'"slots":4' in held.note.replace(b" ", b"")


def test_a_stage_of_several_flavors_grows_in_its_own_pool():
    federation = Federation(pool("small", 1), pool("large", 4, flavor="spot"))
    federation.host.behaviour = lambda _task: (50 * DURATION_MS, False)
    federation.submit("wide", *FOUR, width=4)
    federation.heartbeat(2)
    assert slots(federation) == {"wide": 1}
    reasons = {reason for reason, _ in federation.child.state.admission.workloads["wide"].growth.refused_by.values()}
    assert reasons == {Reason.POOL_BUSY}
