"""Programs as nodes on a real cluster: output, exit code, files, their driver in Ray, and that nothing of them is left."""

from __future__ import annotations

import hashlib
import queue
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import patience
import psutil
import pytest
from single_ends import single

from dag.store.working_dir import packed
from mesh.core.functions import key_of
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.ray.stage_runner.host import RayStageHost
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.ownership import references
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodeFailed, NodeSucceeded, StageEnded, StageMessage
from mesh.stages.spec import StageSpec, TaskSpec

pytestmark = pytest.mark.ray

MESH = MeshId("programs")
HEARTBEAT_S = 0.5
PATIENCE = 240  #: Heartbeats.
eventually = partial(patience.eventually, patience_s=90.0)


class Mesh:
    """Host on the cluster, its heartbeats and reports."""

    def __init__(self, address: str, folder: Path) -> None:
        self.folder = folder
        self._reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
        self.messages: list[StageMessage] = []
        self.output: list[str] = []
        self.host = RayStageHost(
            mesh=MESH,
            address=address,
            report=self._reports.put,
            storage_url=folder.as_uri(),
            inline_limit_bytes=1024,
            node_labels={},
            warm_runners=0,
        )
        self.heartbeat()

    def heartbeat(self) -> None:
        self.host.read_clock()
        self.host.extend_deadline(1, 600_000, 600_000, 1)

    def start(self, run: str, command: Any, *, cpus: float = 0.5, size: int = 1, env: dict[str, str] | None = None) -> StageId:
        """Start a stage of one program in the test's own folder."""
        archive = packed(self.folder / "home").data
        sha256 = hashlib.sha256(archive).hexdigest()
        gang = Gang(size=size, bundle=ResourceSet.of({"cpu": cpus}))
        kwargs = {"working_dir": {"$blob": sha256}, **({"env_vars": env} if env else {})}
        task = TaskSpec(
            node=NodeId("program"), attempt=1, function=key_of(command), args=(command,), kwargs=kwargs, resources=gang.slot, gang=gang
        )
        stage = StageId(f"{run}.1")
        spec = StageSpec(stage=stage, run=RunId(run), tenant=TenantPath("acme"), tasks=(task,), slot=gang.slot, width=1)
        self.host.start(spec, 1, 7, {sha256: archive}, {})
        return stage

    def until(self, kind: type[StageMessage], stage: StageId) -> Any:
        """Return the first such message; a heartbeat begins whenever none comes."""
        for _ in range(PATIENCE):
            for message in self.messages:
                if isinstance(message, kind) and message.stage == stage:
                    return message
            self.take()
        raise AssertionError(f"no {kind.__name__} of {stage}, got {self.messages}, {self.output}")

    def until_printed(self, line: str) -> None:
        for _ in range(PATIENCE):
            if line in self.output:
                return
            self.take()
        raise AssertionError(f"no {line!r}, got {self.output}, {self.messages}")

    def take(self) -> None:
        try:
            report = self._reports.get(timeout=HEARTBEAT_S)
        except queue.Empty:
            self.heartbeat()
            return
        self.output += [line for lines in report.output for line in lines.lines]
        self.messages += single(report.messages, (NodeId("program"),))
        self.host.confirm(report.stage, report.number)


@pytest.fixture
def mesh(ray_driver: Any, tmp_path: Path) -> Iterator[Mesh]:
    (tmp_path / "home").mkdir()
    mesh = Mesh(ray_driver.address, tmp_path)
    yield mesh
    eventually(lambda: references(MESH) == [])
    mesh.host.leave(1)
    mesh.host.stop_all()
    mesh.host.close()


def write(mesh: Mesh, name: str, text: str) -> None:
    (mesh.folder / "home" / name).write_text(text)


def processes_with(mark: str) -> list[psutil.Process]:
    """Return the processes whose command holds the text."""
    return [process for process in psutil.process_iter(["cmdline"]) if mark in " ".join(process.info["cmdline"] or [])]


def test_a_program_runs_in_its_working_dir(mesh: Mesh) -> None:
    write(mesh, "train.py", "import helper, os, sys\nprint(helper.X, sys.argv[1], os.environ['RATE'], *sorted(os.listdir('.')))\n")
    write(mesh, "helper.py", "X = 41\n")
    write(mesh, "notes.log", "not sent")
    write(mesh, ".rayignore", "*.log\n")
    stage = mesh.start("files", ["python", "train.py", "two wörds"], env={"RATE": "0.1"})
    mesh.until(StageEnded, stage)
    assert mesh.until(NodeSucceeded, stage)
    assert mesh.output == ["41 two wörds 0.1 .rayignore __pycache__ helper.py train.py"]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        pytest.param("echo out; exit 7", 7, "echo out; exit 7 ended with exit code 7", id="its own exit code"),
        pytest.param(["no-such-command", "x"], 127, "no-such-command x ended with exit code 127", id="a command that is not there"),
        pytest.param("kill -9 $$", 137, "as by SIGKILL; the system may have had no memory left", id="a signal"),
    ],
)
def test_another_exit_code_fails_the_node(mesh: Mesh, command: Any, code: int, words: str) -> None:
    stage = mesh.start("fails", command)
    failure = mesh.until(NodeFailed, stage).failure
    mesh.until(StageEnded, stage)
    assert (failure.reason, failure.type_name) == (Reason.USER_ERROR, "mesh.errors.ProgramFailed")
    assert words in failure.message
    assert str(code) in failure.message


#: Starts a process in a session of its own, and heeds no request to stop, nor does that process.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('below', flush=True); time.sleep(1000)"
subprocess.Popen([sys.executable, "-c", code, sys.argv[1]], start_new_session=True)
while True:
    time.sleep(1000)
"""


def test_a_cancelled_program_ends_with_all_it_started(mesh: Mesh) -> None:
    write(mesh, "stubborn.py", STUBBORN)
    mark = f"mark-{mesh.folder.name}"
    stage = mesh.start("cancelled", ["python", "stubborn.py", mark])
    mesh.until_printed("below")
    assert len(processes_with(mark)) > 1
    mesh.host.cancel(stage)
    assert mesh.until(NodeFailed, stage).failure.reason is Reason.CANCELLED_BY_USER
    mesh.until(StageEnded, stage)
    assert processes_with(mark) == []
    assert "asked" in mesh.output


def test_a_program_dies_with_its_worker(mesh: Mesh) -> None:
    write(mesh, "stubborn.py", STUBBORN)
    mark = f"mark-{mesh.folder.name}"
    stage = mesh.start("lost", ["python", "stubborn.py", mark])
    mesh.until_printed("below")
    program = next(process for process in processes_with(mark) if "stubborn.py" in process.cmdline())
    _guard, _stub, worker, *_ = program.parents()
    worker.suspend()  # It must not report the death of the stub.
    for child in worker.children():  # As Ray does when it ends a worker by force.
        child.kill()
    worker.kill()
    assert mesh.until(NodeFailed, stage).failure.reason is Reason.WORKER_LOST
    mesh.until(StageEnded, stage)
    eventually(lambda: processes_with(mark) == [])


def test_what_a_program_leaves_behind_ends_with_it(mesh: Mesh) -> None:
    mark = f"mark-{mesh.folder.name}"
    code = f"{sys.executable} -c 'import time; time.sleep(1000)' {mark} &"
    stage = mesh.start("leaves", code)
    mesh.until(NodeSucceeded, stage)
    assert processes_with(mark) == []
    mesh.until(StageEnded, stage)


#: Connects to Ray, runs tasks within its group, is refused outside, and leaves a detached actor.
DRIVER = """
import ray
import helper
ray.init()

@ray.remote
def read():
    import helper
    return helper.X, ray.util.get_current_placement_group().id.hex()

@ray.remote(num_cpus=0.1)
class Stays:
    def ping(self):
        return "pong"

group = ray.util.get_current_placement_group()
values = ray.get([read.remote(), read.options(scheduling_strategy="SPREAD").remote()])
assert {place for _, place in values} == {group.id.hex()}, values
print("values", [value for value, _ in values], [spec["CPU"] for spec in group.bundle_specs])
for leave in (
    lambda: read.options(scheduling_strategy="DEFAULT", placement_group=None).remote(),
    lambda: Stays.options(placement_group=None).remote(),
):
    try:
        ray.get(leave())
        print("was let outside")
    except Exception as refused:
        print(type(refused).__name__)
print(ray.get(Stays.options(name="stays", lifetime="detached").remote().ping.remote()))
"""


def test_the_driver_of_a_program_is_in_its_group(mesh: Mesh) -> None:
    write(mesh, "driver.py", DRIVER)
    write(mesh, "helper.py", "X = 41\n")
    stage = mesh.start("driver", "python driver.py 2>&1", cpus=1, size=1)
    mesh.until(StageEnded, stage)
    assert mesh.until(NodeSucceeded, stage), mesh.output
    assert [line for line in mesh.output if line.startswith("values")] == ["values [41, 41] [1.0]"]
    assert mesh.output.count("OutsideGroup") == 2
    assert "was let outside" not in mesh.output
    eventually(lambda: [actor for actor in ray_tables.actors() if actor.class_name == "Stays"] == [])
