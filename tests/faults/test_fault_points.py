"""The coordinator is killed at each point of a run, between real Redis and meshes on real Ray: row 53 of the fault plan.

`tests/simulation/test_crash_points.py` kills each process at each of these points in virtual time; `tests/acceptance/test_array_nodes.py`
kills worker, runner and mesh process on real Ray. Here the coordinator is the production loop in a process of its own, and dies by SIGKILL
between two of its calls of Redis.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.bed import LAB
from faults.dying_coordinator import POINTS
from faults.nursery import ROOT
from faults.proxy import Proxy
from faults.ray_mesh import RAY_PATIENCE_S, RAY_TERMS, RayMesh
from faults.server import Server
from faults.table import Row
from patience import eventually

from dag.run.runs import RunRecord
from dag.run.states import RUN_ENDS, RunState
from dag.spec.spec import digest, parse
from federation.configured_meshes import NO_CONFIGURED_MESHES
from mesh.core.clock import SystemClock
from mesh.core.ids import RunId
from serve_apps.processes.settings import RootSettings

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.ray]

#: Added to each request of a slow store; seconds.
LATENCY_S = 0.05
#: Appends a line to the file of the node, and passes its input on with the node's name behind it. $0: folder, $1: node, $2: padding.
SCRIPT = 'echo ran >> "$0/$1"; cat; head -c "$2" /dev/zero | tr "\\0" "x"; echo "$1"'
#: Ends only when the node $2 has begun as well.
MEETING = 'touch "$0/$1"; while [ ! -e "$0/$2" ]; do sleep 0.05; done; echo met'


class Bed:
    """Two meshes on real Ray, and coordinators that a test starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(folder / "redis")
        self.mesh = RayMesh(self.server, folder, names=("east", "west"), sweeps=False)
        self.stores = self.mesh.stores
        self._begun: list[subprocess.Popen[bytes]] = []
        self._clock = SystemClock()

    def begin(self, point: str, url: str = "") -> subprocess.Popen[bytes]:
        """Start a coordinator that dies at the point."""
        settings = RootSettings(
            ray_address="",
            heartbeat_ms=1_000,
            storage_url=self.mesh.storage_url,
            redis_url=url or self.server.url,
            lease_ttl_ms=RAY_TERMS.ttl_ms,
            lease_grace_ms=RAY_TERMS.grace_ms,
            host="127.0.0.1",
            port=0,
            gateways=1,
            body_limit_bytes=2**20,
            inline_limit_bytes=1_000,
            retention_ms=10**9,
            configured_meshes=NO_CONFIGURED_MESHES,
            receipt_keys={},
        )
        path = self.folder / f"root-{len(self._begun)}.json"
        settings.write(path)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        with path.with_suffix(".log").open("wb") as log:
            argv = [sys.executable, "-m", "faults.dying_coordinator", str(path), point]
            process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, start_new_session=True)
        self._begun.append(process)
        return process

    def submit(self, run: str, nodes: dict[str, Any]) -> None:
        """Store a run, as a gateway does."""
        outputs = {name: {"$ref": name} for name in nodes}
        body = json.dumps({"spec": "dag/1", "id": run, "tenant": LAB, "nodes": nodes, "outputs": outputs}).encode()
        record = RunRecord(run=RunId(run), tenant=LAB, digest=digest(parse(body)), spec=body, created_ms=self._clock.wall_ms())
        assert self.stores.runs.create(record, {})

    def ended(self, run: str) -> RunRecord:
        """Return the record of the run once it has ended."""

        def look() -> RunRecord | None:
            record = self.stores.runs.load(RunId(run))
            return record if record is not None and record.state in RUN_ENDS else None

        record = eventually(look, RAY_PATIENCE_S)
        assert record is not None
        return record

    def successes(self, run: str) -> Counter[str]:
        """Return how often each node was recorded as succeeded."""
        events = self.stores.runs.events(RunId(run), 0, 10_000)
        return Counter(str(event.node) for event in events if event.kind == "node" and event.after == "SUCCEEDED")

    def stop(self, *processes: subprocess.Popen[bytes]) -> None:
        """Kill coordinators."""
        for process in processes or self._begun:
            if process.poll() is None:
                process.kill()
            process.wait()

    def close(self) -> None:
        self.stop()
        self.mesh.close()
        self.server.close()


@pytest.fixture(scope="module")
def points_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Two joined meshes without a root."""
    bed = Bed(tmp_path_factory.mktemp("points"))
    yield bed
    bed.close()


def node(folder: Path, name: str, mesh: str, need: str | None = None, padding: int = 0) -> dict[str, Any]:
    """Return a node that notes each execution, and passes on what it reads."""
    given = {"input": {"$ref": need}} if need is not None else {"input": ""}
    argv = ["sh", "-c", SCRIPT, str(folder), name, str(padding)]
    return {"call": "subprocess:check_output", "args": [argv], "kwargs": {"text": True, **given}, "options": {"mesh": mesh}}


def crossing(folder: Path) -> dict[str, Any]:
    """Return a graph whose values go from east to west and back: a small one and a large one."""
    return {
        "a": node(folder, "a", "east"),
        "b": node(folder, "b", "east", "a", padding=5_000),
        "c": node(folder, "c", "west", "a"),
        "d": node(folder, "d", "west", "b"),
        "e": node(folder, "e", "east", "d"),
    }


def executions(folder: Path) -> dict[str, int]:
    return {path.name: len(path.read_text().splitlines()) for path in folder.iterdir()}


@pytest.mark.parametrize("point", POINTS)
def test_fault_53_the_coordinator_is_killed_at(points_bed: Bed, tmp_path: Path, row: Row, point: str) -> None:
    bed, nodes = points_bed, crossing(tmp_path)
    dying = bed.begin(point)
    bed.submit(point, nodes)
    assert dying.wait(RAY_PATIENCE_S) == -signal.SIGKILL
    recorded = bed.successes(point)
    survivor = bed.begin("none")
    record = bed.ended(point)
    bed.stop(survivor)
    assert (record.state, record.detail) == (RunState.SUCCEEDED, "")
    assert executions(tmp_path) == dict.fromkeys(nodes, 1)
    assert bed.successes(point) == Counter(list(nodes))
    row.held(f"{len(recorded)} of {len(nodes)} nodes were recorded; each ran once")


def test_fault_53_two_coordinators_lead_at_once(points_bed: Bed, tmp_path: Path, row: Row) -> None:
    bed, nodes = points_bed, crossing(tmp_path)
    leaders = bed.begin("unelected"), bed.begin("unelected")
    bed.submit("led-twice", nodes)
    record = bed.ended("led-twice")
    assert [leader.poll() for leader in leaders] == [None, None]
    bed.stop(*leaders)
    assert record.state is RunState.SUCCEEDED
    assert executions(tmp_path) == dict.fromkeys(nodes, 1)
    assert bed.successes("led-twice") == Counter(list(nodes))
    row.held("each node ran once and was recorded once")


def test_fault_53_a_slow_store_keeps_nodes_side_by_side(points_bed: Bed, tmp_path: Path, row: Row) -> None:
    bed, proxy = points_bed, Proxy(points_bed.server.port)
    proxy.weather.request_delay_s = LATENCY_S
    nodes: dict[str, Any] = {f"n{number}": node(tmp_path, f"n{number}", "east") for number in range(200)}
    for one, other in (("left", "right"), ("right", "left")):
        argv = ["sh", "-c", MEETING, str(tmp_path), one, other]
        nodes[one] = {"call": "subprocess:check_output", "args": [argv], "options": {"mesh": "west"}}
    leader = bed.begin("none", f"redis://127.0.0.1:{proxy.port}/0")
    bed.submit("slow-store", nodes)
    record = bed.ended("slow-store")
    bed.stop(leader)
    proxy.close()
    assert (record.state, record.detail) == (RunState.SUCCEEDED, "")
    assert record.version < len(nodes) / 4
    row.held(f"{len(nodes)} nodes in {record.version} commits; two that wait for each other met")
