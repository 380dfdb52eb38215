"""Load, repetition and uncooperative users: rows 35 to 41 of the fault plan."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from faults.bed import LAB, PATIENCE_S, SLOT, Bed, spec_of, tree_of
from faults.parts import FLAVOR, TERMS, UID, record_of
from faults.server import Server
from faults.table import Row
from patience import eventually

from federation.dispatch import Claim
from federation.errors import BatchTooLarge, QuotaExceeded, SessionLost, StaleFence, TenantCycle
from federation.leases import ROWS_SENT_MAX, HeartbeatReport, Lease
from federation.manual_mesh import ManualMesh
from federation.store.redis.client import connect
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from mesh.core.ids import MeshId, NodeId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.stages.messages import NodeSucceeded, StageEnded, StageMessage

pytestmark = pytest.mark.faults

HERD, CHILDREN = 1_000, 100
#: Commands of the server for a returning mesh, with any number of them, and for each lease: twice the need.
RETURN_COMMANDS_MAX, LEASE_COMMANDS_MAX = 16, 9
#: Longer than the longest script of these rows on a busy machine.
PATIENT_MS = 20_000


def result_of(stage: str) -> tuple[StageMessage, ...]:
    """Return a stage's successful end."""
    done = NodeSucceeded(stage=StageId(stage), node=NodeId("n"), attempt=1, started_ms=0, finished_ms=0, worker="w")
    return done, StageEnded(stage=StageId(stage))


def claimed_by(bed: Bed, hand: ManualMesh, name: str) -> Claim:
    """Return a stage claimed by this mesh."""
    bed.queue.submit(hand.record.mesh, spec_of(name))
    hand.acquire(LAB, FLAVOR, SLOT)
    claimed = bed.queue.claim(hand.session, StageId(name), hand.lease(LAB, FLAVOR))
    assert claimed is not None
    return claimed.claim


def test_fault_35_one_stage_is_submitted_a_hundred_times(bed: Bed, row: Row) -> None:
    bed.mesh("west")
    spec = spec_of("only", what="quick")
    with ThreadPoolExecutor(20) as pool:
        queued = list(pool.map(lambda _: bed.queue.submit(MeshId("west"), spec), range(100)))
    assert sum(queued) == 1
    eventually(lambda: bed.reported_for("only")[-1:] == ["stage_ended"], PATIENCE_S)
    assert bed.reported_for("only").count("stage_started") == 1
    assert not bed.queue.submit(MeshId("west"), spec)
    row.held("one stage, run once")


def test_fault_36_a_result_comes_after_its_session_is_over(bed: Bed, row: Row) -> None:
    hand = ManualMesh(bed.ledger, record_of("hand", 2))
    claim = claimed_by(bed, hand, "late")
    ManualMesh(bed.ledger, record_of("hand", 2)).leave()
    with pytest.raises(StaleFence):
        bed.queue.report(claim, 1, result_of("late"))
    assert bed.reported_for("late") == ["stage_lost"]
    row.held("refused: StaleFence")


def test_fault_36_two_results_of_one_stage(bed: Bed, row: Row) -> None:
    hand = ManualMesh(bed.ledger, record_of("hand", 2))
    claim = claimed_by(bed, hand, "twice")
    for forged in (replace(claim, token=claim.token + 1), replace(claim, incarnation=claim.incarnation - 1)):
        with pytest.raises(StaleFence):
            bed.queue.report(forged, 1, result_of("twice"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: bed.queue.report(claim, 1, result_of("twice")), range(20)))
    with pytest.raises(StaleFence):
        bed.queue.report(claim, 2, result_of("twice"))
    assert bed.reported_for("twice") == ["node_succeeded", "stage_ended"]
    hand.leave()
    row.held("one effect; a repeat is accepted silently, a stranger refused")


def test_fault_36_a_result_under_a_lease_that_was_revoked(bed: Bed, row: Row) -> None:
    hand = ManualMesh(bed.ledger, record_of("hand", 2))
    claim = claimed_by(bed, hand, "fenced")
    bed.ledger.revoke(mesh=MeshId("hand"), hard=True)
    with pytest.raises(StaleFence):
        bed.queue.report(claim, 1, result_of("fenced"))
    assert bed.reported_for("fenced") == []
    hand.leave()
    row.held("refused: StaleFence")


def test_fault_37_a_stage_kills_its_worker(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(lab=2)
    west = bed.mesh("west")
    bed.submit("west", 1)
    bed.is_running("west", 1)
    before, first = {work.pid for work in west.work()}, bed.incarnation("west")
    (poison,) = bed.submit("west", 1, what="poison", priority=1)
    neighbours = bed.submit("west", 4, what="quick")
    eventually(lambda: all(bed.reported_for(stage)[-1:] == ["stage_ended"] for stage in (poison, *neighbours)), PATIENCE_S)
    assert bed.fate_of(poison) == ["stage_started", "node_failed", "stage_ended"]
    assert [bed.reported_for(stage).count("node_succeeded") for stage in neighbours] == [1] * 4
    assert ({work.pid for work in west.work()}, bed.incarnation("west")) == (before, first)
    row.held("it failed once; its neighbours succeeded, and parallel work continued")


@pytest.mark.slow
def test_fault_38_a_quota_is_halved_and_raised_again_under_load(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(lab=4)
    bed.mesh("west")
    bed.mesh("east")
    bed.submit("west", 4)
    bed.is_running("west", 4)
    bed.submit("east", 2)
    bed.quota(lab=2)
    bed.is_running("west", 2)
    eventually(lambda: bed.held() == 2, PATIENCE_S)
    bed.oracle.limit({"lab": 2})
    assert max(use.by_mesh.get("east", 0) for use in bed.oracle.uses) == 0
    heartbeats = bed.heartbeats("west")
    eventually(lambda: bed.heartbeats("west") > heartbeats + 2, PATIENCE_S)
    bed.oracle.limit({"lab": 3})
    bed.quota(lab=3)
    eventually(lambda: bed.runs("west") + bed.runs("east") == 3, PATIENCE_S)
    row.held("use fell to the new limit without grants meanwhile; then it grew")


def test_fault_38_a_tenant_moves_while_its_work_runs(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(limits={"lab": 9, "lab/a": 2, "new": 9}, lab=0, lab__a=2, new=1)
    west = bed.mesh("west")
    bed.submit("west", 2, tenant="lab/a")
    bed.is_running("west", 2)
    before = {work.pid for work in west.work()}
    moving, version = TenantPath("lab/a"), bed.ledger.snapshot().version
    with pytest.raises(TenantCycle):
        bed.ledger.reparent(LAB, moving, expected=version)
    after = bed.ledger.reparent(moving, TenantPath("new"), expected=version)
    assert after.over == ()
    usage = bed.ledger.snapshot().usage
    assert (usage.get((LAB, FLAVOR, "cpu"), 0), usage[TenantPath("new"), FLAVOR, "cpu"]) == (0, 20_000)
    assert bed.ledger.audit() == ()
    assert {work.pid for work in west.work()} == before
    back = bed.ledger.configure(tree_of(lab=2, lab__a=0, new=0))
    with pytest.raises(QuotaExceeded):
        bed.ledger.reparent(moving, TenantPath("new"), expected=back.version)
    row.held("use moved along at once; a cycle and a parent without quota were refused")


@pytest.mark.slow
def test_fault_39_borrower_ignores_its_preemption(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, limits={"lab": 4, "lab/a": 4, "lab/b": 4}, lab=0, lab__a=2, lab__b=2)
    borrower, tenant = ManualMesh(bed.ledger, record_of("deaf", 4)), TenantPath("lab/a")
    borrower.acquire(tenant, FLAVOR, SLOT, 4)
    assert bed.held("deaf") == 4
    bed.mesh("west")
    bed.submit("west", 2, tenant="lab/b")

    def is_served() -> bool:
        borrower.heartbeat()  # Alive and well, but disobedient.
        return bed.runs("west") == 2

    eventually(is_served, PATIENCE_S)
    assert bed.held("deaf") == 2
    assert {lease_event.lease.mesh for lease_event in bed.ledger.history() if lease_event.verb == "cut" and lease_event.lease} == {"deaf"}
    borrower.leave()
    row.held("its loan was revoked at the deadline; the claimant was served")


def patient_ledger(server: Server) -> RedisLedger:
    """Return a recovered ledger with many connections and long timeouts."""
    ledger = RedisLedger(connect(server.url, timeout_ms=PATIENT_MS), Keys(), terms=TERMS, uid=UID)
    ledger.sweep()
    server.client.hset(Keys().meta, "recovery_ends", "0")
    return ledger


@contextmanager
def commands(server: Server) -> Iterator[Counter[str]]:
    """Count the server's commands during the block, those of scripts too; complete at the end."""
    server.client.config_resetstat()
    counted: Counter[str] = Counter()
    yield counted
    rows = server.client.info("commandstats")
    counted.update({name.removeprefix("cmdstat_"): row["calls"] for name, row in rows.items()})


def verbs(counted: Counter[str]) -> int:
    """Return the ledger's calls: functions on a newer server, scripts on an older one."""
    return counted["fcall"] + counted["evalsha"]


def percentile(taken_s: list[float], share: float) -> float:
    """Return the percentile in milliseconds."""
    return sorted(taken_s)[min(len(taken_s) - 1, int(len(taken_s) * share))] * 1000


@pytest.mark.slow
def test_fault_40_a_thousand_meshes_return_at_once(server: Server, row: Row) -> None:
    ledger = patient_ledger(server)
    ledger.configure(tree_of(lab=HERD))
    with ThreadPoolExecutor(16) as pool:
        hands = list(pool.map(lambda number: ManualMesh(ledger, record_of(f"m{number}", 1)), range(HERD)))
        list(pool.map(lambda hand: hand.acquire(LAB, FLAVOR, SLOT), hands))
        lt, asleep_since = int(server.client.hget(Keys().meta, "lt")), time.monotonic()
        eventually(lambda: time.monotonic() - asleep_since > TERMS.ttl_ms / 1000, PATIENCE_S)  # No root is reachable.
        with commands(server) as counted:
            taken_s = list(pool.map(measured_heartbeats, hands))
        assert ledger.sweep().meshes == ()
    assert (verbs(counted), counted.total() <= RETURN_COMMANDS_MAX * HERD) == (HERD, True), counted
    assert int(server.client.hget(Keys().meta, "lt")) - lt < TERMS.recovery_ms
    assert ledger.snapshot().usage[LAB, FLAVOR, "cpu"] == HERD * 10_000
    row.held(f"one call each, no session lost, none taken back early; a heartbeat took {percentile(taken_s, 0.99):.0f} ms (p99)")


def measured_heartbeats(hand: ManualMesh) -> float:
    """Send heartbeats and measure them.

    Raises:
        SessionLost: The ledger has given the mesh up.
    """
    since = time.monotonic()
    hand.heartbeat()
    return time.monotonic() - since


@contextmanager
def another_beats(ledger: RedisLedger, taken_s: list[float]) -> Iterator[ManualMesh]:
    """Run a mesh with measured heartbeats during the block."""
    other, over = ManualMesh(ledger, record_of("other", 1)), threading.Event()
    failed: list[SessionLost] = []

    def heartbeat_report() -> None:
        while not over.wait(0.01):
            try:
                since = time.monotonic()
                other.claim_all()
                taken_s.append(time.monotonic() - since)
            except SessionLost as lost:
                failed.append(lost)
                return

    thread = threading.Thread(target=heartbeat_report)
    thread.start()
    try:
        yield other
    finally:
        over.set()
        thread.join()
    assert failed == []


@pytest.mark.slow
def test_fault_41_a_hundred_meshes_claim_a_thousand_leases_each(server: Server, row: Row) -> None:
    ledger = patient_ledger(server)
    names = [f"t{number}" for number in range(ROWS_SENT_MAX)]
    ledger.configure(tree_of(**dict.fromkeys(names, CHILDREN)))
    hands = [ManualMesh(ledger, record_of(f"m{number}", ROWS_SENT_MAX)) for number in range(CHILDREN)]
    recovery_ms = 10**9  # Recovery is complete.
    server.client.hset(Keys().meta, "recovery_ends", str(recovery_ms))
    taken_s: list[float] = []
    with commands(server) as counted, another_beats(ledger, taken_s):
        for hand in hands:
            token = hand.session.incarnation + 1  # Granted in this session, and lost.
            leases = tuple(lease_named(hand.record.mesh, name, token) for name in names)
            hand.heartbeat(claims=leases)
            with pytest.raises(BatchTooLarge):
                ledger.heartbeat(hand.session, hand.record, HeartbeatReport(number=2, claims=(*leases, leases[0])))
    assert len(taken_s) >= CHILDREN // 10  # It was served between the others.
    assert verbs(counted) == CHILDREN + len(taken_s) + 1, counted  # One call each, and none for the excess.
    assert counted.total() <= LEASE_COMMANDS_MAX * CHILDREN * ROWS_SENT_MAX, counted
    used = ledger.snapshot().usage
    assert {used[TenantPath(name), FLAVOR, "cpu"] for name in names} == {CHILDREN * 10_000}
    row.held(f"100,000 leases came back; 1,001 in a heartbeat are refused; one beside it took {percentile(taken_s, 0.99):.0f} ms (p99)")


def lease_named(mesh: MeshId, tenant: str, token: int) -> Lease:
    """Return a lease of one slot as the mesh remembers it."""
    held = ResourceSet.of({"cpu": 1})
    return Lease(tenant=TenantPath(tenant), mesh=mesh, flavor=FLAVOR, held=held, target=held, token=token, version=token)
