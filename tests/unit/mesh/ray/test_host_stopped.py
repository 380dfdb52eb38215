"""End of runners and of their stages: with the host, with the runner, with the last run."""

from __future__ import annotations

import queue
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.exceptions import RayActorError
from ray.util.placement_group import PlacementGroup

from mesh.core.clock import ManualClock
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.wire import encode
from mesh.ray.placement import SlotGroup
from mesh.ray.stage_runner.actor_calls import ActorCalls
from mesh.ray.stage_runner.cancellations import Cancellations
from mesh.ray.stage_runner.detached_actors import DetachedActors, FoundActors
from mesh.ray.stage_runner.held_groups import Groups
from mesh.ray.stage_runner.host import HostParts, RayStageHost
from mesh.ray.stage_runner.node_guards import NodeCache, NodeGuards
from mesh.ray.stage_runner.runner import Inventory
from mesh.ray.user_code.sweep import Swept
from mesh.stages.hosting import HostReport
from mesh.stages.messages import Failure, NodeFailed, NodeSucceeded, StageEnded, StageLost, StageMessage, StageResized
from mesh.stages.spec import StageSpec, TaskSpec

PATIENCE_S = 60.0
IDLE_MS = 60_000
M = MeshId("m")
Answer = Callable[[], Any]


class Actor:
    """Actor that records its calls. A call is a function, which returns the answer."""

    def __init__(self, **answers: Answer) -> None:
        self.asked: list[str] = []
        self.given: dict[str, tuple[object, ...]] = {}  #: Arguments of the last call of each method.
        self.answers = answers

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *given: self._ask(method, *given))

    def _ask(self, method: str, *given: object) -> Answer:
        self.asked.append(method)
        self.given[method] = given
        return self.answers.get(method, lambda: None)


class Runner(Actor):
    """Runner whose listener waits for `report`, and learns of nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.next_batch = SimpleNamespace(remote=self._wait)
        self.start = SimpleNamespace(remote=lambda _spec, _blobs, _inputs, groups, _note: self.started.put(groups))
        self.started: queue.SimpleQueue[Groups] = queue.SimpleQueue()  #: The groups of each stage that it was given.
        self._looks: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._batches: queue.SimpleQueue[tuple[tuple[StageId, tuple[StageMessage, ...]], ...] | RayActorError] = queue.SimpleQueue()
        self._numbers: Counter[StageId] = Counter()

    def _wait(self, *_: object) -> Answer:
        self._looks.put(False)
        return self._take

    def _take(self) -> list[Any]:
        batch = self._batches.get(timeout=PATIENCE_S)
        if isinstance(batch, RayActorError):
            raise batch
        self._numbers.update(stage for stage, _ in batch)
        return [
            (stage, self._numbers[stage], [encode(message) for message in messages], {}, [self._finished(message) for message in messages])
            for stage, messages in batch
        ]

    def _finished(self, message: StageMessage) -> Any:
        return (RunId("r"), getattr(message, "node", NodeId("")), b"value")

    def until_look(self) -> bool:
        """Wait until the listener has looked whether the runner is idle; return whether it ended the runner."""
        return self._looks.get(timeout=PATIENCE_S)

    def report(self, *ended: StageId) -> bool:
        """Report the ends of these stages, then wait for the look that follows; return whether it ended the runner."""
        return self.say(*(StageEnded(stage=stage) for stage in ended))

    def say(self, *messages: StageEnded | StageResized) -> bool:
        """Report these messages; return as `report`."""
        self._batches.put(tuple((message.stage, (message,)) for message in messages))
        return self.until_look()

    def send(self, stage: StageId, *messages: StageMessage) -> None:
        """Report these messages about the stage."""
        self._batches.put(((stage, messages),))

    def end(self) -> None:
        self._looks.put(True)
        self._batches.put(RayActorError())


class Actors(DetachedActors):
    """Actors outside Ray."""

    def __init__(self, keeper: Actor) -> None:
        super().__init__(M, {})
        self.keeper = keeper
        self.keepers_made = 0
        self.runners: list[Runner] = []
        self.found: FoundActors | None = None

    def new_keeper(self, *_: object, **__: object) -> Any:
        self.keepers_made += 1
        return self.keeper

    def new_runner(self, *_: object, **__: object) -> Any:
        self.runners.append(Runner())
        return self.runners[-1]

    def find(self) -> FoundActors | None:
        return self.found

    def end(self, actor: Any) -> None:
        actor.end()

    def end_all(self) -> None:
        for runner in self.runners:
            runner.end()


class Calls(ActorCalls):
    """Calls that are answered at once."""

    def result(self, call: Answer, *_: object, **__: object) -> Any:
        return call()

    def answered(self, calls: Collection[Any], *_: object, **__: object) -> list[Any]:
        return list(calls)

    def kill(self, actor: Any) -> None:
        """A dead guard needs no end."""


def some_groups() -> Any:
    return (SlotGroup(cast(PlacementGroup, SimpleNamespace(id=b"group")), slots=1),)


def a_stage(run: str = "r", slot: ResourceSet = NOTHING) -> StageSpec:
    task = TaskSpec(node=NodeId("a"), attempt=1, function="call:m:f", resources=slot)
    return StageSpec(stage=StageId(f"{run}.1"), run=RunId(run), tenant=TenantPath("t"), tasks=(task,), slot=slot, width=1)


def clean(*_: object) -> Swept:
    return Swept.CLEAN


def guards(nodes: tuple[str, ...] = (), new_guard: Callable[[str], Any] | None = None) -> NodeGuards:
    listed = [{"NodeID": node, "Alive": True, "Labels": {}} for node in nodes]
    return NodeGuards(M, {}, nodes=NodeCache(lambda: listed), new_guard=new_guard, calls=Calls())


class Mesh:
    """Host outside Ray, with the actors, the clock and the reports of its mesh."""

    def __init__(
        self,
        *,
        take: Answer = some_groups,
        sweep: Callable[..., Swept] = clean,
        node_guards: NodeGuards | None = None,
        address: str = "127.0.0.1:1",
    ) -> None:
        self.actors = Actors(Actor(take=take))
        self.clock = ManualClock()
        self.cancelled = Cancellations(evict_after_s=600.0)
        self.reports: queue.SimpleQueue[HostReport] = queue.SimpleQueue()
        self.host = RayStageHost(
            mesh=M,
            address=address,
            report=self.reports.put,
            storage_url="memory://",
            inline_limit_bytes=1,
            node_labels={},
            warm_runners=0,
            idle_s=IDLE_MS / 1_000,
            parts=HostParts(
                actors=self.actors,
                guards=node_guards or guards(),
                sweep=sweep,
                cancelled=self.cancelled,
                calls=Calls(),
                clock=self.clock,
            ),
        )

    def start(self, run: str = "r", token: int = 7, *, has_group: bool = True, slot: ResourceSet = NOTHING) -> Runner:
        """Start the stage of the run, and wait until its runner has it, unless its group does not come; return the runner."""
        known = len(self.actors.runners)
        self.host.start(a_stage(run, slot), 1, token, {}, {})
        runner = self.actors.runners[-1]
        if len(self.actors.runners) > known:
            assert not runner.until_look()
        if has_group:
            runner.started.get(timeout=PATIENCE_S)
        return runner

    def end_run(self, run: str = "r") -> None:
        """End the stage of the run, then the run."""
        stage = StageId(f"{run}.1")
        assert not self.actors.runners[-1].report(stage)
        self.host.confirm(stage, 1)
        self.host.forget(RunId(run))

    def ends_runner_at(self, now_ms: int) -> bool:
        self.clock.now_ms = now_ms
        return self.actors.runners[-1].report()

    def renew(self) -> None:
        self.host.extend_deadline(6, 1_000, 2_000, 5)

    def close(self) -> None:
        self.host.stop_all()
        self.host.close()


@pytest.fixture
def successor() -> Iterator[Mesh]:
    """Mesh that has renewed nothing yet, and may recover what an earlier process left."""
    mesh = Mesh()
    yield mesh
    mesh.close()


@pytest.fixture
def mesh(successor: Mesh) -> Mesh:
    successor.renew()
    return successor


def test_a_stage_queued_behind_a_stop_is_not_run_or_reported():
    is_asked, may_go_on = threading.Event(), threading.Event()

    def take() -> Any:
        is_asked.set()
        may_go_on.wait(PATIENCE_S)
        return some_groups()

    mesh = Mesh(take=take)
    mesh.renew()
    runner = mesh.start("q", has_group=False)
    assert is_asked.wait(PATIENCE_S)
    mesh.start("r", has_group=False)
    mesh.host.stop_all()
    may_go_on.set()
    mesh.host.close()
    assert (runner.asked, runner.started.empty(), mesh.reports.empty()) == (["bind"], True, True)


@pytest.mark.parametrize("how", ["cancelled", "delivered to"])
def test_a_stage_that_waits_for_its_group_holds_up_no_order(how: str):
    is_asked, may_go_on = threading.Event(), threading.Event()

    def take() -> Any:
        is_asked.set()
        may_go_on.wait(PATIENCE_S)
        return some_groups()

    mesh, stage = Mesh(take=take), StageId("r.1")
    mesh.renew()
    runner = mesh.start("r", has_group=False)
    assert is_asked.wait(PATIENCE_S)
    if how == "cancelled":
        mesh.host.cancel(stage)
        assert mesh.reports.get(timeout=PATIENCE_S).messages == (StageEnded(stage=stage),)
    else:
        mesh.host.deliver(stage, NodeId("b"), None)
    mesh.host.forget(RunId("other"))
    may_go_on.set()
    mesh.host.close()
    runner.end()
    expected = ["bind", "forget"] if how == "cancelled" else ["bind", "forget", "deliver"]
    assert (runner.asked, runner.started.empty()) == (expected, how == "cancelled")
    assert [method for method in mesh.actors.keeper.asked if method == "give_back"] == (["give_back"] if how == "cancelled" else [])


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_lost_worker_of_a_cancelled_stage_is_cancelled(mesh: Mesh, is_cancelled: bool):
    runner, stage = mesh.start("r"), StageId("r.1")
    if is_cancelled:
        mesh.host.cancel(stage)
    failure = Failure(reason=Reason.WORKER_LOST, type_name="ray.exceptions.WorkerCrashedError", message="killed")
    lost = NodeFailed(stage=stage, node=NodeId("a"), attempt=1, started_ms=1, finished_ms=2, failure=failure)
    runner.send(stage, lost, StageEnded(stage=stage))
    reported, _ = mesh.reports.get(timeout=PATIENCE_S).messages
    reason = Reason.CANCELLED_BY_USER if is_cancelled else Reason.WORKER_LOST
    assert reported == replace(lost, failure=replace(failure, reason=reason))


def test_orders_run_while_ray_blocks_the_garbage_collector():
    answers = threading.Event()

    def sweep(*_: object) -> Swept:
        answers.wait()
        return Swept.CLEAN

    mesh = Mesh(sweep=sweep)
    try:
        mesh.renew()
        runner = mesh.start("r")
        runner.report(StageId("r.1"))
        mesh.start("s")
    finally:
        answers.set()
        mesh.close()


def test_the_next_runner_inherits_the_values_under_the_holder(mesh: Mesh):
    first, stage = mesh.start("r", token=7), StageId("r.1")
    succeeded = NodeSucceeded(stage=stage, node=NodeId("a"), attempt=1, started_ms=1, finished_ms=2, worker="w")
    first.send(stage, succeeded)
    assert mesh.reports.get(timeout=PATIENCE_S).messages == (succeeded,)
    first.end()
    (lost,) = mesh.reports.get(timeout=PATIENCE_S).messages
    assert isinstance(lost, StageLost)
    assert (lost.incarnation, lost.keeps_values) == (7, True)
    assert mesh.host.held() == {RunId("r"): stage}
    second = mesh.start("r", token=8)
    assert second is not first
    assert mesh.host.start(a_stage("s"), 1, 9, {}, {}) == 7
    assert second.asked[:2] == ["bind", "inherit"]
    assert (second.given["bind"][-1], second.given["inherit"][-1]) == (8, 7)  # Not before it has the values: the process may die.


# -- idle runners ------------------------------------------------------------------------------------------------------


def test_a_runner_ends_when_its_runs_have_been_over_for_long(mesh: Mesh):
    first = mesh.start("r")
    mesh.end_run("r")
    assert [mesh.ends_runner_at(now_ms) for now_ms in (100, 99 + IDLE_MS, 100 + IDLE_MS)] == [False, False, True]
    assert mesh.host.start(a_stage("s"), 1, 9, {}, {}) == 9
    assert mesh.actors.runners[-1] is not first


@pytest.mark.parametrize("missing", ["the end", "the confirmation", "the word that the run is over"])
def test_a_runner_with_work_or_unsent_reports_stays(mesh: Mesh, missing: str):
    runner = mesh.start()
    if missing != "the end":
        runner.report(StageId("r.1"))
    if missing != "the confirmation":
        mesh.host.confirm(StageId("r.1"), 1)
    if missing != "the word that the run is over":
        mesh.host.forget(RunId("r"))
    assert [mesh.ends_runner_at(now_ms) for now_ms in (0, 10 * IDLE_MS)] == [False, False]


def test_a_runner_that_got_work_in_between_waits_anew(mesh: Mesh):
    for run, now_ms in (("r", 0), ("s", IDLE_MS)):
        mesh.start(run)
        mesh.end_run(run)
        assert not mesh.ends_runner_at(now_ms)
    assert mesh.ends_runner_at(2 * IDLE_MS)


def test_a_recovered_runner_ends_long_after_its_runs(successor: Mesh):
    runs = {RunId(run): StageId(f"{run}.1") for run in "rs"}
    runner = Runner()
    inventory = Inventory(tenant=TenantPath("t"), environment="", holder=3, stages=(), groups={}, runs=runs)
    successor.actors.runners.append(runner)
    successor.actors.found = FoundActors(keeper=Actor(), incarnation=5, since=5, runners=((runner, inventory),))
    successor.host.find()
    successor.host.go_on(frozenset())
    assert not runner.until_look()
    assert successor.host.held() == runs
    successor.host.forget(RunId("r"))
    assert [successor.ends_runner_at(now_ms) for now_ms in (0, 10 * IDLE_MS)] == [False, False]
    successor.host.forget(RunId("s"))
    assert successor.host.held() == {}
    assert [successor.ends_runner_at(now_ms) for now_ms in (0, IDLE_MS)] == [False, True]


def timers() -> set[threading.Timer]:
    return {thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)}


@pytest.mark.parametrize("how", ["it ends", "its runner dies", "everything is stopped"])
def test_nothing_is_kept_of_a_cancelled_stage_that_is_over(mesh: Mesh, how: str):
    runner = mesh.start()
    stage, others = StageId("r.1"), timers()
    mesh.host.cancel(stage)
    (eviction,) = timers() - others
    assert stage in mesh.cancelled
    if how == "it ends":
        runner.report(stage)
    elif how == "its runner dies":
        runner.end()
        assert isinstance(mesh.reports.get(timeout=PATIENCE_S).messages[0], StageLost)
    else:
        mesh.host.stop_all()
    eviction.join(PATIENCE_S)
    assert not eviction.is_alive()
    mesh.host.cancel(stage)
    assert stage not in mesh.cancelled
    assert timers() <= others


# -- growth and shrinking ----------------------------------------------------------------------------------------------


ONE_CPU = ResourceSet.of({"cpu": 1})


class SlowGroups:
    """Answers of a keeper: after the first, each group is given only when the test lets it."""

    def __init__(self) -> None:
        self.is_asked, self.may_go_on = threading.Semaphore(0), threading.Semaphore(1)

    def __call__(self) -> Any:
        self.is_asked.release()
        self.may_go_on.acquire(timeout=PATIENCE_S)
        return some_groups()


@pytest.fixture
def groups() -> SlowGroups:
    return SlowGroups()


@pytest.fixture
def growing(groups: SlowGroups) -> Iterator[tuple[Mesh, Runner]]:
    """Yield a mesh whose stage waits for the group of a growth, and its runner."""
    mesh = Mesh(take=groups)
    mesh.renew()
    runner = mesh.start(slot=ONE_CPU)
    mesh.host.grow(StageId("r.1"), 1, b"two")
    for _ in range(2):
        assert groups.is_asked.acquire(timeout=PATIENCE_S)
    yield mesh, runner
    groups.may_go_on.release(100)
    mesh.close()


def test_a_shrink_comes_after_the_growth_before_it(growing: tuple[Mesh, Runner], groups: SlowGroups):
    mesh, runner = growing
    mesh.host.shrink(StageId("r.1"), 1)
    groups.may_go_on.release()
    mesh.host.close()
    assert runner.asked[1:] == ["grow", "shrink"]


def test_a_group_that_comes_after_the_end_is_given_back(growing: tuple[Mesh, Runner], groups: SlowGroups):
    mesh, runner = growing
    runner.report(StageId("r.1"))
    groups.may_go_on.release()
    mesh.host.grow(StageId("r.1"), 1, b"three")
    mesh.host.shrink(StageId("r.1"), 1)
    mesh.host.close()
    assert (runner.asked[1:], mesh.actors.keeper.asked.count("give_back")) == ([], 2)


def test_groups_of_retired_slots_are_given_back(mesh: Mesh):
    runner = mesh.start(slot=ONE_CPU)
    runner.answers["take_free"] = some_groups
    runner.say(StageResized(stage=StageId("r.1"), slots=1))
    assert mesh.reports.get(timeout=PATIENCE_S).messages == (StageResized(stage=StageId("r.1"), slots=1),)
    runner.report(StageId("r.1"))
    mesh.host.close()
    assert (runner.asked[1:], mesh.actors.keeper.asked.count("give_back")) == (["take_free"], 1)


# -- going on with what an earlier process has left --------------------------------------------------------------------


def test_a_recovered_process_has_one_keeper(successor: Mesh):
    keeper = Actor()
    successor.actors.found = FoundActors(keeper=keeper, incarnation=5, since=5, runners=())
    assert successor.host.find() is not None
    successor.renew()
    successor.host.go_on(frozenset())
    successor.host.close()
    orders = [method for method in keeper.asked if method != "session"]  # The host asks for it to see that the keeper lives.
    assert (successor.actors.keepers_made, orders) == (0, ["keep_only", "settle"])


# -- a node that has died ----------------------------------------------------------------------------------------------


def test_nodes_are_those_of_the_mesh_without_its_own_groups():
    labels = {"zone": "east"}
    rows = [
        {
            "NodeID": "n1",
            "Alive": True,
            "Labels": labels,
            "Resources": {"CPU": 4.0, "node:10.0.0.1": 1.0},
            "Available": {"CPU": 1.0, "node:10.0.0.1": 1.0},
            "Bundles": [("ours", {"CPU": 2.0}), ("theirs", {"CPU": 1.0})],
        },
        {"NodeID": "n2", "Alive": True, "Labels": {}, "Resources": {"CPU": 8.0}},
        {"NodeID": "n3", "Alive": False, "Labels": labels, "Resources": {"CPU": 8.0}},
    ]
    watched = NodeGuards(M, labels, nodes=NodeCache(lambda: rows), new_guard=lambda _: Actor(read_clock=lambda: 1), calls=Calls())
    assert watched.nodes("ours") == ()
    watched.read_clock()
    (seen,) = watched.nodes("ours")
    assert (seen.node, seen.total, seen.available) == ("n1", ResourceSet.of({"cpu": 4}), ResourceSet.of({"cpu": 3}))


def test_nothing_new_is_started_while_no_node_is_guarded():
    is_dead = threading.Event()

    def read_clock() -> int:
        if is_dead.is_set():
            raise RayActorError
        return 1

    watched = guards(("n1",), lambda _: Actor(read_clock=read_clock, extend_deadline=lambda: True))
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        mesh = Mesh(node_guards=watched, address=f"127.0.0.1:{cluster.getsockname()[1]}")
        mesh.host.read_clock()
        mesh.renew()
        assert mesh.host.is_ready()
        is_dead.set()  # The guard has died with its node, and Ray still lists the node.
        mesh.host.read_clock()
        assert not mesh.host.is_ready()
        is_dead.clear()
        mesh.host.read_clock()  # Another guard.
        for _ in ("sends the renewal", "reads the answer"):
            mesh.renew()
        assert mesh.host.is_ready()
        mesh.close()


def test_a_waiting_stage_gets_the_group_that_made_room() -> None:
    may_sweep = threading.Event()
    mesh = Mesh(sweep=lambda *_: Swept.CLEAN if may_sweep.wait(PATIENCE_S) else Swept.LEFT)
    mesh.renew()
    runner = mesh.start("r")
    done = NodeSucceeded(stage=StageId("r.1"), node=NodeId("a"), attempt=1, started_ms=1, finished_ms=2, worker="w")
    runner.send(StageId("r.1"), done, StageEnded(stage=StageId("r.1")))
    mesh.reports.get(timeout=PATIENCE_S)
    mesh.host.start(a_stage("s"), 1, 8, {}, {})  # Its room is free, the group is not back.
    may_sweep.set()
    (group,) = runner.started.get(timeout=PATIENCE_S)
    assert group == replace(some_groups()[0], is_placed=True)
    assert mesh.actors.keeper.asked.count("take") == 1
    mesh.close()
