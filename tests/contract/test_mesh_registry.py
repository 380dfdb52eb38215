"""Contract of mesh registries."""

import pytest

from federation.estimates import Pace
from federation.flap_detection import FlapHistory
from federation.mesh_conditions import Drain, MeshCondition
from federation.registry import MeshConditions, MeshRegistry, RegistryNote
from federation.stage_metrics import StageMetrics, TenantMetrics
from federation.store.memory.registry import MemoryRegistry
from federation.store.redis.keys import Keys
from federation.store.redis.registry import RedisRegistry
from mesh.core.ids import MeshId, PoolName
from mesh.preemption.stage_preemption import PreemptionLimits
from mesh.stages.stage_settings import DEFAULT_SETTINGS, NodeWeights, QueueRules, StageSettings

EAST, WEST = MeshId("east"), MeshId("west.2|b")
THERE = FlapHistory(incarnation=1_800_000_000_000_123, alive=True, losses_ms=(5, 9), back_ms=11, stable_ms=5_011)
DISKS = Drain(reason="new disks, é", by="ab12cd34", since_ms=7)


@pytest.fixture(params=["memory", "redis_server", "cluster_client", "narrow_client", "narrow_newer_client"])
def registry(request: pytest.FixtureRequest) -> MeshRegistry:
    if request.param == "memory":
        return MemoryRegistry()
    return RedisRegistry(request.getfixturevalue(request.param), Keys("contract"))


def test_empty_registry_knows_no_mesh(registry):
    assert registry.conditions() == MeshConditions()


def test_a_drain_stays_until_it_is_taken_back(registry):
    registry.drain(EAST, DISKS)
    assert registry.conditions().meshes == {EAST: MeshCondition(drain=DISKS)}
    assert registry.undrain(EAST)
    assert not registry.undrain(EAST)
    assert registry.conditions().meshes == {}


def test_later_drain_replaces_the_earlier_one(registry):
    registry.drain(EAST, Drain(reason="first"))
    registry.drain(EAST, DISKS)
    assert registry.conditions().meshes[EAST].drain == DISKS


def test_coordinator_observations_are_kept_beside_the_drain(registry):
    registry.drain(EAST, DISKS)
    assert registry.note(RegistryNote(watched_ms=10, flap_history={EAST: THERE}, paces={WEST: Pace(run_ms=3, stages=2)}), 0)
    kept = registry.conditions()
    assert kept.meshes == {EAST: MeshCondition(drain=DISKS, flap_history=THERE), WEST: MeshCondition(pace=Pace(run_ms=3, stages=2))}
    assert (kept.watched_ms, kept.version) == (10, 1)


def test_a_note_changes_only_what_it_names(registry):
    assert registry.note(RegistryNote(watched_ms=10, flap_history={EAST: THERE}), 0)
    assert registry.note(RegistryNote(watched_ms=20, paces={EAST: Pace(run_ms=3)}), 1)
    assert registry.conditions() == MeshConditions(
        meshes={EAST: MeshCondition(flap_history=THERE, pace=Pace(run_ms=3))}, watched_ms=20, version=2
    )


def test_stage_metrics_stay_until_the_next_ones(registry):
    assert registry.conditions().stage_metrics == StageMetrics()
    seen = TenantMetrics(tenant="acme", tier="high", queue_wait_time_p99_ms=1.5, started=3, preempted=1)
    first, last = StageMetrics(at_ms=10, tenants=(seen,)), StageMetrics(at_ms=30)
    assert registry.note(RegistryNote(watched_ms=10, stage_metrics=first), 0)
    assert registry.note(RegistryNote(watched_ms=20), 1)
    assert registry.conditions().stage_metrics == first
    assert registry.note(RegistryNote(watched_ms=30, stage_metrics=last), 2)
    assert (registry.conditions().stage_metrics, registry.conditions().meshes) == (last, {})


SPARED = StageSettings(
    weights=NodeWeights(availability=1),
    preemption=PreemptionLimits(threshold=-3, lost_work_per_s=2, per_minute_max=7, protected_pools=(PoolName("spot"),)),
    queues={"acme/vision": QueueRules(priority=-5, aging_per_s=10_000), "*": QueueRules(aging_per_s=1)},
)


def test_published_settings_replace_those_before(registry):
    assert registry.settings_of(EAST) is None
    registry.publish_settings({EAST: DEFAULT_SETTINGS, WEST: SPARED})
    registry.publish_settings({EAST: SPARED})
    assert (registry.settings_of(EAST), registry.settings_of(WEST)) == (SPARED, None)
    registry.drain(EAST, DISKS)
    assert registry.conditions().meshes == {EAST: MeshCondition(drain=DISKS, settings=SPARED)}
    registry.publish_settings({})
    assert registry.conditions().meshes == {EAST: MeshCondition(drain=DISKS)}


@pytest.mark.every_form
def test_write_after_a_stale_read_is_refused(registry):
    assert registry.note(RegistryNote(watched_ms=10, flap_history={EAST: THERE}), 0)
    before = registry.conditions()
    assert not registry.note(RegistryNote(watched_ms=99, flap_history={}, paces={EAST: Pace(run_ms=1)}), 0)
    assert registry.conditions() == before


def test_a_drain_refuses_no_note(registry):
    version = registry.conditions().version
    registry.drain(EAST, DISKS)
    assert registry.note(RegistryNote(watched_ms=10), version)
