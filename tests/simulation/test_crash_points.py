"""Deaths of one process at one point of a run, each point with each process, for graphs of nodes and for arrays.

The points follow the life of a stage: submitted, planned (committed, not sent), sent, running, done (the end is not recorded), recorded
(not passed on), transferring (a value is on its way to another mesh).

The promise: a node that was recorded never runs again. The death of a coordinator or of a mesh's process costs no execution at all. The
death of a runner costs at most one more execution of what it had not reported. Each success is recorded once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dag.run.run_events import NodesEnded
from dag.run.runs import DeliverInput, RunChange, RunRecord, SendStage
from dag.run.states import NodeState, RunState
from dag.spec.spec import digest, parse
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, RunId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.stages.messages import NodesSucceeded, NodeSucceeded
from mesh.stages.simulated_host import value_of
from simulator.world import Killed, World

ACME, STANDARD = TenantPath("acme"), FlavorName("standard")
EAST, WEST = MeshId("east"), MeshId("west")
RUN = RunId("night")
STEPS_MAX = 600

VICTIMS = ("coordinator", "child", "runner")
POINTS = ("submitted", "planned", "sent", "running", "done", "recorded", "transferring")


def spec_of(kind: str) -> dict[str, Any]:
    """Return a graph whose values go from east to west and back; all of them are outputs, so each outlives its runner."""

    def node(zone: str, *needs: str, **form: Any) -> dict[str, Any]:
        return {"call": "work:do", "args": [{"$ref": need} for need in needs], "options": {"labels": {"zone": zone}}, **form}

    nodes = {"a": node("east"), "b": node("east", "a"), "c": node("west", "b"), "d": node("west", "a"), "e": node("east", "c", "d")}
    if kind == "array":
        nodes["b"] |= {"args": [{"$each": [1, 2, 3, 4, 5, 6], "parts": 6}, {"$ref": "a"}]}
        nodes["c"] |= {"args": [{"$each": {"$ref": "b"}}]}
    return {"spec": "dag/1", "id": RUN, "tenant": ACME, "nodes": nodes, "outputs": {name: {"$ref": name} for name in nodes}}


@dataclass(frozen=True, slots=True)
class Moment:
    """A call of a process, by which a point is known."""

    role: str
    method: str
    is_after: bool
    matches: Callable[..., bool] = lambda *_: True


def _has_success(change: RunChange) -> bool:
    return any(isinstance(event, NodesEnded) or getattr(event, "after", "") == "SUCCEEDED" for event in change.events)


def _decides(change: RunChange, kind: type) -> bool:
    return any(isinstance(decision, kind) and getattr(decision, "value", True) is not None for decision in change.decisions)


def _reports_success(_claim: Any, _batch: int, messages: Any, **_: Any) -> bool:
    return any(isinstance(message, NodesSucceeded | NodeSucceeded) for message in messages)


#: An end counts as done while it is at the mesh, for a coordinator while it is in the inbox.
MOMENTS = {
    "planned": Moment("coordinator", "commit", True, lambda _, change: _decides(change, SendStage)),
    "sent": Moment("coordinator", "submit", True),
    "done": Moment("east", "report", False, _reports_success),
    "recorded": Moment("coordinator", "commit", True, lambda _, change: _decides(change, DeliverInput)),
    "transferring": Moment("coordinator", "deliver", True, lambda _stage, _node, value: value is not None),
}
IN_THE_INBOX = Moment("coordinator", "commit", False, lambda _, change: _has_success(change))


class Crash:
    """World in which one process dies at one point."""

    def __init__(self, seed: int, victim: str, point: str, kind: str) -> None:
        self.victim, self.point, self.spec = victim, point, spec_of(kind)
        self.mesh = WEST if point == "transferring" else EAST
        self.moment = IN_THE_INBOX if (victim, point) == ("coordinator", "done") else MOMENTS.get(point)
        self.skips = seed % 2  #: Times that the moment passes before the process dies.
        self.kills = 0
        self.recorded: set[NodeId] = set()  #: Nodes that were recorded when the process died,
        self.starts: dict[NodeId, int] = {}  #: and how often each had started.
        quotas = {(STANDARD, "cpu"): Quota(nominal=100_000)}
        tree = TenantTree((Tenant(path=ACME, parent=None, quotas=quotas, functions=("*",)),))
        pools = (PoolRecord(pool=PoolName("general"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 2})),)
        meshes = tuple(MeshRecord(mesh=name, labels={"zone": name}, pools=pools, cluster=f"c-{name}") for name in (EAST, WEST))
        self.world = World(seed, tree, meshes, tap=self._tapped)

    def _tapped(self, role: str, store: Any) -> Any:
        return _Tapped(self, role, store)

    def meet(self, role: str, method: str, *, is_after: bool, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Kill the victim if this call is the moment."""
        moment = self.moment
        if self.kills or moment is None or (moment.role, moment.method, moment.is_after) != (role, method, is_after):
            return
        if moment.matches(*args, **named):
            if self.skips:
                self.skips -= 1
                return
            caller = "coordinator" if role == "coordinator" else "child"
            self.kill(is_caller=caller == self.victim and role in ("coordinator", self.mesh))

    def kill(self, *, is_caller: bool = False) -> None:
        self.kills += 1
        nodes = self.record().nodes
        self.recorded = {node.node for node in nodes.values() if node.state is NodeState.SUCCEEDED}
        self.starts = {node: count for (_, node), count in self.world.starts.items()}
        if is_caller:
            raise Killed
        if self.victim == "coordinator":
            self.world.kill_coordinator()
        elif self.victim == "child":
            self.world.kill_child(self.mesh)
        else:
            self.world.kill_runner(self.mesh)

    def record(self) -> RunRecord:
        record = self.world.runs.load(RUN)
        assert record is not None
        return record

    def run(self) -> None:
        """Run the graph to its end."""
        world = self.world
        while len(world.store.snapshot().meshes) < len(world.meshes):
            world.step()
        body = json.dumps(self.spec).encode()
        record = RunRecord(run=RUN, tenant=ACME, digest=digest(parse(body)), spec=body, created_ms=world.clock.wall_ms())
        assert world.runs.create(record, {})
        if self.point == "submitted":
            self.kill()
        for _ in range(STEPS_MAX):
            if self.point == "running" and not self.kills and self._runs_b():
                self.kill()
            world.step()
            assert world.store.audit() == ()
            if not world.runs.active():
                return
        pytest.fail(f"seed {world.seed}: the run did not end: {self.record().state}")

    def _runs_b(self) -> bool:
        """Return whether the node `b`, or a part of it, runs."""
        host = self.world.meshes[EAST].host
        return host is not None and any(node.startswith("b") for node in host.running)


class _Tapped:
    """Store as one process sees it."""

    def __init__(self, crash: Crash, role: str, store: Any) -> None:
        self._crash, self._role, self._store = crash, role, store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def call(*args: Any, **named: Any) -> Any:
            self._crash.meet(self._role, name, is_after=False, args=args, named=named)
            answer = method(*args, **named)
            self._crash.meet(self._role, name, is_after=True, args=args, named=named)
            return answer

        return call


def expected(spec: dict[str, Any]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, node in spec["nodes"].items():
        values[name] = value_of(NodeId(name), tuple(values[form["$ref"]] for form in node["args"]))
    return values


def successes(crash: Crash) -> dict[NodeId, int]:
    counts: dict[NodeId, int] = {}
    for event in crash.world.runs.events(RUN, 0, 10_000):
        if event.kind == "node" and event.after == "SUCCEEDED" and event.node is not None:
            counts[event.node] = counts.get(event.node, 0) + 1
    return counts


def check_values(crash: Crash, record: RunRecord) -> None:
    for name, value in expected(crash.spec).items():
        stored = record.nodes[NodeId(name)].stored
        assert stored is not None
        assert json.loads(crash.world.store.get(RUN, (stored.sha256,))[stored.sha256]) == value


@pytest.mark.parametrize("kind", ["nodes", "array"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.seeds(3)
def test_a_death_costs_what_the_promise_says(seed: int, victim: str, point: str, kind: str) -> None:
    crash = Crash(seed, victim, point, kind)
    crash.run()
    record, world = crash.record(), crash.world
    assert crash.kills == 1
    assert record.state is RunState.SUCCEEDED
    if kind == "nodes":
        check_values(crash, record)
    starts = {node: count for (_, node), count in world.starts.items()}
    again = {node: starts[node] - crash.starts.get(node, 0) for node in crash.recorded if node in starts}
    assert set(again.values()) <= {0}, f"recorded nodes ran again: {again}"
    most = 2 if victim == "runner" else 1
    assert {node: count for node, count in starts.items() if count > most} == {}
    assert set(successes(crash).values()) == {1}
    check_nothing_left(world)


def check_nothing_left(world: World) -> None:
    for _ in range(100):
        world.step()
    assert world.store.snapshot().leases == ()
    for simulated in world.meshes.values():
        assert simulated.host is not None
        assert simulated.host.is_empty
        assert simulated.child is not None
        assert simulated.child.state.admission.workloads == {}
