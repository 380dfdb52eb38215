"""User code that leaves actors, tasks and groups in Ray, or waits for them: row 51 of the fault plan, on a real cluster."""

from __future__ import annotations

import hashlib
import queue
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import patience
import psutil
import pytest
import ray
from faults.nursery import ROOT
from faults.table import Row
from ray.util.placement_group import placement_group, remove_placement_group
from single_ends import single

from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.ray.stage_runner.host import RayStageHost
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.ownership import references
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodeFailed, NodeSucceeded, StageEnded, StageLost, StageMessage, StageWaiting
from mesh.stages.spec import StageSpec, TaskSpec

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.ray]

PATIENCE_S = 90.0
eventually = partial(patience.eventually, patience_s=PATIENCE_S)
MESH = MeshId("user-code")
ONE_CPU = ResourceSet.of({"cpu": 1})
#: Tasks of `leave_tasks_elsewhere` that run, by the names of their files.
ELSEWHERE = ("spread", "affinity", "group", "thread", "below")


class Mesh:
    """Host on the cluster, and its reports."""

    def __init__(self, address: str, storage: Path) -> None:
        self._reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
        self._messages: dict[StageId, list[StageMessage]] = defaultdict(list)
        self.host = RayStageHost(
            mesh=MESH,
            address=address,
            report=self._reports.put,
            storage_url=storage.as_uri(),
            inline_limit_bytes=1024,
            node_labels={},
            warm_runners=1,
        )
        self.host.extend_deadline(1, 600_000, 600_000, 1)

    def start(self, name: str, function: Callable[..., Any], *args: Any, slots: int = 1) -> StageId:
        """Start a stage of one node."""
        code = cloudpickle.dumps(function, protocol=5)
        sha256 = hashlib.sha256(code).hexdigest()
        task = TaskSpec(node=NodeId("n"), attempt=1, function=f"blob:{sha256}", args=args, resources=ONE_CPU)
        stage = StageId(f"{name}.1")
        spec = StageSpec(stage=stage, run=RunId(name), tenant=TenantPath("acme"), tasks=(task,), slot=ONE_CPU, width=slots)
        self.host.start(spec, slots, 7, {sha256: code}, {})
        return stage

    def until(self, stage: StageId, kind: type[StageMessage]) -> Any:
        """Return the first message of this kind."""
        while not (found := [message for message in self._messages[stage] if isinstance(message, kind)]):
            report = self._reports.get(timeout=PATIENCE_S)
            self._messages[report.stage] += single(report.messages, (NodeId("n"),))
            self.host.confirm(report.stage, report.number)
        return found[0]

    def close(self) -> None:
        """End the host and everything it started."""
        self.host.leave(1)
        self.host.stop_all()
        self.host.close()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    cluster = OwnCluster.start(ClusterSpec(nodes=(ClusterNodeSpec(cpu=3),), object_store_bytes=100 * 2**20), python_path=(str(ROOT),))
    cluster.connect(namespace="faults")
    mesh = Mesh(cluster.address, tmp_path_factory.mktemp("values"))
    yield mesh
    mesh.close()
    ray.shutdown()
    cluster.stop()


@pytest.fixture(autouse=True)
def nothing_is_left_in_the_end(mesh: Mesh) -> Iterator[None]:
    """Check after every test that Ray holds no part of any stage."""
    yield
    eventually(lambda: references(MESH) == [])


def groups() -> set[str]:
    return {group.id for group in ray_tables.groups()}


def actors() -> set[str]:
    return {actor.name for actor in ray_tables.actors()}


def is_alive(pid_file: Path) -> bool:
    """Return whether the process named in the file lives."""
    try:
        return psutil.Process(int(pid_file.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def write(path: str, text: object) -> None:
    Path(f"{path}.part").write_text(str(text))
    Path(f"{path}.part").rename(path)


class Idle:
    """Actor class whose options come with each actor."""

    def ready(self) -> bool:
        return True

    def take_a_group(self, resource: str = "CPU", amount: int = 1) -> str:
        self.group = placement_group([{resource: amount}])
        assert self.group.wait(60)
        return str(self.group.id.hex())


def make_a_group(path: str) -> None:
    """Have an actor make a placement group, which a node itself may not; no heartbeat comes here that would find it."""
    maker = ray.remote(num_cpus=0, lifetime="detached", name=path)(Idle).remote()
    write(path, ray.get(maker.take_a_group.remote()))


def make_a_group_and_wait(path: str) -> None:
    import time

    make_a_group(path)
    time.sleep(600)


def make_a_group_and_go_on(path: str, when: str) -> None:
    """Make a placement group; return when the file exists."""
    import time

    make_a_group(path)
    while not Path(when).exists():
        time.sleep(0.01)


def wait(path: str) -> None:
    import time

    write(path, "runs")
    time.sleep(600)


def make_small_groups(path: str) -> None:
    def make() -> str:
        return str(placement_group([{"memory": 1_000}]).id.hex())

    maker = ray.remote(num_cpus=0, lifetime="detached", name=path)(Idle).remote()
    own = ray.get(maker.take_a_group.remote("memory", 1_000))
    write(path, f"{own} {ray.get(ray.remote(num_cpus=0)(make).remote())}")


def make_actors() -> str:
    kept = ray.remote(num_cpus=0.5, max_restarts=-1, lifetime="detached", name="inside")(Idle).remote()
    ray.get(kept.ready.remote())
    apart = ray.remote(num_cpus=0, max_restarts=-1, lifetime="detached", name="apart", scheduling_strategy="DEFAULT")(Idle).remote()
    return str(ray.get(apart.take_a_group.remote()))


def make_and_die(path: str) -> None:
    import os
    import signal

    apart = ray.remote(num_cpus=0, lifetime="detached", name="orphan", scheduling_strategy="DEFAULT")(Idle).remote()
    write(path, ray.get(apart.take_a_group.remote()))
    os.kill(os.getpid(), signal.SIGKILL)


def leave_a_task_behind(path: str) -> None:
    import os
    import time

    @ray.remote(num_cpus=0)
    def stay() -> None:
        write(path, os.getpid())
        time.sleep(600)

    stay.remote()
    while not Path(path).exists():
        time.sleep(0.01)


def leave_a_task_elsewhere(path: str) -> None:
    import os
    import time

    @ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
    def stay() -> None:
        write(path, os.getpid())
        time.sleep(600)

    stay.remote()
    while not Path(path).exists():
        time.sleep(0.01)


def leave_tasks_elsewhere(folder: str) -> None:
    """Start tasks outside the stage's placement group, each in another way; return when all run."""
    import os
    import threading
    import time

    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

    @ray.remote(num_cpus=0)
    def stay(name: str) -> None:
        write(f"{folder}/{name}", os.getpid())
        time.sleep(600)

    @ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
    def below(name: str) -> None:
        stay.options(scheduling_strategy="SPREAD").remote(name)
        while not Path(f"{folder}/{name}").exists():
            time.sleep(0.01)

    @ray.remote(num_cpus=0)
    def make() -> Any:
        stay.options(num_cpus=64, scheduling_strategy="SPREAD").remote("no room")
        return placement_group([{"CPU": 1}])

    group = ray.get(make.remote())
    here = ray.get_runtime_context().get_node_id()
    stay.options(scheduling_strategy="SPREAD").remote("spread")
    stay.options(scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False)).remote("affinity")
    stay.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote("group")
    thread = threading.Thread(target=lambda: stay.options(scheduling_strategy="SPREAD").remote("thread"))
    thread.start()
    ray.get(below.remote("below"))
    while not all(Path(f"{folder}/{name}").exists() for name in ELSEWHERE):
        time.sleep(0.01)


def have_a_task_elsewhere_and_wait(folder: str) -> None:
    import os
    import time

    @ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
    def stay() -> None:
        write(f"{folder}/mine", os.getpid())
        time.sleep(600)

    ray.get(stay.remote())


def have_a_task_make_a_group() -> str:
    @ray.remote(num_cpus=0)
    def below() -> str:
        group = placement_group([{"CPU": 1}])
        assert group.wait(60)
        return str(group.id.hex())

    return str(ray.get(below.remote()))


def test_fault_51_a_group_goes_with_its_stage(mesh: Mesh, tmp_path: Path, row: Row) -> None:
    stage = mesh.start("group", make_a_group, str(tmp_path / "made"))
    mesh.until(stage, StageEnded)
    assert isinstance(mesh.until(stage, NodeSucceeded), NodeSucceeded)
    eventually(lambda: (tmp_path / "made").read_text() not in groups())
    after = mesh.start("after", int, 3, slots=2)  # It needs the capacity that the group had.
    mesh.until(after, NodeSucceeded)
    row.held("everything created by a stage's code ended with it, and its capacity was free")


def test_fault_51_detached_actors_go_with_their_stage(mesh: Mesh) -> None:
    stage = mesh.start("actors", make_actors)
    mesh.until(stage, NodeSucceeded)
    mesh.until(stage, StageEnded)
    eventually(lambda: not actors() & {"inside", "apart"})


def test_fault_51_unawaited_task_ends_with_its_stage(mesh: Mesh, tmp_path: Path) -> None:
    stage = mesh.start("task", leave_a_task_behind, str(tmp_path / "pid"))
    mesh.until(stage, StageEnded)
    eventually(lambda: not is_alive(tmp_path / "pid"))


def test_fault_51_tasks_outside_the_group_end_with_their_stage(mesh: Mesh, tmp_path: Path, row: Row) -> None:
    stage = mesh.start("elsewhere", leave_tasks_elsewhere, str(tmp_path))
    mesh.until(stage, StageEnded)
    eventually(lambda: not any(is_alive(tmp_path / name) for name in ELSEWHERE))
    eventually(lambda: not ray_tables.tasks().rows)  # The one that Ray had no capacity for, too.
    row.held("tasks that a node had sent elsewhere ended with its stage, under every scheduling strategy")


def test_fault_51_tasks_of_another_stage_go_on(mesh: Mesh, tmp_path: Path) -> None:
    running = mesh.start("running-task", have_a_task_elsewhere_and_wait, str(tmp_path))
    eventually((tmp_path / "mine").exists)
    ended = mesh.start("ended-task", leave_a_task_elsewhere, str(tmp_path / "theirs"))
    mesh.until(ended, StageEnded)
    eventually(lambda: not is_alive(tmp_path / "theirs"))
    assert is_alive(tmp_path / "mine")
    mesh.host.cancel(running)
    mesh.until(running, StageEnded)
    eventually(lambda: not is_alive(tmp_path / "mine"))


def test_fault_51_a_killed_node_leaves_nothing(mesh: Mesh, tmp_path: Path) -> None:
    stage = mesh.start("killed", make_and_die, str(tmp_path / "made"))
    assert mesh.until(stage, NodeFailed).failure.reason is Reason.WORKER_LOST
    mesh.until(stage, StageEnded)
    eventually(lambda: (tmp_path / "made").read_text() not in groups() and "orphan" not in actors())


def test_fault_51_a_killed_runner_leaves_nothing(mesh: Mesh, tmp_path: Path) -> None:
    made = tmp_path / "made"
    stage = mesh.start("runner", make_a_group_and_wait, str(made))
    eventually(made.exists)
    runners = [ray.get_actor(name) for name in ray.util.list_named_actors() if name.startswith(f"mesh/{MESH}/runner")]
    (bound,) = [runner for runner in runners if ray.get(runner.inventory.remote()).tenant]  # The warm runner waits for the next stage.
    ray.kill(bound)
    assert mesh.until(stage, StageLost).reason is Reason.WORKER_LOST
    eventually(lambda: made.read_text() not in groups())


@contextmanager
def frozen_control_service() -> Iterator[None]:
    """Freeze the control service of this driver's cluster: it takes connections and answers none."""
    port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
    (service,) = [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "gcs_server" and f"--gcs_server_port={port}" in process.info["cmdline"]
    ]
    service.suspend()
    try:
        yield
    finally:
        service.resume()


def test_fault_51_orders_arrive_while_the_gcs_is_frozen(mesh: Mesh, tmp_path: Path, row: Row) -> None:
    made, runs, may_end = tmp_path / "made", tmp_path / "runs", tmp_path / "may_end"
    ends, running = mesh.start("ends", make_a_group_and_go_on, str(made), str(may_end)), mesh.start("runs", wait, str(runs))
    eventually(lambda: made.exists() and runs.exists())
    with frozen_control_service():
        may_end.touch()
        mesh.until(ends, StageEnded)  # From now on the mesh wants to remove its group.
        mesh.host.cancel(running)
        mesh.until(running, StageEnded)
    eventually(lambda: made.read_text() not in groups())
    row.held("while Ray's control service was frozen another stage was cancelled; the ended stage's objects were removed afterwards")


def test_fault_51_what_another_stage_owns_stays(mesh: Mesh, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    running = mesh.start("running", make_a_group_and_wait, str(mine))
    eventually(mine.exists)
    ended = mesh.start("ended", make_small_groups, str(tmp_path / "theirs"))
    mesh.until(ended, StageEnded)
    own, below = (tmp_path / "theirs").read_text().split()
    eventually(lambda: own not in groups())
    assert {mine.read_text(), below} <= groups()  # Ray does not say which of the two created the second one.
    mesh.host.cancel(running)
    mesh.until(running, StageEnded)
    eventually(lambda: not {mine.read_text(), below} & groups())


def test_fault_51_what_a_task_below_has_made_goes_too(mesh: Mesh) -> None:
    before = groups()
    stage = mesh.start("below", have_a_task_make_a_group)
    mesh.until(stage, NodeSucceeded)
    mesh.until(stage, StageEnded)
    eventually(lambda: groups() <= before)


def test_fault_51_a_stage_that_waits_for_ray_says_so(mesh: Mesh, row: Row) -> None:
    blocker = placement_group([{"CPU": 3}], name="blocker")
    eventually(lambda: blocker.wait(0))
    stage = mesh.start("waits", int, 3, slots=2)
    waiting = mesh.until(stage, StageWaiting)
    assert waiting.reason is Reason.WAITING_FOR_GROUP
    assert "no room for its placement group of 1 CPU" in waiting.detail
    assert "3 CPU by placement group blocker" in waiting.detail
    mesh.host.cancel(stage)
    mesh.until(stage, StageEnded)
    again = mesh.start("waits-again", int, 3, slots=2)
    mesh.until(again, StageWaiting)
    remove_placement_group(blocker)
    assert isinstance(mesh.until(again, NodeSucceeded), NodeSucceeded)
    mesh.until(again, StageEnded)
    row.held("the stage waiting for Ray named the holder of the capacity, could be cancelled, and ran once it was free")
