"""Necessity of each safeguard of the ledger: without it, some scenario fails.

The scripts are changed as text and run against a small set of scenarios. With all safeguards every scenario holds; a mutant
under which all hold as well shows a missing scenario.
Source: ADR 0019, mutation tests of the protocol.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import redis
from ledger_stores import Store, redis_store

from federation.dispatch import HeldClaim, digest_of
from federation.errors import EarlierReportsLost, FederationError, StaleFence
from federation.leases import Granted, HeartbeatReport, LeaseAck, LeaseRefused, QuotaDemand, TargetUpdate
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from federation.store.redis import scripts as redis_scripts
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.stages.messages import StageEnded
from mesh.stages.spec import StageSpec

LAB, RED, CPU, STAGE = TenantPath("lab"), FlavorName("red"), ResourceSet.of({"cpu": 1}), StageId("s")
STEP_MS = 99_000
#: A margin for the real time between two steps.
STEP_MS_MAX = STEP_MS + 60_000


def mesh(store: Store, name: str = "west") -> ManualMesh:
    return ManualMesh(store.ledger, MeshRecord(mesh=MeshId(name), labels={}, pools=(), cluster="c"))


def take(hand: ManualMesh, slots: int) -> int:
    """Return the granted slots."""
    answer = hand.acquire(LAB, RED, CPU, slots)
    return answer.slots if isinstance(answer, Granted) else 0


def held(store: Store) -> int:
    return store.ledger.snapshot().usage.get((LAB, RED, "cpu"), 0) // 10_000


def is_refused(call: Callable[[], object]) -> bool:
    """Return whether the ledger refuses the call."""
    try:
        answer = call()
    except FederationError:
        return True
    return isinstance(answer, LeaseRefused)


def pass_time(store: Store, by_ms: int) -> None:
    """Advance in steps that the lease clock counts in full, with a tick at each."""
    for _ in range(by_ms // STEP_MS):
        store.advance(STEP_MS)
        store.ledger.sweep()


def plan(store: Store, name: str, cpus: int) -> None:
    planner = store.ledger.elect("planner", 10**9)
    assert planner is not None
    target_update = TargetUpdate(mesh=MeshId(name), tenant=LAB, flavor=RED, target=ResourceSet.of({"cpu": cpus}))
    store.ledger.plan_apply(planner, store.ledger.snapshot().version, (target_update,))


# ---- scenarios


def the_ledger_outlasts_the_holder(store: Store) -> None:
    take(mesh(store), 2)
    pass_time(store, store.ttl_ms + 150_000)
    assert held(store) == 2


def renewed_session_survives_an_early_noted_check(store: Store) -> None:
    west = mesh(store)
    take(west, 2)
    pass_time(store, store.ttl_ms - 150_000)
    west.heartbeat()
    pass_time(store, store.ttl_ms)
    assert held(store) == 2


def lost_leases_are_granted_to_no_other(store: Store) -> None:
    west, east = mesh(store), mesh(store, "east")
    kept = store.keep()
    take(west, 4)
    store.lose(kept)
    east.claim_all()
    assert take(east, 4) == 0


def claim_from_before_the_loss_is_ignored(store: Store) -> None:
    west, east = mesh(store), mesh(store, "east")
    take(west, 4)
    late, claims = west.session, tuple(west.leases.values())
    store.restart()
    west.leases.clear()
    west.claim_all()
    east.claim_all()
    assert is_refused(lambda: store.ledger.heartbeat(late, west.record, HeartbeatReport(number=9, claims=claims)))
    assert held(store) == 0


def ack_counts_for_the_current_version_only(store: Store) -> None:
    west = mesh(store)
    take(west, 1)
    before = west.lease(LAB, RED).version
    take(west, 3)
    plan(store, "west", 1)
    west.heartbeat(acks=(LeaseAck(tenant=LAB, flavor=RED, version=before, amounts=CPU),))
    assert held(store) == 4


def release_counts_for_the_current_version_only(store: Store) -> None:
    west = mesh(store)
    take(west, 1)
    before = west.lease(LAB, RED).version
    take(west, 3)
    store.ledger.release(west.session, (LeaseAck(tenant=LAB, flavor=RED, version=before, amounts=NOTHING),))
    assert held(store) == 4


def overtaken_heartbeat_renews_nothing(store: Store) -> None:
    west = mesh(store)
    for _ in range(3):
        west.heartbeat()
    pass_time(store, store.ttl_ms)
    assert is_refused(lambda: store.ledger.heartbeat(west.session, west.record, HeartbeatReport(number=1)))


def clock_jump_revokes_nothing(store: Store) -> None:
    take(mesh(store), 2)
    store.advance(7_200_000)
    store.ledger.sweep()
    assert held(store) == 2


def many_clock_jumps_revoke_nothing(store: Store) -> None:
    take(mesh(store), 2)
    for _ in range(20):
        store.advance(7_200_000)
        store.ledger.sweep()
    assert held(store) == 2


def clock_set_back_suspends_grants(store: Store) -> None:
    west = mesh(store)
    store.advance(-20_000)
    west.claim_all()
    assert take(west, 1) == 0


def unknown_token_proves_lost_writes(store: Store) -> None:
    west = mesh(store)
    ahead = replace(west.session, mark=west.session.incarnation + 30_000_000)
    assert is_refused(lambda: store.ledger.heartbeat(ahead, west.record, HeartbeatReport(number=1)))


def old_receipt_restores_nothing_seen_released(store: Store) -> None:
    west, east = mesh(store), mesh(store, "east")
    take(west, 4)
    old = west.lease(LAB, RED)
    west.release(LAB, RED)
    take(east, 4)
    store.restart()
    west.leases[LAB, RED] = old
    west.claim_all()
    assert held(store) == 4


def lost_leases_return_despite_changes_while_recovering(store: Store) -> None:
    west = mesh(store)
    take(west, 1)
    kept = store.keep()
    west.release(LAB, RED)
    take(west, 2)
    lost = west.lease(LAB, RED)
    store.lose(kept)
    store.ledger.revoke()
    west.leases.clear()
    west.claim_all()
    west.leases[LAB, RED] = lost
    west.claim_all()
    assert held(store) == 2


def repeated_acquire_grants_once(store: Store) -> None:
    west = mesh(store)
    for _ in range(2):
        store.ledger.acquire(west.session, (QuotaDemand(tenant=LAB, flavor=RED, slot=CPU),))
    assert held(store) == 1


def planned_quota_is_granted_to_no_other(store: Store) -> None:
    mesh(store)
    plan(store, "west", 3)
    assert take(mesh(store, "east"), 4) == 1


def earlier_session_is_fenced(store: Store) -> None:
    west = mesh(store)
    mesh(store)
    assert is_refused(west.heartbeat)


def claim_under_another_token_reports_nothing(store: Store) -> None:
    west = mesh(store)
    take(west, 1)
    spec = StageSpec(stage=STAGE, run=RunId("r"), tenant=LAB, tasks=(), slot=CPU, width=1)
    store.queue.submit(MeshId("west"), spec)
    claimed = store.queue.claim(west.session, STAGE, west.lease(LAB, RED))
    assert claimed is not None
    forged = replace(claimed.claim, token=claimed.claim.token + 1)
    with pytest.raises(StaleFence):
        store.queue.report(forged, 1, (StageEnded(stage=STAGE),))


def report_does_not_hide_a_lost_predecessor(store: Store) -> None:
    west = mesh(store)
    take(west, 1)
    store.queue.submit(MeshId("west"), StageSpec(stage=STAGE, run=RunId("r"), tenant=LAB, tasks=(), slot=CPU, width=1))
    claimed = store.queue.claim(west.session, STAGE, west.lease(LAB, RED))
    assert claimed is not None
    kept = store.keep()
    taken = store.queue.report(claimed.claim, 1, ())
    store.lose(kept)
    with pytest.raises(EarlierReportsLost):
        store.queue.report(claimed.claim, 2, (StageEnded(stage=STAGE),), after=taken)


def no_claim_under_a_revoked_lease(store: Store) -> None:
    west = mesh(store)
    take(west, 1)
    lease = west.lease(LAB, RED)
    store.queue.submit(MeshId("west"), StageSpec(stage=STAGE, run=RunId("r"), tenant=LAB, tasks=(), slot=CPU, width=1))
    store.ledger.revoke(tenant=LAB, hard=True)
    assert is_refused(lambda: store.queue.claim(west.session, STAGE, lease))


def no_claim_while_the_ledger_recovers(store: Store) -> None:
    west = mesh(store)
    take(west, 1)
    store.queue.submit(MeshId("west"), StageSpec(stage=STAGE, run=RunId("r"), tenant=LAB, tasks=(), slot=CPU, width=1))
    store.restart()
    west.claim_all()
    assert is_refused(lambda: store.queue.claim(west.session, STAGE, west.lease(LAB, RED)))


def lost_claim(store: Store, west: ManualMesh) -> HeldClaim:
    """Return a claim that the recovering ledger has lost, after the mesh reported its leases."""
    take(west, 1)
    spec = StageSpec(stage=STAGE, run=RunId("r"), tenant=LAB, tasks=(), slot=CPU, width=1)
    store.queue.submit(MeshId("west"), spec)
    kept, paid_by = store.keep(), west.lease(LAB, RED)
    claimed = store.queue.claim(west.session, STAGE, paid_by)
    assert claimed is not None
    store.lose(kept)
    west.claim_all()
    return HeldClaim(claim=claimed.claim, spec=digest_of(spec), lease=paid_by, is_whole=True)


def is_claimed_again(store: Store, west: ManualMesh, held: HeldClaim) -> bool:
    (claim,) = store.queue.resume(west.session, (held,))
    return claim.is_current


def finish_recovery(store: Store, west: ManualMesh) -> None:
    while store.ledger.snapshot().recovery_ms:
        store.advance(STEP_MS)
        west.claim_all()


def lost_claim_is_restored(store: Store) -> None:
    west = mesh(store)
    assert is_claimed_again(store, west, lost_claim(store, west))


def lost_claim_yields_to_a_later_one(store: Store) -> None:
    west = mesh(store)
    held = lost_claim(store, west)
    finish_recovery(store, west)
    later = store.queue.claim(west.session, STAGE, west.lease(LAB, RED))
    assert later is not None
    store.restart()
    west.claim_all()
    assert not is_claimed_again(store, west, held)
    store.queue.report(later.claim, 1, (StageEnded(stage=STAGE),))


def lost_claim_is_restored_only_in_recovery(store: Store) -> None:
    west = mesh(store)
    held = lost_claim(store, west)
    finish_recovery(store, west)
    assert not is_claimed_again(store, west, held)


def lost_claim_keeps_no_token_of_the_current_epoch(store: Store) -> None:
    west = mesh(store)
    held = lost_claim(store, west)
    assert not is_claimed_again(store, west, replace(held, claim=replace(held.claim, token=west.session.epoch)))


def lost_claim_is_restored_on_the_same_work_only(store: Store) -> None:
    west = mesh(store)
    assert not is_claimed_again(store, west, replace(lost_claim(store, west), spec="0" * 40))


def lost_claim_needs_all_its_reports(store: Store) -> None:
    west = mesh(store)
    assert not is_claimed_again(store, west, replace(lost_claim(store, west), is_whole=False))


def lost_claim_needs_its_lease(store: Store) -> None:
    west = mesh(store)
    held = lost_claim(store, west)
    store.ledger.revoke(tenant=LAB, hard=True)
    assert not is_claimed_again(store, west, held)


def lost_claim_is_restored_at_its_own_mesh_only(store: Store) -> None:
    west, east = mesh(store), mesh(store, "east")
    held = lost_claim(store, west)
    east.claim_all()
    foreign = replace(held, claim=replace(held.claim, mesh=MeshId("east"), incarnation=east.session.incarnation), has_ended=True)
    assert not is_claimed_again(store, east, foreign)


SCENARIOS = [
    the_ledger_outlasts_the_holder,
    renewed_session_survives_an_early_noted_check,
    lost_leases_are_granted_to_no_other,
    claim_from_before_the_loss_is_ignored,
    ack_counts_for_the_current_version_only,
    release_counts_for_the_current_version_only,
    overtaken_heartbeat_renews_nothing,
    clock_jump_revokes_nothing,
    many_clock_jumps_revoke_nothing,
    clock_set_back_suspends_grants,
    unknown_token_proves_lost_writes,
    old_receipt_restores_nothing_seen_released,
    lost_leases_return_despite_changes_while_recovering,
    repeated_acquire_grants_once,
    planned_quota_is_granted_to_no_other,
    earlier_session_is_fenced,
    claim_under_another_token_reports_nothing,
    report_does_not_hide_a_lost_predecessor,
    no_claim_under_a_revoked_lease,
    no_claim_while_the_ledger_recovers,
    lost_claim_is_restored,
    lost_claim_yields_to_a_later_one,
    lost_claim_is_restored_only_in_recovery,
    lost_claim_keeps_no_token_of_the_current_epoch,
    lost_claim_is_restored_on_the_same_work_only,
    lost_claim_needs_all_its_reports,
    lost_claim_needs_its_lease,
    lost_claim_is_restored_at_its_own_mesh_only,
]

#: Safeguard, its text, and the replacement.
MUTANTS = [
    pytest.param("session.expires + rare('grace_ms')", "session.expires", id="the grace"),
    pytest.param("due_of(session) >= LT", "false", id="the sweep's check of a session"),
    pytest.param("RECOVERING = LT + rare('recovery_for_ms')", "RECOVERING = LT", id="recovery"),
    pytest.param("if ARGV[2] ~= EPOCH then", "if false then", id="the epoch of a call"),
    pytest.param("REPLID_NOW ~= REPLID", "false", id="the replication id"),
    pytest.param("IS_SET_BACK = PASSED_US < -50000", "IS_SET_BACK = false", id="the check for a clock that was set back"),
    pytest.param(
        "  if token > TOKEN then\n    begin_epoch(", "  if false then\n    begin_epoch(", id="the proof of lost writes by a token"
    ),
    pytest.param("lease.version == ack[3] and shrinks(lease)", "shrinks(lease)", id="the version of an acknowledgement"),
    pytest.param("lease.version == part.version and lease.version > 0", "lease.version > 0", id="the version of a release"),
    pytest.param("if lease.version ~= demand.version then", "if false then", id="the version of a demand"),
    pytest.param("if heartbeat_number < SESSION.heartbeat_number then", "if false then", id="the number of a heartbeat"),
    pytest.param("if passed_ms > MAX_STEP_MS then", "if false then", id="the longest step of the clock"),
    pytest.param("(CLAMPED >= 0 and LT - CLAMPED < TTL_MS) and 0 or MAX_STEP_MS", "MAX_STEP_MS", id="the ignored second jump"),
    pytest.param("lease.version == 0 and version <= seen", "false", id="the age of a claim"),
    pytest.param("      mark_before_loss(holder)\n", "", id="the mark from before the loss"),
    pytest.param("min(free, promised + max(0, to_aim))", "free", id="the reservation of a plan"),
    pytest.param("elseif session.incarnation ~= incarnation then", "elseif false then", id="the fence of sessions"),
    pytest.param(" or current ~= token then", " then", id="the fence of a report"),
    pytest.param("if tonumber(last) < tonumber(ARGV[8]) then", "if false then", id="the check for lost reports"),
    pytest.param("text(lease.token) == lease_token", "true", id="the lease of a claim"),
    pytest.param(
        "  if recovery_left() > 0 then\n    return { 'RECOVERING'",
        "  if false then\n    return { 'RECOVERING'",
        id="no claims in recovery",
    ),
    pytest.param("if state ~= 'queued' or at ~= MESH", "if at ~= MESH", id="the fence of a later claimant"),
    pytest.param("if state ~= 'queued' or at ~= MESH", "if state ~= 'queued'", id="the mesh of a restored claim"),
    pytest.param("recovery_left() == 0 or not is_whole", "not is_whole", id="the end of restoring claims"),
    pytest.param("recovery_left() == 0 or not is_whole", "recovery_left() == 0", id="completeness of the reports"),
    pytest.param("tonumber(token) >= tonumber(EPOCH)", "false", id="the age of a restored claim"),
    pytest.param("redis.sha1hex(spec) ~= digest", "false", id="the spec of a restored claim"),
    pytest.param("  if why then\n    return GONE", "  if false then\n    return GONE", id="the lease of a restored claim"),
]


def holds(scenario: Callable[[Store], None], client: "redis.Redis") -> bool:
    """Return whether the scenario holds on an empty server."""
    client.flushall()
    store = redis_store(client, max_step_ms=STEP_MS_MAX, functions=False)
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas={(RED, "cpu"): Quota(nominal=40_000)})]))
    try:
        scenario(store)
    except (AssertionError, FederationError, pytest.fail.Exception):  # A script that breaks is no answer and raises.
        return False
    return True


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.replace("_", " "))
def test_with_all_safeguards(scenario, redis_server: "redis.Redis"):
    assert holds(scenario, redis_server)


@pytest.mark.parametrize(("safeguard", "nothing"), MUTANTS)
def test_some_scenario_fails_without(safeguard, nothing, redis_server: "redis.Redis", monkeypatch):
    whole = redis_scripts.source

    def changed(package: str, verb: str) -> str:
        return whole(package, verb).replace(safeguard, nothing)

    assert any(whole("federation.store.lua", verb).count(safeguard) == 1 for verb in redis_scripts.verbs("federation.store.lua"))
    monkeypatch.setattr(redis_scripts, "source", changed)
    assert not all(holds(scenario, redis_server) for scenario in SCENARIOS)
