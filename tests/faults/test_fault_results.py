"""Faults of result storage and of the Ray cluster under a mesh: rows 46 and 47 of the fault plan."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from faults.bed import PATIENCE_S, RUN, Bed, kill
from faults.nursery import Nursery
from faults.parts import VALUE, VALUE_BYTES
from faults.ray_mesh import RAY_PATIENCE_S, RayMesh
from faults.small_disk import FULL_DISKS, small_disk
from faults.table import Row
from patience import eventually

from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.keys import Keys
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.ray.worker.exporting import ValueUnreadable, export, import_value, read_verified

pytestmark = pytest.mark.faults


def test_fault_46_the_store_of_values_does_not_take_them(make_bed: Callable[..., Bed], row: Row) -> None:
    bed = make_bed(lab=1)
    bed.mesh("west")
    first = bed.incarnation("west")
    client = bed.server.client
    (stage,) = bed.submit("west", 1, what="value")
    bed.is_running("west", 1)
    eventually(lambda: bed.fate_of(stage) == ["stage_started"], PATIENCE_S)  # Or this waits first, and no value is tried.
    client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
    bed.finish([stage])
    eventually(lambda: "put a blob" in bed.meshes["west"].said(), PATIENCE_S)
    assert "node_succeeded" not in bed.reported_for(stage)
    client.config_set("maxmemory", 0)
    eventually(lambda: bed.reported_for(stage)[-1:] == ["stage_ended"], PATIENCE_S)
    assert RedisBlobs(client, Keys()).get(RUN, (VALUE.sha256,)) == {VALUE.sha256: VALUE_BYTES}
    assert bed.incarnation("west") == first
    row.held("reported only after the bytes were stored")


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
    row.held("refused with VALUE_LOST without a partial file; a fitting value was stored")


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
    row.held("truncated, grown, altered, gone: VALUE_LOST, never another value")


@pytest.mark.slow
@pytest.mark.ray
def test_fault_47_worker_then_whole_cluster_are_killed(ray_mesh: RayMesh, row: Row) -> None:
    ray_mesh.submit("first")
    (worker,) = eventually(ray_mesh.workers, RAY_PATIENCE_S)
    worker.kill()
    assert ray_mesh.failures_of("first") == [Reason.WORKER_LOST]
    ray_mesh.submit("second")
    eventually(lambda: ray_mesh.runs("second"), RAY_PATIENCE_S)
    ray_mesh.cluster.kill()
    # Processes die one after another: a runner that outlives its task's worker reports that.
    over = {"stage_lost", "stage_ended"}
    eventually(lambda: any(message.kind in over for message in ray_mesh.reported_for("second")), RAY_PATIENCE_S)
    eventually(lambda: ray_mesh.stores.ledger.snapshot().leases == (), RAY_PATIENCE_S)
    assert ray_mesh.stores.ledger.audit() == ()
    row.held("a node failed with WORKER_LOST; then the stage ended, and its quota returned")
