"""Values between two real Ray clusters: copied once, or not at all on one mesh; made again when their mesh dies; past the control plane."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
from federation_bed import LIMIT_S, eventually, processes_of, submit

import dag
from dag.store.remote import Client, Run
from mesh.core.ids import NodeId, RunId
from serve_apps.processes.stores import Stores
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

EAST, WEST = {"zone": "east"}, {"zone": "west"}
LONG = [pytest.mark.faults, pytest.mark.slow]
MIB, GIB = 2**20, 2**30
#: Memory that the largest value takes in all processes together: as bytes in a worker, in both object stores, and while it is read.
COPIES = 4


class Watched:
    """Value that notes which Ray task unpickles it."""

    def __init__(self, data: bytes, folder: str) -> None:
        self.data, self.folder = data, folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes, str]]:
        return unpickled, (self.data, self.folder)


def unpickled(data: bytes, folder: str) -> Watched:
    import ray

    with Path(folder, "read by").open("a") as file:
        file.write(f"{ray.get_runtime_context().get_task_name()}\n")
    return Watched(data, folder)


def watched(kilobytes: int, folder: str) -> Watched:
    return Watched(b"x" * (kilobytes * 1024), folder)


def length(value: Watched, number: int) -> int:
    return len(value.data) + number


def total(*numbers: int) -> int:
    return sum(numbers)


def payload(size_bytes: int) -> bytes:
    return bytes(size_bytes)


def size(data: bytes) -> int:
    return len(data)


def size_at_the_gate(data: bytes, folder: str) -> int:
    """Wait for the gate, then return the size."""
    Path(folder, "waits").touch()
    while not Path(folder, "gate").exists():
        time.sleep(0.01)
    return len(data)


def noted_payload(kilobytes: int, folder: str) -> bytes:
    """Return a value; leave a line with the cluster's address."""
    import ray

    with Path(folder, "made at").open("a") as file:
        file.write(f"{ray.get_runtime_context().gcs_address}\n")
    return b"x" * (kilobytes * 1024)


def wait_at_the_gate(folder: str, name: str) -> str:
    Path(folder, name).touch()
    while not Path(folder, "gate").exists():
        time.sleep(0.01)
    return name


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def files_of(folder: Path, run: Run) -> list[Path]:
    """Return the files of the run's values."""
    return [path for path in (folder / "objects" / run.id).glob("*") if path.is_file()]


def test_values_for_the_same_mesh_are_not_copied(client: Client, stores: Stores, folder: Path, tmp_path: Path) -> None:
    data = dag.task(payload, labels=EAST, name="data").bind(3 * MIB)
    sizes = [dag.task(size_at_the_gate, labels=EAST).bind(data, str(tmp_path)) for _ in range(3)]
    run = submit(client, dag.task(total, labels=EAST).bind(*sizes))
    eventually(lambda: _assert_exists(tmp_path / "waits"))
    assert files_of(folder, run) == []
    (tmp_path / "gate").touch()
    assert run.result(LIMIT_S) == 9 * MIB
    record = stores.runs.load(RunId(run.id))
    assert record is not None
    assert record.nodes[NodeId("data")].stored is None


def test_ten_readers_on_a_mesh_take_one_copy(client: Client, folder: Path, tmp_path: Path) -> None:
    data = dag.task(watched, labels=EAST).bind(3000, str(tmp_path))
    lengths = [dag.task(length, labels=WEST).bind(data, number) for number in range(10)]
    last = dag.task(wait_at_the_gate, labels=WEST).bind(str(tmp_path), "last")
    run = submit(client, dag.task(total, labels=WEST).bind(*lengths, dag.task(len, labels=WEST).bind(last)))
    eventually(lambda: _assert_read(tmp_path, 11))
    assert len(files_of(folder, run)) == 1
    (tmp_path / "gate").touch()
    assert run.result(LIMIT_S) == 10 * 3000 * 1024 + sum(range(10)) + len("last")
    assert lines(tmp_path / "read by").count("bring_in") == 1


@pytest.mark.faults
@pytest.mark.slow
def test_a_producer_runs_elsewhere_when_its_mesh_dies(stack: Stack, client: Client, tmp_path: Path) -> None:
    blockers = submit(client, {name: dag.task(wait_at_the_gate, labels=EAST, name=name).bind(str(tmp_path), name) for name in ("a", "b")})
    eventually(lambda: _assert_exists(tmp_path / "a", tmp_path / "b"))  # East is full, so the next run goes west.
    data = dag.bind(noted_payload, 3000, str(tmp_path))
    run = submit(client, dag.bind(size_at_the_gate, data, str(tmp_path)))
    eventually(lambda: _assert_exists(tmp_path / "waits"))
    assert len(lines(tmp_path / "made at")) == 1
    stack.restarts.put_off("mesh west", 3600.0)
    stack.clusters["second"].kill()
    (tmp_path / "gate").touch()
    try:
        assert run.result(LIMIT_S) == 3000 * 1024
        assert blockers.result(LIMIT_S) == {"a": "a", "b": "b"}
    finally:
        stack.restarts.put_off("mesh west", 0.0)
    first, second = lines(tmp_path / "made at")
    assert first != second


@pytest.mark.parametrize("size_bytes", [pytest.param(96 * MIB, id="96 MiB"), pytest.param(5 * GIB, id="5 GiB", marks=LONG)])
def test_bytes_of_a_value_pass_no_control_process(stack: Stack, client: Client, size_bytes: int) -> None:
    if psutil.virtual_memory().available < size_bytes * COPIES:
        pytest.skip(f"{COPIES * size_bytes // GIB} GiB of memory are not free")
    submit(client, dag.task(size, labels=WEST).bind(dag.task(payload, labels=EAST).bind(MIB))).result(LIMIT_S)  # Starts what starts once.
    before = {process: peak_bytes(process) for process in control_processes(stack)}
    data = dag.task(payload, labels=EAST).bind(size_bytes)
    sizes = [dag.task(size, labels=WEST).bind(data) for _ in range(3)]
    assert submit(client, dag.task(total, labels=WEST).bind(*sizes)).result(LIMIT_S * 4) == 3 * size_bytes
    grown = {process: peak_bytes(process) - peak for process, peak in before.items() if process.is_running()}
    assert len(grown) >= len(before) - 1
    assert [(process, growth) for process, growth in grown.items() if growth > min(size_bytes // 2, 256 * MIB)] == []


def control_processes(stack: Stack) -> Iterable[psutil.Process]:
    """Return the processes of the control plane: gateways, coordinator, Redis, the processes of meshes, and the runners of tenants."""
    yield from processes_of(stack, "first", "ServeReplica:")
    for cluster in stack.clusters:
        yield from processes_of(stack, cluster, "ray::Runner")
    yield from (psutil.Process(child.pid) for child in stack.children.values())
    yield psutil.Process(stack.stores().client.info("server")["process_id"])


def peak_bytes(process: psutil.Process) -> int:
    """Return the most memory that the process has had resident."""
    (line,) = (line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _assert_exists(*paths: Path) -> None:
    assert all(path.exists() for path in paths)


def _assert_read(folder: Path, count: int) -> None:
    assert len(lines(folder / "read by")) >= count
