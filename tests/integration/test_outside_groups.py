"""Work outside the placement group of its stage: refused in the node's worker, found and ended below the node, on a real cluster."""

from __future__ import annotations

import hashlib
import queue
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cloudpickle
import patience
import pytest
import ray
from ray.util.placement_group import placement_group
from single_ends import single

from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.errors import OutsideGroup
from mesh.ray.stage_runner.host import RayStageHost
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.ownership import references
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodeFailed, NodeStarted, NodeSucceeded, StageEnded, StageMessage
from mesh.stages.spec import StageSpec, TaskSpec

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

HEARTBEAT_S = 0.5
PATIENCE = 240  #: Heartbeats.
eventually = partial(patience.eventually, patience_s=90.0)
MESH = MeshId("outside")
SLOT = ResourceSet.of({"cpu": 0.2})
CPUS = 0.2


class Mesh:
    """Host on the cluster, its heartbeats and reports."""

    def __init__(self, address: str, folder: Path) -> None:
        self.folder = folder
        self._reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
        self.messages: list[StageMessage] = []
        self._nodes: dict[StageId, tuple[NodeId, ...]] = {}
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

    def start(self, run: str, **functions: Callable[[str], Any]) -> StageId:
        """Start a stage with a node for each function, in slots of their own."""
        codes = {name: cloudpickle.dumps(function, protocol=5) for name, function in functions.items()}
        digests = {name: hashlib.sha256(code).hexdigest() for name, code in codes.items()}
        tasks = tuple(
            TaskSpec(node=NodeId(name), attempt=1, function=f"blob:{digest}", args=(str(self.folder / name),), resources=SLOT)
            for name, digest in digests.items()
        )
        stage = StageId(f"{run}.1")
        spec = StageSpec(stage=stage, run=RunId(run), tenant=TenantPath("acme"), tasks=tasks, slot=SLOT, width=len(tasks))
        self._nodes[stage] = tuple(task.node for task in tasks)
        self.host.start(spec, len(tasks), 7, {digests[name]: code for name, code in codes.items()}, {})
        return stage

    def start_gang(self, name: str, function: Callable[[str], Any], gang: Gang) -> StageId:
        """Start a stage with one gang."""
        code = cloudpickle.dumps(function, protocol=5)
        sha256 = hashlib.sha256(code).hexdigest()
        task = TaskSpec(
            node=NodeId(name), attempt=1, function=f"blob:{sha256}", args=(str(self.folder / name),), resources=gang.slot, gang=gang
        )
        stage = StageId(f"{name}.1")
        spec = StageSpec(stage=stage, run=RunId(name), tenant=TenantPath("acme"), tasks=(task,), slot=gang.slot, width=1)
        self._nodes[stage] = (task.node,)
        self.host.start(spec, 1, 7, {sha256: code}, {})
        return stage

    def failure_of(self, stage: StageId) -> str:
        """Wait for the end of the stage; return why its node failed, or nothing."""
        self.until(StageEnded, stage)
        failed = [each.failure for each in self.messages if isinstance(each, NodeFailed) and each.stage == stage]
        return "".join(f"{failure.reason.value}: {failure.message}\n{failure.traceback}" for failure in failed)

    def until(self, kind: type[StageMessage], stage: StageId, node: str = "") -> Any:
        """Return the first such message; a heartbeat begins whenever none comes."""
        for _ in range(PATIENCE):
            for message in self.messages:
                if isinstance(message, kind) and message.stage == stage and node in ("", getattr(message, "node", "")):
                    return message
            try:
                report = self._reports.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                self.heartbeat()
                continue
            self.messages += single(report.messages, self._nodes[report.stage])
            self.host.confirm(report.stage, report.number)
        raise AssertionError(f"no {kind.__name__} of {stage} {node}, got {self.messages}")


@pytest.fixture
def mesh(ray_driver: Any, tmp_path: Path) -> Iterator[Mesh]:
    mesh = Mesh(ray_driver.address, tmp_path)
    yield mesh
    eventually(lambda: references(MESH) == [])
    mesh.host.leave(1)
    mesh.host.stop_all()
    mesh.host.close()


class Maker:
    """Actor without CPUs that creates work outside."""

    def make_actor(self) -> None:
        self.made = ray.remote(num_cpus=CPUS, scheduling_strategy="DEFAULT", name="outside actor")(Maker).remote()

    def make_group(self) -> None:
        self.made = placement_group([{"CPU": CPUS}], name="outside group")


def wait(path: str = "") -> str:
    """Wait for the file."""
    import time

    while not Path(path or "/never").exists():
        time.sleep(0.01)
    return "waited"


def begin(path: str) -> str:
    Path(f"{path} begins").touch()
    return wait(path)


def try_to_leave(path: str) -> None:
    """Ask for work outside in every way; each is refused, and nothing is there afterwards."""
    task, actor = ray.remote(num_cpus=CPUS)(wait), ray.remote(num_cpus=CPUS)(Maker)
    ways: tuple[Callable[[], object], ...] = (
        lambda: task.options(scheduling_strategy="DEFAULT").remote(),
        lambda: task.options(scheduling_strategy="SPREAD").remote(),
        lambda: task.options(placement_group=None).remote(),
        lambda: task.options(num_cpus=0, resources={"lamp": 1}, scheduling_strategy="SPREAD").remote(),
        lambda: actor.options(scheduling_strategy="DEFAULT", name="refused", lifetime="detached").remote(),
        lambda: actor.options(placement_group=None).remote(),
        lambda: placement_group([{"CPU": CPUS}]),
    )
    for place, way in enumerate(ways):
        try:
            way()
        except OutsideGroup:
            continue
        raise AssertionError(f"way {place} is open")
    assert ray.get(task.options(num_cpus=0, scheduling_strategy="SPREAD").remote(f"{path} begins")) == "waited"
    assert ray.get(task.remote(f"{path} begins")) == "waited"
    ray.get(actor.options(num_cpus=0, scheduling_strategy="DEFAULT").remote().__ray_ready__.remote())


def leave(path: str) -> None:
    ray.get(ray.remote(num_cpus=CPUS, scheduling_strategy="SPREAD")(wait).remote())


def have_a_task_leave(path: str) -> None:
    ray.get(ray.remote(num_cpus=0)(leave).remote(path))


def have_an_actor_make_an_actor(path: str) -> None:
    maker = ray.remote(num_cpus=0)(Maker).remote()
    ray.get(maker.make_actor.remote())
    wait()


def have_an_actor_make_a_group(path: str) -> None:
    maker = ray.remote(num_cpus=0)(Maker).remote()
    ray.get(maker.make_group.remote())
    wait()


def stay_inside(path: str) -> str:
    return str(ray.get(ray.remote(num_cpus=CPUS)(begin).remote(path)))


def test_a_node_cannot_start_work_outside(mesh: Mesh) -> None:
    (mesh.folder / "tries begins").touch()
    stage = mesh.start("refused", tries=try_to_leave, leaves=leave)
    failed = mesh.until(NodeFailed, stage, "leaves").failure
    assert failed.reason is Reason.OUTSIDE_GROUP
    assert failed.message.startswith("task wait of node leaves is outside its stage's placement group and asks for 0.2 CPU")
    mesh.until(StageEnded, stage)
    assert mesh.until(NodeSucceeded, stage, "tries")


def test_work_outside_is_found_and_its_node_fails(mesh: Mesh) -> None:
    inside = mesh.start("inside", stays=stay_inside)
    mesh.until(NodeStarted, inside)
    stage = mesh.start("found", task=have_a_task_leave, actor=have_an_actor_make_an_actor, group=have_an_actor_make_a_group)
    messages = {node: mesh.until(NodeFailed, stage, node).failure for node in ("task", "actor", "group")}
    assert {failure.reason for failure in messages.values()} == {Reason.OUTSIDE_GROUP}
    assert "task wait of node task is outside its stage's placement group and asks for 0.2 CPU" in messages["task"].message
    assert "actor outside actor" in messages["actor"].message
    assert "placement group outside group of node group" in messages["group"].message
    mesh.until(StageEnded, stage)
    eventually(lambda: not [task for task in ray_tables.tasks().rows if task.amounts])
    eventually(lambda: "outside actor" not in {actor.name for actor in ray_tables.actors()})
    eventually(lambda: "outside group" not in {group.name for group in ray_tables.groups()})
    (mesh.folder / "stays").touch()
    assert mesh.until(NodeSucceeded, inside)
    mesh.until(StageEnded, inside)


# -- Ray's own libraries in gangs --------------------------------------------------------------------------------------


def note_group(path: str) -> None:
    """Leave the present placement group in a file beside the path."""
    group = ray.util.get_current_placement_group()
    Path(f"{path} in {group.id.hex() if group is not None else 'no group'}").touch()


def use_train(path: str, workers: int = 2) -> None:
    """Train with two workers."""
    from ray import train
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def loop() -> None:
        note_group(path)
        train.report({"loss": 0.5})

    note_group(path)
    scaling = train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": CPUS})
    DataParallelTrainer(loop, scaling_config=scaling, run_config=train.RunConfig(name="run", storage_path=f"{path} storage")).fit()


def use_data(path: str) -> None:
    """Map and shuffle a data set."""
    import ray.data

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        note_group(path)
        return batch

    note_group(path)
    rows = ray.data.range(100, override_num_blocks=4).map_batches(note).random_shuffle().take_all()
    assert sorted(row["id"] for row in rows) == list(range(100))


SMALL, WHOLE = Gang(size=4, bundle=SLOT), Gang(size=2, bundle=ResourceSet.of({"cpu": 1}))


needs_libraries = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("pandas", "pyarrow", "tensorboardX")), reason="needs ray[train], of the extra `examples`"
)


@needs_libraries
@pytest.mark.parametrize(("function", "gang"), [(use_train, SMALL), (use_data, WHOLE)], ids=["train", "data"])
def test_a_library_of_ray_works_within_the_gang(mesh: Mesh, function: Callable[[str], Any], gang: Gang) -> None:
    before = {actor.id for actor in ray_tables.actors()}
    stage = mesh.start_gang(function.__name__, function, gang)
    if failure := mesh.failure_of(stage):
        pytest.fail(failure)
    places = [file.name for file in mesh.folder.iterdir() if " in " in file.name]
    assert len(places) == 1, "some work left the gang"
    assert "no group" not in places[0]
    eventually(
        lambda: [actor.class_name for actor in ray_tables.actors() if actor.id not in before and not actor.name.startswith("mesh/")] == []
    )


def use_too_much(path: str) -> None:
    use_train(path, workers=9)


@needs_libraries
@pytest.mark.faults
@pytest.mark.slow  # Ray Train tries for a minute.
def test_a_library_cannot_ask_for_more_than_its_gang(mesh: Mesh) -> None:
    failure = mesh.failure_of(mesh.start_gang("much", use_too_much, SMALL))
    assert "placement group with bundles 9 of 0.2 CPU does not fit into the gang, which has 4 of 0.2 CPU" in failure
