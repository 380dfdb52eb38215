"""Faults of the Redis server: rows 17 to 20, 22 to 27, 32 and 45 of the fault plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis
from faults.bed import LAB, PATIENCE_S, RUN, SLOT, Bed, tree_of
from faults.oracle import CPU
from faults.parts import FLAVOR, HEARTBEAT_MS, PARTED_TTL_MS, TERMS, UID, ledger_of, record_of
from faults.server import Server, clocks_can_be_shifted
from faults.small_disk import FULL_DISKS, small_disk
from faults.table import Row
from patience import eventually

from dag.run.runs import RunRecord
from dag.spec.spec import digest, parse
from dag.store.redis_runs import RedisRunStore
from federation.errors import EpochChanged, LedgerUnsafe, StoreUnavailable
from federation.leases import Granted
from federation.manual_mesh import ManualMesh
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.client import connect
from federation.store.redis.fixtures import move_time, servers
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from federation.store.redis.safety import check_server
from federation.store.redis.scripts import key_places, library
from mesh.core.clock import EnduringClock
from mesh.core.resources import NOTHING
from serve_apps.requests.accepted_runs import AcceptedRuns

pytestmark = pytest.mark.faults

#: Random places at which the append-only file is cut.
CUTS = 40


def pids(bed: Bed, mesh: str) -> set[int]:
    return {work.pid for work in bed.meshes[mesh].work()}


def fill_up(write: Callable[[int], object]) -> None:
    """Write until the server refuses, and raise its error; give up when that is no use."""
    for number in range(1_000):
        write(number)


@pytest.mark.slow
def test_fault_17_redis_is_killed_and_comes_back(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, lab=3)
    bed.mesh("west")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    before, first, epoch = pids(bed, "west"), bed.incarnation("west"), bed.ledger.snapshot().epoch
    bed.server.kill()
    bed.server.start()
    learning = bed.ledger.snapshot()
    assert learning.epoch > epoch
    assert learning.recovery_ms > 0
    (late,) = bed.submit("west", 1)
    bed.is_running("west", 3)
    assert bed.ledger.snapshot().recovery_ms == 0  # No new work before.
    assert before < pids(bed, "west")
    assert bed.incarnation("west") == first
    eventually(lambda: bed.reported_for(late)[:2] == ["stage_waiting", "stage_started"], PATIENCE_S)  # It runs before its mesh reports so.
    row.held("no loss, no work stopped, none begun before the end of recovery")


@pytest.mark.slow
def test_fault_18_log_tail_is_lost_with_its_grants(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west, _ = bed.mesh("west"), bed.mesh("east")
    west.cut_off()
    bed.submit("west", 2)
    kept_bytes = bed.server.log_file().stat().st_size
    west.cut_off(False)
    bed.is_running("west", 2)
    bed.server.kill()
    bed.server.cut(kept_bytes)
    bed.server.start()
    bed.submit("east", 2)
    eventually(lambda: bed.held("west") == 2, PATIENCE_S)
    assert bed.ledger.snapshot().recovery_ms > 0
    assert [lease_event.verb for lease_event in bed.ledger.history() if lease_event.lease is not None] == ["restore"]
    eventually(lambda: bed.ledger.snapshot().recovery_ms == 0, PATIENCE_S)
    eventually(lambda: bed.runs("west") + bed.runs("east") == 2, PATIENCE_S)
    row.held("the mesh's claims restored its leases before any grant")


@pytest.mark.slow
def test_fault_18_log_tail_is_lost_with_a_stage_end(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    bed.mesh("west")
    ended, stays = bed.submit("west", 2)
    bed.is_running("west", 2)
    eventually(lambda: bed.fate_of(ended) == bed.fate_of(stays) == ["stage_started"], PATIENCE_S)
    kept_bytes = bed.server.log_file().stat().st_size
    bed.finish([ended])
    eventually(lambda: bed.fate_of(ended) == ["stage_started", "node_succeeded", "stage_ended"], PATIENCE_S)
    before = pids(bed, "west")
    bed.server.kill()
    bed.server.cut(kept_bytes)
    bed.server.start()
    assert bed.fate_of(ended) == ["stage_started"]
    eventually(lambda: bed.fate_of(ended) == ["stage_started", "node_succeeded", "stage_ended"], PATIENCE_S)
    eventually(lambda: bed.ledger.snapshot().recovery_ms == 0, PATIENCE_S)
    eventually(lambda: bed.held("west") == 1, PATIENCE_S)
    assert (bed.fate_of(ended)[1:], bed.fate_of(stays), pids(bed, "west")) == (
        ["node_succeeded", "stage_ended"],
        ["stage_started"],
        before,
    )
    row.held("the mesh resent the reports that the ledger had lost; no stage ran twice")


@pytest.mark.slow
def test_fault_18_claims_are_lost_with_the_end_of_the_file(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west = bed.mesh("west")
    west.cut_off()
    ended, stays = bed.submit("west", 2)
    kept_bytes = bed.server.log_file().stat().st_size
    west.cut_off(False)
    bed.is_running("west", 2)
    bed.finish([ended])
    eventually(lambda: bed.fate_of(ended)[-1:] == ["stage_ended"] and bed.fate_of(stays) == ["stage_started"], PATIENCE_S)
    before = pids(bed, "west")
    bed.server.kill()
    bed.server.cut(kept_bytes)
    bed.server.start()
    eventually(lambda: bed.fate_of(ended) == ["stage_started", "node_succeeded", "stage_ended"], PATIENCE_S)
    eventually(lambda: bed.fate_of(stays) == ["stage_started"], PATIENCE_S)
    assert bed.ledger.snapshot().recovery_ms > 0
    eventually(lambda: bed.ledger.snapshot().recovery_ms == 0, PATIENCE_S)
    eventually(lambda: bed.held("west") == 1, PATIENCE_S)
    assert pids(bed, "west") == before
    bed.finish([stays])
    eventually(lambda: bed.fate_of(stays) == ["stage_started", "node_succeeded", "stage_ended"], PATIENCE_S)
    row.held("claims were restored under their tokens: running stages continued, ended ones did not rerun")


def test_fault_18_log_tail_is_lost_with_an_accepted_run(server: Server, row: Row) -> None:
    client = server.client
    ledger = RedisLedger(client, Keys(), terms=TERMS, uid=UID, founding=False)
    ledger.configure(tree_of(lab=1))
    runs, queue = RedisRunStore(client, Keys()), RedisStageQueue(client, Keys())
    accepted = AcceptedRuns(runs, epoch=ledger.epoch, clock=EnduringClock())
    body = b'{"spec": "dag/1", "tenant": "lab", "nodes": {"a": {"call": "work:do"}}, "outputs": {"a": {"$ref": "a"}}}'
    record = RunRecord(run=RUN, tenant=LAB, digest=digest(parse(body)), spec=body, created_ms=1)
    kept_bytes = server.log_file().stat().st_size
    assert accepted.create(record, {"sha": b"code"}, epoch=ledger.epoch())
    server.kill()
    server.cut(kept_bytes)
    server.start()
    assert runs.active() == ()
    ledger.sweep()  # As a coordinator does every second: the epoch has begun.
    assert [accepted.look() for _ in range(2)] == [1, 0]
    assert runs.active() == (RUN,)
    assert [entry.run for entry in queue.inbox(0)] == [RUN]
    assert RedisBlobs(client, Keys()).get(RUN, ("sha",)) == {"sha": b"code"}
    row.held("the gateway stored it again, once, with its code")


@pytest.mark.slow
def test_fault_18_the_file_is_cut_at_random_places(server: Server, tmp_path: Path, row: Row) -> None:
    random_stream = random.Random(18)
    ledger = ledger_of(server.url)
    ledger.configure(tree_of(lab=4))
    server.client.hset(Keys().meta, "recovery_ends", "0")
    hands = [ManualMesh(ledger, record_of(name, 4)) for name in ("west", "east")]
    from_bytes = server.log_file().stat().st_size
    for _ in range(60):
        hand = random_stream.choice(hands)
        if random_stream.random() < 0.6:
            hand.acquire(LAB, FLAVOR, SLOT, random_stream.randint(1, 3))
        elif hand.lease(LAB, FLAVOR).held:
            hand.release(LAB, FLAVOR, SLOT if random_stream.random() < 0.5 else NOTHING)
    for hand in hands:
        hand.release(LAB, FLAVOR)
    late_bytes = server.log_file().stat().st_size
    for hand in hands:  # In the end all is held, half by each.
        assert hand.acquire(LAB, FLAVOR, SLOT, 2) == Granted(slots=2)
    to_bytes = server.log_file().stat().st_size
    held = [hand.lease(LAB, FLAVOR) for hand in hands]
    server.kill()
    whole = server.kept_copy(tmp_path / "whole")
    for number in range(CUTS):
        server.restore(whole)
        server.cut(random_stream.randint(late_bytes if number % 2 else from_bytes, to_bytes))
        server.start()
        for hand, lease in random_stream.sample(list(zip(hands, held, strict=True)), len(hands)):
            hand.leases = {(LAB, FLAVOR): lease} if lease.held else {}
            hand.number = 10_000  # The ledger has a later state than these heartbeats.
            hand.claim_all()
            ask(hand)  # Before the other mesh has reported its leases.
        grab_after_recovery(server, ledger, hands)
        assert sum(hand.lease(LAB, FLAVOR).held["cpu"] for hand in hands) <= 4 * CPU
        assert ledger.audit() == ()
        server.kill()
    row.held(f"{CUTS} cuts, no over-grant")


def ask(hand: ManualMesh) -> None:
    """Ask for everything; after a token of an unknown epoch, ask once more under the new epoch."""
    try:
        hand.acquire(LAB, FLAVOR, SLOT, 4)
    except EpochChanged:
        hand.claim_all()
        hand.acquire(LAB, FLAVOR, SLOT, 4)


def grab_after_recovery(server: Server, ledger: RedisLedger, hands: list[ManualMesh]) -> None:
    """Let all meshes ask for everything, during recovery and after it."""
    while True:
        for hand in hands:
            ask(hand)
        if ledger.sweep().recovery_ms == 0:
            return
        move_time(server.client, Keys(), HEARTBEAT_MS)
        for hand in hands:
            hand.claim_all()


@pytest.mark.slow
def test_fault_19_a_copy_of_an_hour_ago_is_restored(brief_bed: Bed, tmp_path: Path, row: Row) -> None:
    bed = brief_bed
    bed.mesh("west")
    bed.mesh("east")
    old = bed.submit("west", 1)
    bed.is_running("west", 1)
    copy = bed.server.kept_copy(tmp_path / "copy")
    bed.quota(lab=3)
    bed.oracle.limit({"lab": 3})
    bed.submit("east", 2)
    bed.is_running("east", 2)
    bed.finish(old)
    bed.is_running("west", 0)
    eventually(lambda: bed.held("west") == 0, PATIENCE_S)
    bed.server.kill()
    bed.server.restore(copy)
    bed.server.start()
    bed.quota(lab=3)  # The root's file is the source of the tree.
    eventually(lambda: (bed.held("west"), bed.held("east")) == (0, 2), PATIENCE_S)
    eventually(lambda: bed.ledger.snapshot().recovery_ms == 0, PATIENCE_S)
    bed.submit("west", 3)
    eventually(lambda: bed.runs("west") + bed.runs("east") == 3, PATIENCE_S)
    row.held("released leases went, forgotten ones returned")


@pytest.mark.slow
def test_fault_20_everything_is_flushed(brief_bed: Bed, row: Row) -> None:
    bed = brief_bed
    west = bed.mesh("west")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    first = bed.incarnation("west")
    bed.server.client.flushall()
    bed.quota(lab=2)
    assert bed.ledger.snapshot().recovery_ms > 0
    eventually(lambda: bed.held("west") == 2, PATIENCE_S)
    assert bed.incarnation("west") == first
    eventually(lambda: bed.ledger.snapshot().recovery_ms == 0, PATIENCE_S)
    eventually(lambda: not west.work(), PATIENCE_S)  # Their stages are forgotten: no client waits for their results.
    bed.submit("west", 2)
    bed.is_running("west", 2)
    assert bed.incarnation("west") == first
    row.held("founded anew, recovering; the leases returned with one heartbeat, the session continued")


def test_fault_22_redis_freezes_and_a_heartbeat_is_lost(bed: Bed, row: Row) -> None:
    freezes_for(bed, 0)
    row.held("no effect")


@pytest.mark.slow
def test_fault_22_redis_freezes_for_a_third_of_the_time_to_live(make_bed: Callable[..., Bed], row: Row) -> None:
    freezes_for(make_bed(ttl_ms=PARTED_TTL_MS), PARTED_TTL_MS // 3)
    row.held("no effect")


def freezes_for(bed: Bed, for_ms: int) -> None:
    """Freeze the server until its mesh has noticed and for this long on the meshes' clock; no effect may remain."""
    west, clock = bed.mesh("west"), EnduringClock()
    bed.submit("west", 2)
    bed.is_running("west", 2)
    before, first = pids(bed, "west"), bed.incarnation("west")
    silent = west.said().count("does not answer")
    bed.server.freeze()
    since_ms = clock.monotonic_ms()
    eventually(lambda: west.said().count("does not answer") > silent, PATIENCE_S)
    eventually(lambda: clock.monotonic_ms() >= since_ms + for_ms, PATIENCE_S)
    bed.server.thaw()
    eventually(lambda: bed.is_fresh("west"), PATIENCE_S)
    assert (pids(bed, "west"), bed.incarnation("west")) == (before, first)


@pytest.mark.slow
def test_fault_22_redis_freezes_for_longer_than_leases_live(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, lab=4)
    for name in ("west", "east"):
        bed.mesh(name)
        bed.submit(name, 2)
        bed.is_running(name, 2)
    lt = bed.lt()
    bed.server.freeze()
    bed.is_running("west", 0)
    bed.is_running("east", 0)
    bed.server.thaw()
    assert bed.lt() - lt < TERMS.ttl_ms
    for name in ("west", "east"):
        bed.submit(name, 2)
    eventually(lambda: bed.runs("west") + bed.runs("east") == 4, PATIENCE_S)
    row.held("all work stopped by its own clocks; the lease clock had stood still; work returned")


@pytest.mark.slow
def test_fault_23_writes_pause_for_two_thirds_of_the_ttl(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, lab=3)
    bed.mesh("west")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    before, first = pids(bed, "west"), bed.incarnation("west")
    bed.server.client.execute_command("CLIENT", "PAUSE", TERMS.ttl_ms * 5 // 9, "WRITE")
    eventually(lambda: bed.server.client.set("over", 1), PATIENCE_S)
    bed.submit("west", 1)
    bed.is_running("west", 3)
    assert before < pids(bed, "west")
    assert bed.incarnation("west") == first
    row.held("no work stopped or began meanwhile")


Clocked = tuple[Bed, Callable[[int], None]]


@pytest.fixture(params=["as the ledger reads it", "its own"])
def clocked_bed(request: pytest.FixtureRequest, servers_of_row: Callable[..., Server], make_bed: Callable[..., Bed]) -> Clocked:
    """A bed, and a function that shifts the clock of its Redis once, by milliseconds."""
    if request.param == "as the ledger reads it":
        bed = make_bed()
        return bed, partial(move_time, bed.server.client, Keys())
    if not clocks_can_be_shifted():
        pytest.skip("the clock of a process is shifted on Linux with x86-64 alone")
    # A separate allocator library asks for the time before the preloaded one is ready; the wheel has its own inside.
    server = servers_of_row(binary=servers()["wheel"], has_own_clock=True)
    return make_bed(server=server), server.shift_clock


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_fault_24_the_clock_of_redis_jumps_by_an_hour(clocked_bed: Clocked, row: Row, by_ms: int) -> None:
    bed, move = clocked_bed
    bed.mesh("west")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    before, first, lt, epoch = pids(bed, "west"), bed.incarnation("west"), bed.lt(), bed.ledger.snapshot().epoch
    server_s = bed.server.client.time()[0]
    move(by_ms)
    after = bed.ledger.snapshot()
    if move == bed.server.shift_clock:
        assert abs(bed.server.client.time()[0] - server_s) > abs(by_ms) // 2_000
    assert bed.lt() - lt < bed.ttl_ms
    assert (after.epoch > epoch, after.recovery_ms > 0) == ((True, True) if by_ms < 0 else (False, False))
    eventually(lambda: bed.is_fresh("west"), PATIENCE_S)
    assert (pids(bed, "west"), bed.incarnation("west"), bed.held("west")) == (before, first, 2)
    row.held("a new epoch in recovery; no work stopped" if by_ms < 0 else "the lease clock took one step; no effect")


@pytest.mark.slow
def test_fault_24_the_clock_of_redis_swings(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, lab=3)
    bed.mesh("west")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    before, first = pids(bed, "west"), bed.incarnation("west")
    for swing in range(20):
        move_time(bed.server.client, Keys(), 200 if swing % 2 else -200)
        bed.ledger.sweep()
    (late,) = bed.submit("west", 1)
    eventually(lambda: bed.reported_for(late) == ["stage_waiting"], PATIENCE_S)
    assert bed.ledger.snapshot().recovery_ms > 0
    bed.is_running("west", 3)
    assert before < pids(bed, "west")
    assert bed.incarnation("west") == first
    row.held("grants were suspended until it stood still; no lease was revoked")


def test_fault_25_the_memory_of_redis_is_full(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(lab=3)
    bed.mesh("west")
    running = bed.submit("west", 2)
    bed.is_running("west", 2)
    first = bed.incarnation("west")
    blobs = RedisBlobs(connect(bed.server.url), Keys())
    bed.server.client.config_set("maxmemory", bed.server.client.info("memory")["used_memory"] + 200_000)
    with pytest.raises(StoreUnavailable, match="cannot serve now"):
        fill_up(lambda number: blobs.put(RUN, f"{number:064}", b"x" * 50_000))
    bed.server.client.config_set("maxmemory", bed.server.client.info("memory")["used_memory"] // 2)  # No other call frees so much memory.
    with pytest.raises(StoreUnavailable, match="cannot serve now"):
        bed.submit("west", 1)
    heartbeats = bed.heartbeats("west")
    eventually(lambda: bed.heartbeats("west") > heartbeats + 2, PATIENCE_S)
    bed.finish(running[:1])
    bed.server.client.config_set("maxmemory", 0)
    eventually(lambda: bed.reported_for(running[0])[-1:] == ["stage_ended"], PATIENCE_S)
    assert bed.incarnation("west") == first
    row.held("heartbeats passed; submissions, reports and values were refused; the reports arrived later, once")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        pytest.param({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy", id="a server that evicts"),
        pytest.param({"appendonly": "no"}, "appendonly", id="a server without a file"),
    ],
)
def test_fault_26_an_unfit_server(server: Server, row: Row, settings: dict[str, str], named: str) -> None:
    check_server(server.client, Keys(), TERMS)
    for name, value in settings.items():
        server.client.config_set(name, value)
    with pytest.raises(LedgerUnsafe, match=named):
        check_server(server.client, Keys(), TERMS)
    row.held(f"refused for {named}")


def test_fault_26_a_master_that_waits_for_no_replica(server: Server, tmp_path: Path, row: Row) -> None:
    replica = Server(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}")
    try:
        eventually(lambda: server.client.info("replication")["connected_slaves"] == 1, PATIENCE_S)
        with pytest.raises(LedgerUnsafe, match="min-replicas-to-write"):
            check_server(server.client, Keys(), TERMS)
    finally:
        replica.close()
    row.held("refused for min-replicas-to-write")


@pytest.fixture
def filling(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Callable[[], None]]]:
    """A server whose disk holds twice its scripts, and a function that enlarges it while the server is down."""
    folder, size_bytes = tmp_path / "redis", 800_000
    if request.param == "a file limit":
        limited = Server(folder, file_bytes_max=size_bytes)
        yield limited, lambda: setattr(limited, "file_bytes_max", None)
        limited.close()
        return
    with small_disk(folder, size_bytes * 3 // 2) as disk:  # Its log and settings are there, too.
        server = Server(folder)
        yield server, lambda: disk.grow(100 * size_bytes)
        server.close()


@pytest.mark.slow
@pytest.mark.parametrize("filling", FULL_DISKS, indirect=True)
def test_fault_27_the_disk_is_full_and_redis_is_killed_then(
    filling: tuple[Server, Callable[[], None]], make_bed: Callable[..., Bed], row: Row
) -> None:
    server, make_room = filling
    bed = make_bed(ttl_ms=TERMS.ttl_ms, server=server, lab=2)
    bed.mesh("west")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    with pytest.raises(redis.ResponseError, match="MISCONF"):
        fill_up(lambda _: server.client.set("junk", "x" * 20_000))
    bed.is_running("west", 0)
    server.kill()
    make_room()
    server.start()
    eventually(lambda: bed.view("west"), PATIENCE_S)
    bed.submit("west", 2)
    bed.is_running("west", 2)
    row.held("as if Redis were down: work stopped; after the restart the file's data, and recovery")


def test_fault_32_scripts_are_flushed_beside_another_version(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(lab=3)
    bed.mesh("west")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    first = bed.incarnation("west")
    client = bed.server.client
    client.script_flush()
    if bed.server.has_functions:
        client.function_flush()
        digest, text = library("federation.store.lua")
        client.function_load(text.replace(digest, "0" * len(digest)))
    bed.submit("west", 1)
    bed.is_running("west", 3)
    assert bed.incarnation("west") == first
    if bed.server.has_functions:
        places = key_places("federation.store.lua", "sweep")
        assert places is not None
        keys = [Keys().scripted[place - 1] for place in places]
        assert len(client.function_list()) == 2
        assert client.fcall(f"sweep_{'0' * len(digest)}", len(keys), *keys, 1)[0] == b"OK"
    row.held("loaded again by the next caller; two versions answer side by side")


@pytest.mark.slow
def test_fault_45_the_rights_of_the_user_are_taken_away(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, lab=2)
    client = bed.server.client
    client.execute_command("ACL", "SETUSER", "child", "on", ">secret", "~*", "&*", "+@all")
    west = bed.mesh("west", login="child:secret")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    agent = west.agent
    client.execute_command("ACL", "SETUSER", "child", "-@all")
    bed.is_running("west", 0)
    client.execute_command("ACL", "SETUSER", "child", "+@all")
    eventually(lambda: bed.view("west"), PATIENCE_S)
    bed.submit("west", 2)
    bed.is_running("west", 2)
    assert agent.is_running()
    row.held("stopped at T2 as if Redis were down; the same process continued when allowed again")


@pytest.mark.slow
def test_fault_45_password_changes_under_open_connections(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(ttl_ms=TERMS.ttl_ms, lab=2)
    client = bed.server.client
    client.execute_command("ACL", "SETUSER", "child", "on", ">secret", "~*", "&*", "+@all")
    west = bed.mesh("west", login="child:secret")
    bed.submit("west", 2)
    bed.is_running("west", 2)
    client.execute_command("ACL", "SETUSER", "child", "resetpass", ">another")
    client.execute_command("CLIENT", "KILL", "USER", "child")
    bed.is_running("west", 0)
    assert west.agent.is_running()
    client.execute_command("ACL", "SETUSER", "child", ">secret")
    eventually(lambda: bed.view("west"), PATIENCE_S)
    row.held("stopped at T2; the process keeps calling, and returns when the password is right")
