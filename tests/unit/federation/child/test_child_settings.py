"""Settings of a mesh that `apply` changes: how they reach the child, and what they change there."""

from __future__ import annotations

import pytest
from child_bed import HEARTBEAT_MS, TTL_MS, Federation, nodes, pool

from federation.child.child_mesh import HEARTBEATS_PER_COMPARISON
from federation.dispatch import NotificationKind
from federation.errors import StoreUnavailable
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.rules import MINUTE_MS
from mesh.preemption.stage_preemption import PreemptionLimits, PreemptionPolicy
from mesh.stages.messages import NodeCheckpoint, StageWaiting
from mesh.stages.stage_settings import DEFAULT_SETTINGS, MICROS, NodeWeights, QueueRules, StageSettings

TAKES = PreemptionPolicy(takes=True, min_run_ms=0, reservation_timeout_ms=10 * HEARTBEAT_MS)
LIMITED = StageSettings(preemption=PreemptionLimits(per_minute_max=1))


def full(*pools, quota=9, **others):
    """A federation in which stages `a` and `b` of priority 0 run, and fill the first pool."""
    federation = Federation(*(pools or (pool("general", 2),)), quota=quota, **others)
    for name in "ab":
        federation.submit(name)
        federation.heartbeat()
    assert federation.running() == {"a", "b"}
    federation.kinds()
    return federation


def stopping(federation):
    return set(federation.host.stopping)


def waits(federation):
    """Return the new reasons of waiting stages."""
    federation.kinds()
    return [(message.stage, message.reason) for message in federation.messages if isinstance(message, StageWaiting)]


def test_published_settings_are_followed_and_reported():
    federation = full()
    federation.publish(weights=NodeWeights(availability=MICROS))
    assert federation.view().record.settings == DEFAULT_SETTINGS
    federation.heartbeat()  # Due at once, so that everyone sees what the mesh follows.
    assert federation.clock.now_ms < 1_000_000 + 3 * HEARTBEAT_MS
    assert federation.view().record.settings.weights.availability == MICROS
    assert federation.running() == {"a", "b"}


def test_settings_without_a_notification_are_found_later():
    federation = full()
    federation.registry.publish_settings({"east": LIMITED})
    federation.heartbeat(HEARTBEATS_PER_COMPARISON + 1)
    assert federation.view().record.settings == LIMITED


def test_mesh_without_published_settings_keeps_its_own():
    federation = full()
    federation.registry.publish_settings({"west": LIMITED})
    federation.heartbeat(2 * HEARTBEATS_PER_COMPARISON)
    assert federation.view().record.settings == DEFAULT_SETTINGS


def test_mesh_that_leaves_the_roots_file_follows_its_own_again():
    federation = full()
    federation.publish(preemption=LIMITED.preemption)
    federation.heartbeat()
    assert federation.view().record.settings == LIMITED
    federation.registry.publish_settings({"west": LIMITED})
    federation.store.notify("east", NotificationKind.SETTINGS)
    federation.notifications()
    federation.heartbeat()
    assert federation.view().record.settings == DEFAULT_SETTINGS


def test_settings_are_read_again_after_a_failed_call():
    federation = full()
    read = federation.registry.settings_of

    def away(mesh):
        raise StoreUnavailable(f"no settings of {mesh}")

    federation.registry.settings_of = away
    federation.publish(preemption=LIMITED.preemption)
    federation.registry.settings_of = read
    federation.heartbeat(2)
    assert federation.view().record.settings == LIMITED


def test_settings_outlive_the_session():
    federation = full()
    federation.publish(queues={"acme": QueueRules(priority=3)})
    federation.clock.advance(2 * TTL_MS)
    federation.heartbeat(3)
    federation.registry.publish_settings({})
    assert federation.child.is_joined
    assert federation.view().record.settings.queues == {"acme": QueueRules(priority=3)}


def test_changed_weights_choose_other_nodes():
    federation = Federation(pool("general", 4))
    federation.host.nodes = lambda: nodes(ResourceSet.of({"cpu": 2}), ResourceSet.of({"cpu": 2}))
    federation.heartbeat()
    packs = StageSettings(weights=NodeWeights(availability=0, fragmentation=MICROS, contention=0))
    spreads = StageSettings(weights=NodeWeights(availability=0, fragmentation=0, contention=MICROS))

    def places(settings, names):
        federation.publish(weights=settings.weights)
        for name in names:
            federation.submit(name)
        federation.notifications()
        return [federation.child.state.running[name].note.nodes for name in names]

    first, second = places(spreads, "ab")
    assert first != second
    federation.work()
    first, second = places(packs, "cd")
    assert first == second


@pytest.mark.parametrize(
    ("protected", "victims"),
    [pytest.param((), {"b"}, id="open"), pytest.param(("general",), set(), id="protected")],
)
def test_stage_in_a_protected_pool_is_no_victim_of_others(protected, victims):
    """The preemptor lacks room in its pool, and quota, which only a stage in the other pool could free."""
    federation = full(pool("general", 2), pool("large", 3), quota=4)
    federation.publish(preemption=PreemptionLimits(protected_pools=protected))
    federation.submit("c", slot=ResourceSet.of({"cpu": 2}))
    federation.heartbeat()
    federation.submit("urgent", slot=ResourceSet.of({"cpu": 3}), priority=5, preemption=TAKES)
    federation.notifications()
    assert stopping(federation) == ({"c", *victims} if victims else set())


def test_stage_in_a_protected_pool_is_preempted_within_it():
    federation = full()
    federation.publish(preemption=PreemptionLimits(protected_pools=("general",)))
    federation.submit("urgent", priority=5, preemption=TAKES)
    federation.notifications()
    assert stopping(federation) == {"b"}


def test_threshold_spares_stages_that_are_nearly_as_urgent():
    federation = full()
    federation.publish(preemption=PreemptionLimits(threshold=5 * MICROS))
    federation.submit("urgent", priority=5, preemption=TAKES)
    federation.heartbeat(2)
    assert stopping(federation) == set()
    federation.submit("more urgent", priority=6, preemption=TAKES)
    federation.notifications()
    assert stopping(federation) == {"b"}


def test_the_stage_with_less_unsaved_work_is_preempted():
    federation = full()
    federation.publish(preemption=PreemptionLimits(lost_work_per_s=MICROS))
    federation.clock.advance(HEARTBEAT_MS // 2)
    running = federation.child.state.running["a"]
    running.heed((NodeCheckpoint(stage="a", node="a", attempt=1, number=1, stored=None),), federation.clock.monotonic_ms())
    federation.submit("urgent", priority=5, preemption=TAKES)
    federation.notifications()
    assert stopping(federation) == {"a"}


def test_limit_per_minute_delays_the_next_preemption():
    federation = full()
    federation.publish(preemption=LIMITED.preemption)
    federation.submit("first", priority=5, preemption=TAKES)
    federation.notifications()
    assert stopping(federation) == {"b"}
    preempted_ms = federation.clock.monotonic_ms()
    federation.work(0)
    federation.submit("second", priority=4, preemption=TAKES)
    federation.heartbeat()
    assert stopping(federation) == set()
    assert ("second", Reason.PREEMPTION_LIMIT) in waits(federation)
    assert federation.messages[-1].detail == (
        "the mesh preempts at most 1 stage a minute (per_minute_max), so nothing for this stage before 00:17:41Z"
    )
    for _ in range(2 * MINUTE_MS // HEARTBEAT_MS):
        if not stopping(federation):
            federation.heartbeat()
    assert stopping(federation) == {"a"}
    assert federation.clock.monotonic_ms() == preempted_ms + MINUTE_MS


def test_a_lifted_limit_is_no_reason_any_more():
    federation = full()
    federation.publish(preemption=LIMITED.preemption)
    for name in ("first", "second"):
        federation.submit(name, priority=5, preemption=TAKES)
        federation.heartbeat()
    assert ("second", Reason.PREEMPTION_LIMIT) in waits(federation)
    federation.publish(preemption=PreemptionLimits(threshold=9 * MICROS))
    federation.heartbeat(2)
    assert waits(federation) == [("second", Reason.POOL_BUSY)]


def test_a_wide_preemptor_goes_ahead_after_a_quiet_minute():
    federation = full(pool("general", 3))
    federation.submit("c")
    federation.publish(preemption=LIMITED.preemption)
    federation.heartbeat()
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), preemption=TAKES)
    federation.notifications()
    assert len(stopping(federation)) == 2
    federation.work(0)
    federation.submit("next", priority=5, preemption=TAKES)
    federation.heartbeat(2)
    assert stopping(federation) == set()


def test_queue_rules_order_stages_of_two_tenants():
    federation = full()
    tenants = federation.store.snapshot().tree.tenants
    federation.store.configure(TenantTree([*tenants.values(), Tenant(path="acme/vision", parent="acme")]))
    federation.publish(queues={"acme/vision": QueueRules(priority=5)})
    federation.submit("plain", priority=4, slot=ResourceSet.of({"cpu": 2}))
    federation.submit("vision", tenant="acme/vision", slot=ResourceSet.of({"cpu": 2}))
    federation.heartbeat()
    federation.work()
    assert federation.running() == {"vision"}


def test_a_stage_overtakes_more_urgent_ones_by_waiting():
    federation = full(pool("general", 2), quota=2)
    federation.publish(queues={"*": QueueRules(aging_per_s=MICROS)})
    federation.submit("old", slot=ResourceSet.of({"cpu": 2}))
    federation.heartbeat(10)
    federation.submit("young", slot=ResourceSet.of({"cpu": 2}), priority=4)
    federation.heartbeat()
    federation.work(0)
    federation.work()
    assert federation.running() == {"old"}


@pytest.mark.parametrize("ahead_ms", [-600_000, 0, 600_000])
@pytest.mark.parametrize(("seconds", "first"), [(2, "vision"), (10, "old")])
def test_waits_count_on_the_clock_of_the_store(ahead_ms, seconds, first):
    federation = full(store_ahead_ms=ahead_ms)
    tenants, own = federation.store.snapshot().tree.tenants, {("standard", "cpu"): Quota(nominal=20_000)}
    federation.store.configure(TenantTree([*tenants.values(), Tenant(path="acme/vision", parent="acme", quotas=own)]))
    federation.publish(queues={"acme/vision": QueueRules(priority=5), "*": QueueRules(aging_per_s=MICROS)})
    federation.submit("old", slot=ResourceSet.of({"cpu": 2}))
    federation.heartbeat(seconds * 1_000 // HEARTBEAT_MS)
    federation.submit("vision", tenant="acme/vision", slot=ResourceSet.of({"cpu": 2}))
    federation.heartbeat()
    federation.work(0)
    federation.work()
    assert federation.running() == {first}


def test_aging_never_preempts():
    federation = full()
    federation.publish(queues={"*": QueueRules(priority=9, aging_per_s=MICROS)})
    federation.submit("old", preemption=TAKES)
    for _ in range(5):
        federation.clock.advance(HEARTBEAT_MS)
        federation.heartbeat()
    assert stopping(federation) == set()
