"""Faults of roots and planners: rows 12 to 16 of the fault plan."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from faults.bed import LAB, PATIENCE_S, SLOT, Bed, kill
from faults.parts import FLAVOR, LEADER_TTL_MS, STEADY_TTL_MS, TERMS, ledger_of, record_of
from faults.proxy import Proxy
from faults.server import PATIENT_MS, Server
from faults.table import Row
from patience import eventually

from federation.errors import PlannerSuperseded, StoreUnavailable
from federation.leases import HeartbeatReport, QuotaDemand, TargetUpdate
from federation.manual_mesh import ManualMesh
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.scripts import load_scripts
from mesh.core.ids import MeshId
from mesh.core.resources import ResourceSet

pytestmark = pytest.mark.faults

#: Two tenants that may borrow all of each other's quota.
SHARED = {"lab": 4, "lab/a": 4, "lab/b": 4}


def test_fault_12_the_reply_is_lost_after_the_script_has_run(bed: Bed, row: Row) -> None:
    proxy = Proxy(bed.server.port)
    try:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        hand = ManualMesh(ledger_of(url, ttl_ms=bed.ttl_ms, answer_ms=PATIENT_MS), record_of("hand", 2))
        hasty = ledger_of(url, ttl_ms=bed.ttl_ms)
        demand = QuotaDemand(tenant=LAB, flavor=FLAVOR, slot=SLOT)
        load_scripts(bed.server.client, ("federation.store.lua",))  # A script must be loaded before it runs at once.
        eventually(lambda: is_heard(hasty), PATIENCE_S)  # Over an open connection.
        proxy.weather.drop_replies = True
        with pytest.raises(StoreUnavailable):
            hasty.acquire(hand.session, (demand,))
        eventually(lambda: bed.held("hand") == 1, PATIENCE_S)
        proxy.weather.drop_replies = False
        proxy.cut()
        answer = hand.ledger.acquire(hand.session, (demand,))
        assert [lease.held for lease in answer.response.leases] == [SLOT]
        assert bed.held("hand") == 1
        heartbeat_report, heartbeats = HeartbeatReport(number=1, demands=()), bed.heartbeats("hand")
        eventually(lambda: is_heard(hasty), PATIENCE_S)
        proxy.weather.drop_replies = True
        with pytest.raises(StoreUnavailable):
            hasty.heartbeat(hand.session, hand.record, heartbeat_report)
        eventually(lambda: bed.heartbeats("hand") > heartbeats, PATIENCE_S)
        proxy.weather.drop_replies = False
        proxy.cut()
        assert hand.ledger.heartbeat(hand.session, hand.record, heartbeat_report).leases == answer.response.leases
        hand.leave()
    finally:
        proxy.close()
    row.held("the repeated call was answered, and granted once")


def is_heard(ledger: RedisLedger) -> bool:
    """Return whether it answers in time."""
    try:
        ledger.snapshot()
    except StoreUnavailable:
        return False
    return True


@pytest.mark.slow
def test_fault_12_replies_are_lost_again_and_again_under_load(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, lab=4)
    west = bed.mesh("west")
    stages = bed.submit("west", 30, what="quick")
    for _ in range(12):
        asked = west.proxy.requests
        west.proxy.weather.drop_replies = True
        eventually(lambda asked=asked: west.proxy.requests > asked, PATIENCE_S)
        west.proxy.weather.drop_replies = False
        west.proxy.cut()
    eventually(
        lambda: all("stage_ended" in bed.reported_for(stage) or "stage_lost" in bed.reported_for(stage) for stage in stages), PATIENCE_S
    )
    row.held("each stage ended once")


@pytest.mark.slow
def test_fault_13_all_roots_are_down_for_two_times_to_live(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, lab=4)
    west, east = bed.mesh("west"), bed.mesh("east")
    bed.submit("west", 2)
    bed.submit("east", 2)
    bed.is_running("west", 2)
    bed.is_running("east", 2)
    before = {work.pid for work in east.work()}
    for process in bed.roots:
        kill(process)
    for process in (*west.processes(), *(psutil.Process(work.pid) for work in west.work())):
        kill(process)
    eventually(lambda: bed.silence_ms("west") > TERMS.recovery_ms + TERMS.ttl_ms, PATIENCE_S)
    assert bed.held("west") == 2
    assert {work.pid for work in east.work()} == before
    bed.submit("east", 2)
    bed.root("again")
    bed.is_running("east", 4)
    assert before < {work.pid for work in east.work()}
    row.held("no work stopped, no lease was revoked; the next root revoked the dead mesh's leases")


@pytest.mark.slow
def test_fault_14_two_planners_at_once(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(limits=SHARED, lab=0, lab__a=2, lab__b=2)
    bed.root("second")
    bed.mesh("west")
    bed.mesh("east")
    bed.submit("west", 4, tenant="lab/a")
    bed.is_running("west", 4)
    bed.submit("east", 2, tenant="lab/b")
    bed.is_running("east", 2)
    bed.is_running("west", 2)
    settled = bed.plans()
    lt = bed.lt()
    eventually(lambda: bed.lt() > lt + 2 * LEADER_TTL_MS, PATIENCE_S)
    assert bed.plans() - settled <= 2  # Once a second at most, by the elected planner.
    row.held("the borrower was preempted once; no plan undid another")


def test_fault_14_deposed_planner_sends_a_plan(bed: Bed, row: Row) -> None:
    kill(bed.roots[0])
    hand = ManualMesh(bed.ledger, record_of("hand", 2))
    first = eventually(lambda: bed.ledger.elect("first", STEADY_TTL_MS), PATIENCE_S)
    assert bed.ledger.elect("second", LEADER_TTL_MS) is None
    target_update = TargetUpdate(mesh=MeshId("hand"), tenant=LAB, flavor=FLAVOR, target=SLOT)
    version = bed.ledger.snapshot().version
    for forged in (first - 1, first + 1):
        with pytest.raises(PlannerSuperseded):
            bed.ledger.plan_apply(forged, version, (target_update,))
    assert bed.ledger.plan_apply(first, version, (target_update,))
    hand.leave()
    row.held("refused: only the token issued by the ledger plans")


def test_fault_15_the_roots_speak_for_another_ledger(bed: Bed, tmp_path: Path, row: Row) -> None:
    other = Server(tmp_path / "other")
    try:
        stranger = ledger_of(other.url, uid="another", ttl_ms=bed.ttl_ms, answer_ms=PATIENT_MS)
        stranger.sweep()
        other.client.hset("{q:main}:meta", "recovery_ends", "0")
        west = bed.mesh("west")
        bed.submit("west", 2)
        bed.is_running("west", 2)
        west.proxy.server_port = other.port
        west.proxy.cut()
        eventually(lambda: any(view.alive for view in stranger.snapshot().meshes), PATIENCE_S)
        eventually(lambda: not west.work(), PATIENCE_S)
        assert "another ledger than the one it joined" in west.said()
        assert (bed.held("west"), stranger.snapshot().leases) == (2, ())
        stranger._client.close()
    finally:
        other.close()
    row.held("work ended and the mesh joined anew; the first ledger keeps its quota charged until TTL + G")


@pytest.mark.slow
def test_fault_16_a_planner_sleeps_and_then_applies_its_plan(bed: Bed, tmp_path: Path, row: Row) -> None:
    kill(bed.roots[0])
    bed.others.append(bed.nursery.start("root", tmp_path / "sweeper.log", bed.server.url, "second"))
    said = tmp_path / "said"
    hand = ManualMesh(bed.ledger, record_of("hand", 2))
    kill(bed.others[-1])
    sleeper = bed.nursery.start("planner", tmp_path / "planner.log", bed.server.url, "first", str(said), [["hand", LAB, 2]])
    bed.others.append(sleeper)
    eventually(lambda: said.exists() and said.read_text().startswith("elected"), PATIENCE_S)
    sleeper.suspend()
    eventually(lambda: bed.ledger.elect("second", LEADER_TTL_MS * 10), PATIENCE_S)
    sleeper.send_signal(signal.SIGUSR1)
    sleeper.resume()
    eventually(lambda: said.read_text() == PlannerSuperseded.__name__, PATIENCE_S)
    assert hand.lease(LAB, FLAVOR).target == ResourceSet.of({})
    row.held("refused: PlannerSuperseded")
