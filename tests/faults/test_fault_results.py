"""Faults where results are kept, and of the Ray cluster under a mesh: rows 46 and 47 of the fault plan."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from faults.bed import LAB, PATIENCE_S, RUN, SLOT, Bed, kill, tree_of
from faults.nursery import ROOT, Nursery
from faults.parts import VALUE, VALUE_BYTES, record_of
from faults.server import Server
from faults.small_disk import FULL_DISKS, small_disk
from faults.table import Row
from patience import eventually

from federation.dispatch import STAGE_MESSAGES
from federation.errors import StoreUnavailable
from federation.leases import LeaseTerms
from federation.store.keys import Keys
from federation.store.redis_blobs import RedisBlobs
from mesh.ids import MeshId, NodeId, StageId
from mesh.messages import StageMessage
from mesh.reasons import Reason
from mesh.runtime.cluster import ClusterSpec, NodeSpec, OwnCluster
from mesh.runtime.cluster_token import token_environment
from mesh.runtime.exporting import ValueUnreadable, export, import_value, read_verified
from mesh.stages import StageSpec, TaskSpec
from mesh.wire import decode
from serve_apps.processes.settings import ChildSettings, StoreSettings
from serve_apps.processes.stores import Stores, open_stores

pytestmark = pytest.mark.faults

#: Real Ray on a busy machine needs more time than work that is a plain process.
RAY_TERMS = LeaseTerms(ttl_ms=10_000, grace_ms=2_000)
RAY_PATIENCE_S = 120.0
TICK_S = 0.2


def test_fault_46_the_store_of_values_does_not_take_them(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(lab=1)
    bed.mesh("west")
    first = bed.incarnation("west")
    client = bed.server.client
    (stage,) = bed.submit("west", 1, what="value")
    bed.is_running("west", 1)
    eventually(lambda: bed.fate_of(stage) == ["stage_started"], PATIENCE_S)  # Or this is what waits first, and no value is tried.
    client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
    bed.finish([stage])
    eventually(lambda: "put a blob" in bed.meshes["west"].said(), PATIENCE_S)
    assert "node_succeeded" not in bed.told_of(stage)
    client.config_set("maxmemory", 0)
    eventually(lambda: bed.told_of(stage)[-1:] == ["stage_ended"], PATIENCE_S)
    assert RedisBlobs(client, Keys()).get(RUN, (VALUE.sha256,)) == {VALUE.sha256: VALUE_BYTES}
    assert bed.incarnation("west") == first
    row.held("told only when the bytes were there")


@pytest.mark.parametrize("disk", FULL_DISKS)
def test_fault_46_the_disk_is_full_at_the_child(nursery: Nursery, tmp_path: Path, row: Row, disk: str) -> None:
    said, values, is_limited = tmp_path / "said", tmp_path / "disk" / "values", disk == "a file limit"
    with contextlib.nullcontext() if is_limited else small_disk(tmp_path / "disk", 120_000):
        writer = nursery.start("writer", tmp_path / "writer.log", str(values), 100_000, str(said), is_limited)
        try:
            eventually(said.exists, PATIENCE_S)
        finally:
            kill(writer)
        assert said.read_text() == f"{Reason.VALUE_LOST.value} stored"
        assert len([path for path in values.rglob("*") if path.is_file()]) == 1
    row.held("refused with VALUE_LOST, nothing half was left; what fitted was stored")


def test_fault_46_the_bytes_are_not_those_that_were_written(tmp_path: Path, row: Row) -> None:
    stored, _ = export("x" * 1000, run=RUN, node=NodeId("n"), storage_url=tmp_path.as_uri(), inline_limit_bytes=10)
    assert import_value(stored, None) == "x" * 1000
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    for damage in (file.read_bytes()[:-1], file.read_bytes() + b"x", file.read_bytes().replace(b"x", b"y", 1)):
        file.write_bytes(damage)
        with pytest.raises(ValueUnreadable) as refused:
            import_value(stored, None)
        assert refused.value.reason is Reason.VALUE_LOST
    file.unlink()
    with pytest.raises(ValueUnreadable):
        import_value(stored, None)
    with pytest.raises(ValueUnreadable):
        read_verified(replace(stored, uri=None), b"something else")
    row.held("cut short, grown, altered, gone: VALUE_LOST, never another value")


class RayMesh:
    """A production child process on a cluster of its own, and a thread that sweeps."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.stores: Stores = open_stores(server.url, lease_ttl_ms=RAY_TERMS.ttl_ms, lease_grace_ms=RAY_TERMS.grace_ms, founding=True)
        self.stores.ledger.configure(tree_of(lab=2))
        self.cluster = OwnCluster.start(ClusterSpec(nodes=(NodeSpec(cpu=2),), object_store_bytes=100 * 2**20), python_path=(str(ROOT),))
        settings = ChildSettings(
            store=StoreSettings(redis_url=server.url, lease_ttl_ms=RAY_TERMS.ttl_ms, lease_grace_ms=RAY_TERMS.grace_ms),
            link=None,
            ray_address=self.cluster.address,
            heartbeat_ms=1_000,
            storage_url=(folder / "values").as_uri(),
            record=record_of("west", 2),
            node_labels={},
            inline_limit_bytes=1_000,
            warm_runners=1,
        )
        settings.write(folder / "west.json")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", **token_environment(self.cluster.token_file)}
        with (folder / "west.log").open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "serve_apps.child_process", str(folder / "west.json")],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._over = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep)
        self._sweeper.start()
        eventually(lambda: any(view.alive for view in self.stores.ledger.snapshot().meshes), RAY_PATIENCE_S)

    def _sweep(self) -> None:
        while not self._over.wait(TICK_S):
            with contextlib.suppress(StoreUnavailable):  # A busy machine: the next one comes soon.
                self.stores.ledger.sweep()

    def submit(self, name: str) -> None:
        """A stage that sleeps."""
        task = TaskSpec(
            node=NodeId("n"), attempt=1, function="call:time:sleep", args=(600,), resources=SLOT, ray_options={"max_retries": 0}
        )
        spec = StageSpec(stage=StageId(name), run=RUN, tenant=LAB, tasks=(task,), slot=SLOT, width=1)
        self.stores.queue.submit(MeshId("west"), spec)

    def told_of(self, stage: str) -> list[StageMessage]:
        """What was told about a stage."""
        entries = self.stores.queue.inbox(0, 10_000)
        return [message for entry in entries for message in decode(STAGE_MESSAGES, entry.body) if message.stage == stage]

    def workers(self) -> list[psutil.Process]:
        """Of Ray, those that run a task."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "ray::sleep" in " ".join(process.info["cmdline"] or []) and self._is_ours(process):
                    found.append(process)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        return str(self.cluster.folder) in " ".join(process.parent().cmdline()) if process.parent() else False

    def close(self) -> None:
        """End everything."""
        self._over.set()
        self._sweeper.join()
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.cluster.stop()
        self.stores.client.close()


@pytest.fixture
def ray_mesh(server: Server, tmp_path: Path) -> Iterator[RayMesh]:
    """Joined, its tenant has two slots."""
    mesh = RayMesh(server, tmp_path)
    yield mesh
    mesh.close()


@pytest.mark.slow
@pytest.mark.ray
def test_fault_47_a_worker_and_then_the_whole_cluster_are_killed(ray_mesh: RayMesh, row: Row) -> None:
    ray_mesh.submit("first")
    (worker,) = eventually(ray_mesh.workers, RAY_PATIENCE_S)
    worker.kill()
    eventually(lambda: [message.kind for message in ray_mesh.told_of("first")][-1:] == ["stage_ended"], RAY_PATIENCE_S)
    failed = [message.failure.reason for message in ray_mesh.told_of("first") if message.kind == "node_failed"]
    assert failed == [Reason.WORKER_LOST]
    ray_mesh.submit("second")
    eventually(lambda: any(message.kind == "node_started" for message in ray_mesh.told_of("second")), RAY_PATIENCE_S)
    ray_mesh.cluster.kill()
    # Processes die one after the other: a runner that sees the worker of its task go before it does itself tells that.
    over = {"stage_lost", "stage_ended"}
    eventually(lambda: any(message.kind in over for message in ray_mesh.told_of("second")), RAY_PATIENCE_S)
    eventually(lambda: ray_mesh.stores.ledger.snapshot().leases == (), RAY_PATIENCE_S)
    assert ray_mesh.stores.ledger.audit() == ()
    row.held("a node failed with WORKER_LOST; then the stage was over, and the quota came back")
