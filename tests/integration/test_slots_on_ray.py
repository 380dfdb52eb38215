"""Stages that grow and shrink while they run, on a real cluster of two CPUs."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import patience
import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from single_ends import single

from mesh.core.ids import GroupId, MeshId, NodeId, NodeName, PoolName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang, GroupPoolSpec
from mesh.ray.placement import NODE_LABEL, PlacementPool
from mesh.ray.stage_runner import detached_actors
from mesh.ray.stage_runner.host import RayStageHost
from mesh.ray.user_code import ray_tables
from mesh.stages.hosting import ANYWHERE, GroupLayers, HostReport, Places, ReservedGroup
from mesh.stages.messages import NodeFailed, NodeSucceeded, StageEnded, StageMessage, StageResized
from mesh.stages.spec import StageSpec, TaskSpec

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

EVENT_S_MAX = 120.0
eventually = partial(patience.eventually, patience_s=90.0)
SLOT = ResourceSet.of({"cpu": 0.5})
STAGE = StageId("r.1")
RESERVED = ReservedGroup(group=GroupId("all/0"), pool=PoolName("all"), slot=SLOT)
LAYERS = GroupLayers(reserved=(RESERVED,), pools={RESERVED.pool: GroupPoolSpec(max_dynamic=1, idle_ms=0, min_idle=1)})


def wait_for(folder: str, name: str) -> None:
    """Leave a line in the task's file for each begin, and wait for the file that lets it go."""
    with Path(folder, name).open("a") as file:
        file.write("begun\n")
    while not Path(folder, f"{name}.go").exists():
        time.sleep(0.01)


def note_process(folder: str, name: str) -> None:
    Path(folder, name).write_text(str(os.getpid()))


def add(*numbers: int) -> int:
    return 1 + sum(numbers)


def look_around(folder: str, name: str) -> None:
    """Leave the task's placement group, the nodes of its bundles, and the groups of two tasks that run beside each other."""
    group = ray.util.get_current_placement_group()
    assert group is not None
    meeting = GangMeeting.options(num_cpus=0).remote(2)
    children = [ray.remote(num_cpus=0.5)(met).remote(meeting) for _ in range(2)]
    inside = ray.get(children)
    nodes = list(ray.util.placement_group_table(group)["bundles_to_node_id"].values())
    Path(folder, name).write_text(json.dumps([group.id.hex(), nodes, inside]))


class Meeting:
    """Lets all go when so many have come."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count)

    def wait(self) -> None:
        self._barrier.wait()


GangMeeting: Any = ray.remote(max_concurrency=2)(Meeting)


def met(meeting: Any) -> str:
    ray.get(meeting.wait.remote())
    return str(ray.util.get_current_placement_group().id.hex())  # type: ignore[union-attr]  # it runs in a group


class Mesh:
    """Hosts of one mesh, one after the other, as its processes are; and the messages of its stage."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder
        self.reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
        self.messages: list[StageMessage] = []
        self.nodes: tuple[NodeId, ...] = ()  #: Of its stage.
        self.hosts: list[RayStageHost] = []
        self.before = groups()
        self.host = self.open()
        self.host.extend_deadline(1, 600_000, 600_000, 1)

    def open(self) -> RayStageHost:
        self.hosts.append(
            RayStageHost(
                mesh=MeshId("elastic"),
                address=self.address,
                report=self.reports.put,
                storage_url=self.folder.as_uri(),
                inline_limit_bytes=1024,
                node_labels={},
                warm_runners=0,
            )
        )
        return self.hosts[-1]

    def restart(self) -> bytes:
        """Replace the host by that of a new process; return the note that it finds."""
        self.host = self.open()
        found = self.host.find()
        assert found is not None
        self.host.go_on(frozenset(held.stage for held in found.stages))
        self.host.extend_deadline(2, 600_000, 600_000, 1)
        (held,) = found.stages
        return held.note

    def start(self, function: Callable[..., Any], *tasks: TaskSpec, slots: int, places: Places = ANYWHERE) -> None:
        code = cloudpickle.dumps(function, protocol=5)
        sha256 = hashlib.sha256(code).hexdigest()
        spec = StageSpec(stage=STAGE, run=RunId("r"), tenant=TenantPath("acme"), tasks=tasks, slot=tasks[0].resources, width=4)
        self.nodes = tuple(task.node for task in tasks)
        self.host.start(spec, slots, 7, {sha256: code}, {}, b"first", places)

    def start_waiting(self, names: str, slots: int, places: Places = ANYWHERE) -> None:
        """Start a stage of tasks that wait for `let_go`."""
        function = f"blob:{hashlib.sha256(cloudpickle.dumps(wait_for, protocol=5)).hexdigest()}"
        tasks = (TaskSpec(node=NodeId(name), attempt=1, function=function, args=(str(self.folder), name), resources=SLOT) for name in names)
        self.start(wait_for, *tasks, slots=slots, places=places)

    def let_go(self, names: str) -> None:
        for name in names:
            (self.folder / f"{name}.go").touch()

    def begun(self) -> str:
        return "".join(sorted(path.name for path in self.folder.iterdir() if len(path.name) == 1))

    def first_begun(self, count: int) -> str:
        """Wait until so many tasks have begun. A slot that is ready first may get two tasks, of which one waits."""
        eventually(lambda: len(self.begun()) == count)
        return self.begun()

    def until(self, kind: type[StageMessage], **values: object) -> StageMessage:
        """Return the first message like this one."""

        def fits(message: StageMessage) -> bool:
            return isinstance(message, kind) and all(getattr(message, name) == value for name, value in values.items())

        while not (found := [message for message in self.messages if fits(message)]):
            report = self.reports.get(timeout=EVENT_S_MAX)
            self.messages += single(report.messages, self.nodes)
            self.host.confirm(report.stage, report.number)
        return found[0]

    def succeeded(self) -> Counter[NodeId]:
        """Wait for the end; return how often each node succeeded."""
        self.until(StageEnded)
        return Counter(message.node for message in self.messages if isinstance(message, NodeSucceeded))

    def own_groups(self) -> int:
        return len(groups() - self.before)


def groups() -> set[str]:
    return {row.id for row in ray_tables.groups()}


def placed(mesh: Mesh) -> set[str]:
    return {row.id for row in ray_tables.groups() if row.is_placed} - mesh.before


@pytest.fixture
def mesh(ray_driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mesh]:
    monkeypatch.setattr(detached_actors, "ANSWER_S", EVENT_S_MAX)  # A recovered runner may answer slowly.
    mesh = Mesh(ray_driver.address, tmp_path)
    yield mesh
    mesh.host.leave(len(mesh.hosts))
    for host in mesh.hosts:
        host.stop_all()
        host.close()
    eventually(lambda: mesh.own_groups() == 0)
    eventually(lambda: not any(name.startswith("mesh/elastic/") for name in ray.util.list_named_actors()))


@pytest.fixture
def blocker(mesh: Mesh) -> Iterator[Any]:
    """Group that leaves room for one slot."""
    blocker = placement_group([{"CPU": 1.5}])
    eventually(lambda: blocker.wait(1))
    mesh.before = groups()
    yield blocker
    remove_placement_group(blocker)


def test_a_growing_stage_runs_more_tasks_at_once(mesh: Mesh) -> None:
    mesh.start_waiting("abcd", slots=1)
    eventually(lambda: mesh.begun() == "a")
    mesh.host.grow(STAGE, 2, b"three")
    mesh.until(StageResized, slots=3)
    eventually(lambda: len(mesh.begun()) == 3)
    mesh.let_go("abcd")
    assert mesh.succeeded() == Counter("abcd")


def test_stages_in_a_row_run_in_the_same_process(mesh: Mesh) -> None:
    code = cloudpickle.dumps(note_process, protocol=5)
    sha256 = hashlib.sha256(code).hexdigest()
    for name in "abcdefgh":  # Each is started as soon as the report of the last one's end is there.
        task = TaskSpec(node=NodeId(name), attempt=1, function=f"blob:{sha256}", args=(str(mesh.folder), name), resources=SLOT)
        stage = StageId(f"{name}.1")
        spec = StageSpec(stage=stage, run=RunId(name), tenant=TenantPath("acme"), tasks=(task,), slot=SLOT, width=1)
        mesh.host.start(spec, 1, 7, {sha256: code}, {})
        while not any(isinstance(message, StageEnded) for message in mesh.reports.get(timeout=EVENT_S_MAX).messages):
            pass
    assert len({(mesh.folder / name).read_text() for name in "abcdefgh"}) == 1


def test_a_shrinking_stage_loses_no_task_and_frees_its_groups(mesh: Mesh) -> None:
    mesh.start_waiting("abcdef", slots=3)
    first, *others = mesh.first_begun(3)
    assert mesh.own_groups() == 3
    mesh.host.shrink(STAGE, 1)
    note_of(mesh)  # The runner has the order. Else the task behind the first begins before, and its slot goes.
    mesh.let_go(first)
    mesh.first_begun(4)  # A task behind the first; those behind the others come later, also behind the first.
    mesh.let_go("".join(others))
    mesh.until(StageResized, slots=1)
    eventually(lambda: mesh.own_groups() == 1)
    mesh.let_go("abcdef")
    assert mesh.succeeded() == Counter("abcdef")
    assert {name: (mesh.folder / name).read_text() for name in "abcdef"} == dict.fromkeys("abcdef", "begun\n")


@pytest.mark.parametrize("shrinks", [True, False], ids=["whose slot is retired", "while another slot is idle"])
def test_a_task_behind_a_long_one_goes_to_another_slot(mesh: Mesh, shrinks: bool) -> None:
    mesh.start_waiting("abcdef", slots=2)
    _, long = mesh.first_begun(2)  # A task was submitted behind the long one.
    if shrinks:
        mesh.host.shrink(STAGE, 1)
        note_of(mesh)  # The runner has the order. Else another task may begin before, and its slot goes.
    others = "abcdef".replace(long, "")
    mesh.let_go(others)
    for node in others:
        mesh.until(NodeSucceeded, node=node)
    assert mesh.own_groups() == 2
    mesh.let_go(long)
    assert mesh.succeeded() == Counter("abcdef")
    assert {name: (mesh.folder / name).read_text() for name in "abcdef"} == dict.fromkeys("abcdef", "begun\n")


@pytest.mark.parametrize("is_there", [True, False], ids=["on their nodes", "elsewhere if these are gone"])
def test_gangs_have_groups_of_their_own(mesh: Mesh, is_there: bool) -> None:
    (node,) = (each["NodeID"] for each in ray.nodes())
    chosen = NodeName(node if is_there else "f" * len(node))
    function = f"blob:{hashlib.sha256(cloudpickle.dumps(look_around, protocol=5)).hexdigest()}"
    gang = Gang(size=2, bundle=SLOT, strategy="SPREAD")
    tasks = (
        TaskSpec(node=NodeId(name), attempt=1, function=function, args=(str(mesh.folder), name), resources=gang.slot, gang=gang)
        for name in "ab"
    )
    mesh.start(look_around, *tasks, slots=2, places=Places(nodes=(chosen,) * 4))
    assert mesh.succeeded() == Counter("ab")
    found = {name: json.loads((mesh.folder / name).read_text()) for name in "ab"}
    assert {len({group, *inside}) for group, _, inside in found.values()} == {1}
    assert found["a"][0] != found["b"][0]
    assert [nodes for _, nodes, _ in found.values()] == [[node, node]] * 2


@pytest.mark.usefixtures("blocker")
def test_a_cancelled_stage_gives_a_waiting_growth_back(mesh: Mesh) -> None:
    mesh.start_waiting("ab", slots=1)
    eventually(lambda: mesh.begun() == "a")
    mesh.host.grow(STAGE, 1, b"two")
    eventually(lambda: mesh.own_groups() == 2)
    mesh.host.cancel(STAGE)
    mesh.until(StageEnded)
    eventually(lambda: mesh.own_groups() == 0)


def test_no_task_waits_in_a_slot_that_is_not_placed(mesh: Mesh, blocker: Any) -> None:
    mesh.start_waiting("abc", slots=1)
    mesh.host.grow(STAGE, 1, b"two")
    eventually(lambda: mesh.own_groups() == 2)
    mesh.let_go("abc")
    assert mesh.succeeded() == Counter("abc")
    assert not any(isinstance(message, StageResized) for message in mesh.messages)
    remove_placement_group(blocker)


def test_a_growth_outlives_the_process_that_asked_for_it(mesh: Mesh, blocker: Any) -> None:
    mesh.start_waiting("ab", slots=1)
    eventually(lambda: mesh.begun() == "a")
    mesh.host.grow(STAGE, 1, b"two")
    eventually(lambda: mesh.own_groups() == 2)
    eventually(lambda: note_of(mesh) == b"two")
    assert mesh.restart() == b"two"
    remove_placement_group(blocker)
    mesh.until(StageResized, slots=2)
    eventually(lambda: mesh.begun() == "ab")
    mesh.let_go("ab")
    assert mesh.succeeded() == Counter("ab")


def test_a_growth_that_its_runner_never_got_is_removed(mesh: Mesh) -> None:
    mesh.start_waiting("ab", slots=1)
    eventually(lambda: mesh.begun() == "a")
    (keeper,) = (name for name in ray.util.list_named_actors() if name.startswith("mesh/elastic/keeper"))
    ray.get(ray.get_actor(keeper).take.remote(SLOT, 2), timeout=EVENT_S_MAX)  # Then the process dies.
    assert mesh.own_groups() == 3
    assert mesh.restart() == b"first"
    eventually(lambda: mesh.own_groups() == 1)
    mesh.let_go("ab")
    assert mesh.succeeded() == Counter("ab")


def note_of(mesh: Mesh) -> bytes:
    (runner,) = (name for name in ray.util.list_named_actors() if name.startswith("mesh/elastic/runner"))
    (held,) = ray.get(ray.get_actor(runner).inventory.remote(), timeout=EVENT_S_MAX).stages
    return bytes(held.note)


@pytest.mark.parametrize("shape", ["a chain", "a fan"])
def test_each_of_1000_tasks_runs_once(mesh: Mesh, shape: str) -> None:
    function = f"blob:{hashlib.sha256(cloudpickle.dumps(add, protocol=5)).hexdigest()}"

    def node(number: int, *inputs: int) -> TaskSpec:
        names = tuple(NodeId(f"n{each}") for each in inputs)
        args = tuple({"$ref": name} for name in names)
        return TaskSpec(node=NodeId(f"n{number}"), attempt=1, function=function, args=args, inputs=names, resources=SLOT)

    rest = [node(number, number - 1 if shape == "a chain" else 0) for number in range(1, 1_000)]
    mesh.start(add, node(0), *rest, slots=2)
    assert mesh.succeeded() == Counter(f"n{number}" for number in range(1_000))


def test_tasks_of_reclaimed_slots_end_and_the_others_go_on(mesh: Mesh) -> None:
    mesh.start_waiting("abc", slots=3)
    eventually(lambda: mesh.begun() == "abc")
    mesh.host.shrink(STAGE, 1, at_once=True)
    mesh.until(StageResized, slots=1, retired=2)
    eventually(lambda: mesh.own_groups() == 1)
    mesh.let_go("abc")
    assert len(mesh.succeeded()) == 1
    failed = [message for message in mesh.messages if isinstance(message, NodeFailed)]
    assert [message.failure.reason for message in failed] == [Reason.QUOTA_RECLAIMED] * 2


def test_a_growth_of_nothing_replaces_the_note(mesh: Mesh) -> None:
    mesh.start_waiting("a", slots=1)
    eventually(lambda: mesh.begun() == "a")
    mesh.host.grow(STAGE, 0, b"two")
    eventually(lambda: note_of(mesh) == b"two")
    assert mesh.own_groups() == 1
    mesh.let_go("a")
    assert mesh.succeeded() == Counter("a")


def test_a_slot_stands_on_the_node_that_was_named(ray_driver: Any) -> None:
    pool = PlacementPool({})
    (node,) = (NodeName(row["NodeID"]) for row in ray.nodes() if row["Labels"].get(NODE_LABEL))
    try:
        (pinned,) = pool.take_slots(SLOT, 1, Places(nodes=(node,)))
        assert pinned.group is not None
        eventually(lambda: pinned.hex_id in {row.id for row in ray_tables.groups() if row.is_placed})
        pool.give_back(pinned.group)
        (elsewhere,), (free,) = pool.take_slots(SLOT, 1, Places(nodes=(NodeName("ab" * 28),))), pool.take_slots(SLOT, 1)
        assert pinned.hex_id not in {elsewhere.hex_id, free.hex_id}
        assert pool.take_slots(SLOT, 1, Places(nodes=(node,)))[0].hex_id == pinned.hex_id
    finally:
        pool.close()


def test_many_slots_are_placed_in_few_groups(ray_driver: Any) -> None:
    pool = PlacementPool({})
    try:
        found = pool.take_slots(ResourceSet.of({"cpu": "0.001"}), 130)
        assert [group.slots for group in found] == [3] * 43 + [1]
    finally:
        pool.close()


def test_an_urgent_stage_takes_the_ready_group(mesh: Mesh) -> None:
    mesh.host.keep_groups(LAYERS)
    eventually(lambda: len(placed(mesh)) == 1)
    ready = placed(mesh)
    mesh.start_waiting("a", slots=1, places=Places(pool=RESERVED.pool, groups={RESERVED.group: NodeName("")}))
    eventually(lambda: mesh.begun() == "a")
    assert groups() - mesh.before == ready  # It runs, and no other group was made.
    mesh.host.grow(STAGE, 1, b"two", Places(pool=RESERVED.pool))
    mesh.until(StageResized, slots=2)
    mesh.host.shrink(STAGE, 1)
    mesh.until(StageResized, slots=1)
    mesh.let_go("a")
    assert mesh.succeeded() == Counter("a")
    eventually(lambda: groups() - mesh.before == ready)


def test_a_lost_reserved_group_is_made_again(mesh: Mesh) -> None:
    mesh.host.keep_groups(LAYERS)
    eventually(lambda: len(placed(mesh)) == 1)
    lost = placed(mesh)
    ray_tables.remove_groups(lost)
    eventually(lambda: len(placed(mesh) - lost) == 1)


def test_a_reserved_group_stays_when_others_wait(ray_driver: Any) -> None:
    """A clean one is lent again; one whose stage left something behind is made anew, and so is one that is lent already."""
    pool = PlacementPool({})
    named = Places(pool=RESERVED.pool, groups={RESERVED.group: NodeName("")})
    try:
        pool.arrange(LAYERS)
        (first,) = pool.take_slots(SLOT, 1, named)
        pool.give_back(first.group)
        pool.release(frozenset({"CPU"}))
        (again,) = pool.take_slots(SLOT, 1, named)
        assert again.hex_id == first.hex_id
        (early,) = pool.take_slots(SLOT, 1, named)  # Its last stage has ended, and the group is still being cleared.
        assert early.hex_id != first.hex_id
        pool.give_back(again.group)
        pool.give_back(early.group, reuse=False)
        (clean,) = pool.take_slots(SLOT, 1, named)
        assert clean.hex_id not in {first.hex_id, early.hex_id}
        assert {row.id for row in ray_tables.groups()} & {first.hex_id, early.hex_id, clean.hex_id} == {clean.hex_id}
    finally:
        pool.close()


def test_groups_made_on_demand_stay_within_the_bounds(ray_driver: Any) -> None:
    pool = PlacementPool({})
    try:
        pool.arrange(replace(LAYERS, reserved=()))
        (first,) = pool.take_slots(SLOT, 1, Places(pool=RESERVED.pool))
        pool.give_back(first.group)
        pool.release()
        assert pool.has_idle()  # Older than its time, and kept as the least number.
        (other,) = pool.take_slots(SLOT.times(2), 1, Places(pool=RESERVED.pool))
        assert not pool.has_idle()
        pool.give_back(other.group)
        assert pool.take_slots(SLOT.times(2), 1, Places(pool=RESERVED.pool))[0].hex_id == other.hex_id
    finally:
        pool.close()
