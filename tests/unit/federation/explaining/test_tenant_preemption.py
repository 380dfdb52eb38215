"""Preemption of less urgent stages of the same tenant."""

from dataclasses import replace

import pytest
from outlook_bed import BATCH, CPU, EAST, IN_ORDER, ORDERS, STD, VISION, WEST, begun, forecasts, joined, pending, queued

from federation.explaining.preemption_preview import preview_preemption
from federation.quota.policies import Policies, PreemptionMode, QueueSettings
from federation.quota.tenant_policies import PoliciesInForce
from mesh.core.reasons import Reason
from mesh.preemption.stage_preemption import MICROS, PreemptionLimits
from mesh.stages.stage_settings import StageSettings


def full(store, cpus=2):
    """`vision` holds all of its quota or all of the mesh."""
    mesh = joined(store, EAST, cpus)
    mesh.acquire(VISION, STD, CPU, min(4, cpus))
    pool = replace(mesh.record.pools[0], used=CPU.times(min(4, cpus)))
    mesh.record = replace(mesh.record, pools=(pool,))
    mesh.heartbeat()


@pytest.mark.parametrize("cpus", [pytest.param(2, id="a full mesh"), pytest.param(9, id="a full lease")])
def test_dry_run_names_less_urgent_stages_as_victims(store, cpus):
    full(store, cpus)
    running = [begun(f"s{index}", priority=index) for index in range(min(4, cpus))]
    forecast = forecasts(store, running=running).would_be(pending(priority=3))
    assert forecast.reason is Reason.WAITING_FOR_VICTIMS
    assert [(gives.mesh, gives.tenant, gives.amounts, gives.reason, gives.stages) for gives in forecast.victims] == [
        (EAST, VISION, CPU, Reason.PREEMPTED_WITHIN_TENANT, ("s0",))
    ]


def test_the_stage_with_less_unsaved_work_is_named(store):
    """The mesh makes the same choice: `test_the_stage_with_less_unsaved_work_is_preempted`."""
    full(store)
    limits = PreemptionLimits(lost_work_per_s=MICROS)
    view = store.snapshot().meshes[0]
    at_ms = store.snapshot().at_ms
    view = replace(view, record=replace(view.record, settings=StageSettings(preemption=limits)))
    running = [replace(begun("s0"), started_ms=at_ms - 2_000, saved_ms=at_ms - 100), replace(begun("s1"), started_ms=at_ms - 1_000)]
    rules = ORDERS.merged().preemption(VISION)
    stop = preview_preemption(pending(priority=3), view, {}, running, is_quota_free=True, rules=rules, now_ms=at_ms)
    assert stop is not None
    assert stop.stages == ("s0",)


def test_so_does_the_explanation_of_a_stage_that_waits(store):
    full(store)
    about = forecasts(store, running=[begun("s0"), begun("s1")], east=[queued("r.1", VISION, priority=2, reason=Reason.POOL_BUSY)])
    (gives,) = about.of("r.1").victims
    assert (gives.reason, gives.stages) == (Reason.PREEMPTED_WITHIN_TENANT, ("s0",))


@pytest.mark.parametrize(
    ("running", "tenant_policies", "priority"),
    [
        pytest.param([begun("s0", priority=3), begun("s1", priority=3)], ORDERS, 3, id="as urgent"),
        pytest.param([begun("s0", mesh=WEST), begun("s1", mesh=WEST)], ORDERS, 3, id="elsewhere"),
        pytest.param([begun("s0", tenant=BATCH), begun("s1", tenant=BATCH)], ORDERS, 3, id="of another tenant"),
        pytest.param(
            [begun("s0"), begun("s1")],
            PoliciesInForce(
                filed=replace(ORDERS.filed, settings={VISION: QueueSettings(policies=Policies(within_queue=PreemptionMode.NEVER))})
            ),
            3,
            id="of a tenant that allows no preemption",
        ),
    ],
)
def test_no_stage_would_stop_that_is(store, running, tenant_policies, priority):
    full(store)
    assert forecasts(store, tenant_policies, running).would_be(pending(priority=priority)).victims == ()


def test_newer_stages_of_equal_priority_are_victims_if_allowed(store):
    full(store)
    running = [begun("s0", priority=3, created_ms=5), begun("s1", priority=3, created_ms=8)]
    newer_too = QueueSettings(policies=Policies(within_queue=PreemptionMode.LOWER_OR_NEWER))
    about = forecasts(store, PoliciesInForce(filed=replace(ORDERS.filed, settings={VISION: newer_too})), running)
    found = [about.would_be(pending(priority=3, created_ms=created_ms)).victims for created_ms in (7, 8)]
    assert [[gives.stages for gives in victims] for victims in found] == [[("s1",)], []]


def test_victim_of_an_earlier_stage_is_no_victim_of_the_next(store):
    full(store)
    about = forecasts(
        store,
        running=[begun("s0"), begun("s1", priority=1)],
        east=[queued("r.1", VISION, priority=3), queued("r.2", VISION, priority=2), queued("r.3", VISION, priority=2)],
    )
    assert [[gives.stages for gives in about.of(stage).victims] for stage in ("r.1", "r.2", "r.3")] == [[("s0",)], [("s1",)], []]


def test_victims_serve_the_head_or_the_promised_stage(store):
    full(store)
    running = [begun("s0"), begun("s1", priority=1)]
    about = forecasts(store, IN_ORDER, running, east=[queued("r.1", VISION, priority=3), queued("r.2", VISION, priority=2)])
    assert [[gives.stages for gives in about.of(stage).victims] for stage in ("r.1", "r.2")] == [[("s0",)], []]
    promised = queued("r.2", VISION, priority=2, reason=Reason.WAITING_FOR_VICTIMS)
    about = forecasts(store, IN_ORDER, running, east=[queued("r.1", VISION, priority=3), promised])
    assert [[gives.stages for gives in about.of(stage).victims] for stage in ("r.1", "r.2")] == [[], [("s0",)]]
