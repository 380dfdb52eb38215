"""Faults of child meshes and of their link to the ledger: rows 1 to 4 and 8 to 11 of the fault plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
import pytest
from faults.bed import PATIENCE_S, Bed, Mesh, kill
from faults.namespace import Namespace, are_possible
from faults.parts import PARTED_TTL_MS, TERMS
from faults.server import Server
from faults.table import Row
from patience import eventually

pytestmark = pytest.mark.faults

#: Time for a process to start and take over on a busy machine, and short enough to await.
LONG_TTL_MS = 20_000


@pytest.mark.slow
def test_fault_01_the_agent_is_killed_and_its_workers_live_on(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west, _ = bed.mesh("west"), bed.mesh("east")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    kill(west.agent)
    bed.submit("east", 2)
    bed.is_running("east", 2)
    assert west.work() == []
    row.held("watchdog ended the work, then east had the quota")


def test_fault_01_restarted_agent_continues_earlier_work(bed: Bed, row: Row) -> None:
    takes_over(bed)
    row.held("the same process continued under the new session, and its result was reported once")


@pytest.mark.slow
def test_fault_01_restarted_agent_proves_begun_work(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=LONG_TTL_MS)
    takes_over(bed, LONG_TTL_MS)  # Longer than any proof of the first lasts.
    row.held("the same process continued after the first session's proofs had expired")


def takes_over(bed: Bed, for_ms: int = 0) -> None:
    """Kill an agent, let the next one continue its work for at least this long, and end the work well."""
    west = bed.mesh("west")
    (stage,) = bed.submit("west")
    bed.is_running("west", 1)
    (before,) = west.work()
    first = bed.incarnation("west")
    kill(west.agent)
    west.begin()
    eventually(lambda: bed.incarnation("west") > first, PATIENCE_S)
    eventually(lambda: west.nodes[0].watches(bed.incarnation("west")), PATIENCE_S)
    since_ms = bed.lt()
    eventually(lambda: bed.lt() >= since_ms + for_ms, PATIENCE_S)
    assert (west.work(), bed.held("west")) == ([before], 1)
    bed.finish([stage])
    eventually(lambda: "stage_ended" in bed.reported_for(stage), PATIENCE_S)
    assert bed.fate_of(stage) == ["stage_started", "node_succeeded", "stage_ended"]


def test_fault_01_next_agent_reports_ends_during_the_gap(bed: Bed, row: Row) -> None:
    west = bed.mesh("west")
    stages = bed.submit("west", 2)
    bed.is_running("west", 2)
    first = bed.incarnation("west")
    kill(west.agent)
    bed.finish(stages[:1])
    bed.is_running("west", 1)
    west.begin()
    eventually(lambda: bed.incarnation("west") > first, PATIENCE_S)
    bed.finish(stages[1:])
    eventually(lambda: all("stage_ended" in bed.reported_for(stage) for stage in stages), PATIENCE_S)
    assert [bed.reported_for(stage).count("node_succeeded") for stage in stages] == [1, 1]
    row.held("its end was reported once, by the new session")


@pytest.mark.slow
def test_fault_01_agent_back_after_lease_expiry_begins_anew(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west = bed.mesh("west")
    (stage,) = bed.submit("west")
    bed.is_running("west", 1)
    first = bed.incarnation("west")
    kill(west.agent)
    bed.is_running("west", 0)  # At T3 the watchdog has ended it.
    eventually(lambda: not bed.view("west"), PATIENCE_S)
    west.begin()
    eventually(lambda: bed.incarnation("west") > first, PATIENCE_S)
    eventually(lambda: bed.reported_for(stage)[-1:] == ["stage_lost"], PATIENCE_S)
    (again,) = bed.submit("west")  # A root does this with a lost stage.
    bed.is_running("west", 1)
    bed.finish([again])
    eventually(lambda: "stage_ended" in bed.reported_for(again), PATIENCE_S)
    assert [bed.reported_for(each).count("node_succeeded") for each in (stage, again)] == [0, 1]
    row.held("its work was ended at T3, reported lost once, and ran again once")


@pytest.mark.slow
def test_fault_02_a_whole_child_is_killed(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west, _ = bed.mesh("west"), bed.mesh("east")
    stages = bed.submit("west", 2)
    bed.is_running("west", 2)
    for process in (*west.processes(), *(psutil.Process(work.pid) for work in west.work())):
        kill(process)
    bed.submit("east", 2)
    bed.is_taken_back("west")
    bed.is_running("east", 2)
    assert [bed.reported_for(stage).count("stage_lost") for stage in stages] == [1, 1]
    row.held("stages reported lost once, quota back after TTL + G")


@pytest.mark.slow
def test_fault_03_the_agent_sleeps_for_two_times_to_live(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west, _ = bed.mesh("west"), bed.mesh("east")
    late = bed.submit("west", 2)
    bed.is_running("west", 2)
    first = bed.incarnation("west")
    west.agent.suspend()
    bed.submit("east", 2)
    bed.is_running("east", 2)
    assert west.work() == []
    west.agent.resume()
    eventually(lambda: bed.incarnation("west") > first, PATIENCE_S)
    assert [bed.reported_for(stage).count("node_succeeded") for stage in late] == [0, 0]
    assert bed.runs("east") == 2
    row.held("work ended while the agent was suspended; then the mesh joined anew before any other call")


@pytest.mark.slow
def test_fault_04_the_agent_and_one_of_two_watchdogs_sleep(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west = bed.mesh("west", nodes=2)
    bed.mesh("east")
    late = bed.submit("west", 2)
    bed.is_running("west", 2)
    asleep, awake = west.nodes
    west.agent.suspend()
    asleep.watchdog.suspend()
    # The suspended node runs no part of this system, so its work is out of reach until its watchdog wakes, as documented.
    beyond = [work.pid for work in west.work() if (asleep.folder / "w" / str(work.pid)).exists()]
    assert len(beyond) == 1
    bed.oracle.spare(*beyond)
    bed.submit("east", 2)
    bed.is_running("east", 2)
    assert [work.pid for work in west.work()] == beyond
    asleep.watchdog.resume()
    eventually(lambda: not west.work(), PATIENCE_S)
    west.agent.resume()
    eventually(lambda: bed.view("west"), PATIENCE_S)
    assert [bed.reported_for(stage).count("node_succeeded") for stage in late] == [0, 0]
    assert awake.watchdog.is_running()
    row.held("the watched node stopped; the other once its watchdog woke; late results were fenced")


Parted = Callable[..., tuple[Bed, Mesh]]


@pytest.fixture(params=["a proxy", "a network namespace"])
def parted(request: pytest.FixtureRequest, servers_of_row: Callable[..., Server], make_bed: Callable[..., Bed]) -> Parted:
    """A bed made by `make_bed` and its mesh `west`, whose link to Redis can be cut."""
    if request.param == "a proxy":
        return lambda **wanted: ((bed := make_bed(**wanted)), bed.mesh("west"))
    if not are_possible():
        pytest.skip("network namespaces are for root, and for those who have `ip` of iproute2")

    def apart(**wanted: Any) -> tuple[Bed, Mesh]:
        bed = make_bed(server=servers_of_row(bind="0.0.0.0", protected_mode="no"), **wanted)  # noqa: S104  of a test
        return bed, bed.mesh("west", namespace=Namespace())

    return apart


def test_fault_08_a_partition_of_a_sixth_of_the_time_to_live(parted: Parted, row: Row) -> None:
    bed, west = parted(ttl_ms=PARTED_TTL_MS)
    bed.submit("west", 2)
    bed.is_running("west", 2)
    before, first = {work.pid for work in west.work()}, bed.incarnation("west")
    west.cut_off()
    warnings = west.said().count("does not answer")
    eventually(lambda: west.said().count("does not answer") > warnings, PATIENCE_S)
    eventually(lambda: bed.silence_ms("west") >= PARTED_TTL_MS // 6, PATIENCE_S)
    west.cut_off(False)
    eventually(lambda: bed.is_fresh("west"), PATIENCE_S)
    assert ({work.pid for work in west.work()}, bed.incarnation("west")) == (before, first)
    row.held("no effect")


@pytest.mark.slow
def test_fault_08_partition_outlasts_the_admission_deadline(parted: Parted, row: Row) -> None:
    bed, west = parted(ttl_ms=TERMS.ttl_ms, lab=4)
    bed.submit("west", 2)
    bed.is_running("west", 2)
    first = bed.incarnation("west")
    west.cut_off()
    eventually(lambda: bed.silence_ms("west") > TERMS.ttl_ms * 0.55, PATIENCE_S)
    bed.submit("west", 1)
    west.cut_off(False)
    bed.is_running("west", 3)
    assert bed.incarnation("west") == first
    row.held("no work began or stopped; later submissions began afterwards")


@pytest.mark.slow
def test_fault_08_a_partition_of_two_times_to_live(parted: Parted, row: Row) -> None:
    bed, west = parted(ttl_ms=TERMS.ttl_ms)
    bed.mesh("east")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    first = bed.incarnation("west")
    west.cut_off()
    bed.submit("east", 2)
    bed.is_running("east", 2)
    assert west.work() == []
    west.cut_off(False)
    eventually(lambda: bed.incarnation("west") > first, PATIENCE_S)
    bed.submit("west", 1)
    bed.finish(bed.stages("east")[:1])
    bed.is_running("west", 1)
    row.held("stopped at T2 by its own clock; the mesh came back and worked")


@pytest.mark.slow
def test_fault_09_replies_are_dropped_and_requests_arrive(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west, _ = bed.mesh("west"), bed.mesh("east")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    west.proxy.weather.drop_replies = True
    bed.is_running("west", 0)
    assert "does not answer" in west.said()
    bed.submit("east", 2)
    bed.is_running("east", 2)
    row.held("stopped at T2, although the ledger had received the heartbeat")


@pytest.mark.slow
def test_fault_10_a_heartbeat_arrives_after_its_session_is_over(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west, _ = bed.mesh("west"), bed.mesh("east")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    first = bed.incarnation("west")
    west.proxy.weather.request_delay_s = 1.5 * TERMS.recovery_ms / 1000
    bed.submit("east", 2)
    bed.is_running("east", 2)
    heard = west.proxy.delivered_late
    eventually(lambda: west.proxy.delivered_late > heard, PATIENCE_S)
    assert (bed.view("west"), bed.runs("east"), bed.runs("west")) == (None, 2, 0)
    west.proxy.weather.request_delay_s = 0.0
    west.proxy.cut()
    eventually(lambda: bed.incarnation("west") > first, PATIENCE_S)
    row.held("it renewed nothing: its session was swept")


@pytest.mark.slow
def test_fault_11_everything_is_said_twice_and_out_of_order(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(lab=3)
    west, _ = bed.mesh("west"), bed.mesh("east")
    first = bed.incarnation("west")
    west.proxy.weather.duplicate = True
    west.proxy.cut()
    stages = bed.submit("west", 6, what="quick") + bed.submit("west", 3, priority=1)
    bed.is_running("west", 3)
    bed.finish(bed.stages("west")[:2])
    bed.submit("east", 2)
    bed.is_running("east", 2)
    eventually(lambda: all("stage_ended" in bed.reported_for(stage) for stage in stages[:6]), PATIENCE_S)
    assert bed.incarnation("west") == first
    assert "a stage stops: the store does not know its claim" not in west.said()
    row.held("each grant, claim and report had its effect once; the session lasted")
