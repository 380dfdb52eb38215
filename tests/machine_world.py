"""A run and its meshes as a random walk: for laws of the run machine.

The meshes here are a few sets: values in a runner's (a holder's) memory, its stages, and its unsent messages.
They follow the protocol of `mesh.stages.messages`, and fail where hypothesis says so.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

import networkx as nx
from hypothesis import strategies as st

from dag.run.events import CancelRequested, MeshClosed, MeshGone, NodesPlaced, Placement, WaitsLimited
from dag.run.machine import RunMachine
from dag.run.retrying import RetryRules
from dag.run.run_events import singly
from dag.run.runs import CancelStage, DeliverInput, DropValue, ForgetRun, RunRecord, SendStage
from dag.run.states import NODE_ENDS, RUN_ENDS, STAGE_ENDS, NodeState, RunState, StageState
from dag.spec.plans import NodePlan
from dag.store.node_rows import changed_rows, table_of
from mesh.core.functions import SELECTED
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import (
    Failure,
    InputLost,
    NodeCheckpoint,
    NodeFailed,
    NodesSucceeded,
    NodeStarted,
    NodeSucceeded,
    StageEnded,
    StageLost,
    StageStarted,
)
from mesh.stages.spec import TaskSpec

MESHES = ["east", "north", "west"]
FAULTS_MAX = 3  #: Attempts that a node may lose; one more may fail it.
STEPS_MAX = 2_000


@st.composite
def graphs(draw, *, with_actors=False):
    """Return plans in topological order; some edges are of order only, some nodes are outputs.

    Args:
        with_actors: Some nodes are actors without retries, and others select their calls.
    """
    count = draw(st.integers(1, 8))
    plans = {}
    for number in range(count):
        earlier = [f"n{other}" for other in range(number)]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        order_only = draw(st.lists(st.booleans(), min_size=len(needs), max_size=len(needs)))
        task = TaskSpec(
            node=f"n{number}",
            attempt=1,
            function="call:work:do",
            inputs=tuple(need for need, only in zip(needs, order_only, strict=True) if not only),
            after=tuple(need for need, only in zip(needs, order_only, strict=True) if only),
        )
        plans[task.node] = NodePlan(task=task, is_output=draw(st.booleans()), retries=draw(st.integers(0, 1)))
        if with_actors and draw(st.booleans()):
            is_call = any(plans[need].never_on for need in task.inputs)
            life = replace(task, function=SELECTED) if is_call else replace(task, is_isolated=True, ray_options={"max_calls": 1})
            plans[task.node] = replace(
                plans[task.node], task=life, retries=0, never_on=frozenset(() if is_call else (Reason.WORKER_LOST.value,))
            )
    return plans


@dataclass
class Stage:
    """A stage at its mesh."""

    spec: object
    mesh: str
    holder: int = 0  #: 0: queued.
    outside: dict = field(default_factory=dict)  #: Delivered input to whether it is a value.
    running: set = field(default_factory=set)
    done: set = field(default_factory=set)
    failed: set = field(default_factory=set)  #: Done or dropped.
    cancelled: bool = False


class Meshes:
    """A run and its meshes; `actions` are the possible next events.

    Every other node is short: its start is not reported, and its end stands in a message with others.
    """

    def __init__(self, plans, *, failing=frozenset(), on_error="fail_fast", with_twin=False, machine=None):
        self.machine, *twin = (machine or machine_on(plans, on_error) for _ in range(1 + with_twin))
        self.twin = twin[0] if with_twin else None  #: Gets each end as a message of its own.
        self.rows = {}  #: Stored rows of the nodes.
        self.short = frozenset(list(plans)[::2])
        self.now_ms = 1
        self.record = self.machine.record
        self.failing = failing
        self.stages = {}
        self.holders = dict.fromkeys(MESHES, 0)
        self.values = {}  #: Holder to the nodes whose values it has.
        self.unreported = {mesh: deque() for mesh in MESHES}
        self.claims = {mesh: {} for mesh in MESHES}  #: Stages whose end is not reported yet, with their holders.
        self.inbox = deque()  #: Messages of the store itself.
        self.tokens = 0
        self.begun = set()  #: Attempts of nodes.
        self.faults = 0
        self.forgotten = False
        self.checkpoints = set()  #: Hashes that are stored.
        self.reported = set()  #: Hashes that the machine has heard of.
        self.saves = 0

    # -- the machine

    def report(self, *events):
        self.reported.update(event.stored.sha256 for event in events if isinstance(event, NodeCheckpoint))
        self.now_ms += self.twin is not None
        change = self.machine.handle(events, self.now_ms)
        if self.twin is not None:
            check_alike(self.twin.handle(singles(self.twin.record, events), self.now_ms), self.twin.record, change, self.record)
            self.rows.update(changed_rows(self.record.nodes, change.nodes))
            assert table_of(self.record.nodes.names, self.rows) == self.record.nodes
        for decision in change.decisions:
            if isinstance(decision, SendStage):
                assert decision.spec.stage not in self.stages
                self.stages[decision.spec.stage] = Stage(decision.spec, decision.mesh)
                self.check_stored(task.checkpoint for task in decision.spec.tasks)
            elif isinstance(decision, DropValue):
                self.checkpoints.discard(decision.value.sha256)
            elif isinstance(decision, DeliverInput) and decision.stage in self.stages:
                self.stages[decision.stage].outside.setdefault(decision.node, decision.value is not None)
            elif isinstance(decision, CancelStage) and decision.stage in self.stages:
                self.cancel(decision.stage)
            elif isinstance(decision, ForgetRun):
                assert not self.forgotten
                if self.record.state is RunState.SUCCEEDED:
                    assert not self.checkpoints & self.reported  # Deleted when a newer one came, or the node had succeeded.
                self.forgotten = True
        check(self.machine)
        self.check_stored(kept.checkpoint and kept.checkpoint.stored for kept in self.record.nodes.values())
        return change

    def check_stored(self, checkpoints):
        assert {stored.sha256 for stored in checkpoints if stored is not None} <= self.checkpoints

    def cancel(self, name):
        stage = self.stages[name]
        if stage.holder:
            stage.cancelled = True
        else:
            del self.stages[name]
            self.inbox.append(StageEnded(stage=name))

    # -- what can happen next

    def actions(self, *, with_faults):
        if self.machine.unplaced(self.now_ms):
            yield ("place",)
        if any(kept.not_before_ms > self.now_ms for kept in self.record.nodes.values()):
            yield ("wait",)
        if self.inbox:
            yield ("tell", None)
        for mesh in MESHES:
            if self.unreported[mesh]:
                yield ("tell", mesh)
        for name, stage in self.stages.items():
            yield from self.work_on(name, stage) if stage.holder else [("start", name)]
            if with_faults:
                yield from (("save", name, task) for task in stage.spec.tasks if task.node in stage.running)
        if with_faults and self.faults < FAULTS_MAX:
            yield from self.breakdowns()

    def work_on(self, name, stage):
        for task in stage.spec.tasks:
            if task.node in stage.running:
                yield ("finish", name, task)
            elif task.node not in stage.done | stage.failed and not stage.cancelled and self.is_ready(stage, task):
                yield ("begin", name, task)

    def breakdowns(self):
        for mesh in MESHES:
            yield ("kill the runner", mesh)
            yield ("sweep the session", mesh)
            yield ("miss the mesh", mesh)
            yield ("close the mesh", mesh)
            for node in sorted(self.values.get(self.holders[mesh], ())):
                yield ("lose a value", mesh, node)

    def do(self, action, choice=0):
        kind, *arguments = action
        if kind == "wait":
            self.now_ms = min(kept.not_before_ms for kept in self.record.nodes.values() if kept.not_before_ms > self.now_ms)
        elif kind == "place":
            self.place(choice)
        elif kind == "tell":
            self.pass_on(*arguments)
        elif kind == "start":
            self.start(*arguments)
        elif kind == "begin":
            self.begin(*arguments)
        elif kind == "save":
            self.save(*arguments)
        elif kind == "finish":
            self.finish(*arguments)
        else:
            self.faults += 1
            self.break_down(kind, *arguments)
        self.settle_all()

    def place(self, choice):
        """Place every node without a mesh by `choice`, unless an input cannot leave its mesh."""
        where = {}
        for place, node in enumerate(self.machine.unplaced(self.now_ms)):
            pinned = [mesh for need in self.machine.plans[node].task.inputs if (mesh := self.machine.value_at(need)) is not None]
            where[node] = Placement(mesh=pinned[0] if pinned else MESHES[(choice // 3**place) % 3], why="")
        self.report(NodesPlaced(placements=where))

    def pass_on(self, mesh):
        message = (self.unreported[mesh] if mesh else self.inbox).popleft()
        if mesh and isinstance(message, StageEnded | StageLost):
            del self.claims[mesh][message.stage]
        self.report(message)

    def start(self, name):
        stage = self.stages[name]
        if not self.holders[stage.mesh]:
            self.tokens += 1
            self.holders[stage.mesh] = self.tokens
            self.values[self.tokens] = set()
        stage.holder = self.holders[stage.mesh]
        self.claims[stage.mesh][name] = stage.holder
        self.say(stage, StageStarted(stage=name, mesh=stage.mesh, incarnation=stage.holder, cluster="c", slots=1, token=1))
        for node in sorted(stage.spec.external_inputs() - stage.outside.keys()):
            if node in self.values.get(-stage.holder, ()):
                self.say(stage, InputLost(stage=name, node=node))

    def begin(self, name, task):
        stage = self.stages[name]
        assert (task.node, task.attempt) not in self.begun, f"attempt {task.attempt} of {task.node} begins for the second time"
        self.begun.add((task.node, task.attempt))
        stage.running.add(task.node)
        if task.node not in self.short:
            self.say(stage, NodeStarted(stage=name, node=task.node, attempt=task.attempt, started_ms=1))

    def save(self, name, task):
        self.saves += 1
        stored = StoredValue(sha256=f"checkpoint {self.saves}", size_bytes=1, encoding=Encoding.PICKLE)
        self.checkpoints.add(stored.sha256)
        message = NodeCheckpoint(stage=name, node=task.node, attempt=task.attempt, number=self.saves, stored=stored)
        for _ in range(1 + self.saves % 2):  # Some are reported twice.
            self.say(self.stages[name], message)

    def finish(self, name, task):
        stage = self.stages[name]
        stage.running.discard(task.node)
        fields = {"stage": name, "node": task.node, "attempt": task.attempt, "started_ms": 1, "finished_ms": 2}
        if self.has_ended_without_value(stage, task, fields):
            return
        if task.node in self.failing:
            stage.failed.add(task.node)
            failure = Failure(reason=Reason.USER_ERROR, type_name="E", message="no")
            self.say(stage, NodeFailed(**fields, failure=failure))
            return
        stage.done.add(task.node)
        self.values[stage.holder].add(task.node)
        self.values.get(-stage.holder, set()).discard(task.node)
        stored = self.value_of(task.node) if task.export else None
        if task.node in self.short:
            self.say_with_others(stage, task, stored)
        else:
            self.say(stage, NodeSucceeded(**fields, worker="w", stored=stored))

    def has_ended_without_value(self, _stage, _task, _fields):
        """Report another end than a success or a failure, if the task has one; return whether it has."""
        return False

    def value_of(self, node):
        return StoredValue(sha256=node, size_bytes=1, encoding=Encoding.JSON)

    def say_with_others(self, stage, task, stored):
        """Report an end in one message with those before it, if nothing else was reported since."""
        unreported, place = self.unreported[stage.mesh], stage.spec.tasks.index(task)
        if self.twin is not None and task.attempt == 1:
            stored = None  # A reader elsewhere has the task run again, and recalls those that wait for it.
        tasks, attempts, values = (), (), {}
        if unreported and isinstance(unreported[-1], NodesSucceeded) and unreported[-1].stage == stage.spec.stage:
            before = unreported.pop()
            tasks, attempts, values = before.tasks, before.attempts, before.stored
        many = len(tasks) + 1
        values = values if stored is None else {**values, many - 1: stored}
        columns = {"since_ms": 1, "started": (0,) * many, "took": (1,) * many, "workers": ("w",), "stored": values}
        self.say(stage, NodesSucceeded(stage=stage.spec.stage, tasks=(*tasks, place), attempts=(*attempts, task.attempt), **columns))

    def break_down(self, kind, mesh, node=None):
        holder = self.holders[mesh]
        here = {name: stage for name, stage in self.stages.items() if stage.mesh == mesh and stage.holder}
        if kind == "miss the mesh":
            self.report(MeshGone(mesh=mesh))
        elif kind == "close the mesh":
            self.report(MeshClosed(mesh=mesh))
        elif kind == "lose a value":
            self.lose_value(holder, node, here)
        else:
            self.holders[mesh] = 0
            for name in here:
                del self.stages[name]
            if kind == "kill the runner":
                self.unreported[mesh].extend(self.lost(name, mesh, holder) for name in here)
            else:  # All reporters are gone; the ledger itself reports the loss of claimed stages.
                self.unreported[mesh].clear()
                self.inbox.extend(self.lost(name, mesh, claimed) for name, claimed in self.claims[mesh].items())
                self.claims[mesh].clear()

    def lost(self, name, mesh, holder):
        return StageLost(stage=name, mesh=mesh, incarnation=holder, reason=Reason.WORKER_LOST)

    def lose_value(self, holder, node, here):
        """Lose a value. The runner notices when another stage's task needs it; tasks of its own stage have it."""
        self.values[holder].discard(node)
        self.values.setdefault(-holder, set()).add(node)  # Values that the holder knows to be lost.
        for name, stage in here.items():
            if node in stage.spec.external_inputs() - stage.outside.keys():
                self.say(stage, InputLost(stage=name, node=node))

    def settle_all(self):
        for name in list(self.stages):
            self.settle(name)

    def settle(self, name):
        """Drop what will never run; end the stage when nothing is left."""
        stage = self.stages[name]
        if not stage.holder:
            return
        inside = {task.node for task in stage.spec.tasks}
        for task in stage.spec.tasks:
            needs = {*task.inputs, *task.after}
            hopeless = needs & stage.failed or any(stage.outside.get(need) is False for need in needs - inside)
            if task.node not in stage.done | stage.running and (hopeless or stage.cancelled):
                stage.failed.add(task.node)
            elif task.node in stage.running and stage.cancelled:
                stage.running.discard(task.node)
                stage.failed.add(task.node)
        if inside == stage.done | stage.failed:
            del self.stages[name]
            self.say(stage, StageEnded(stage=name))

    def say(self, stage, message):
        self.unreported[stage.mesh].append(message)

    def is_ready(self, stage, task):
        inside = {each.node for each in stage.spec.tasks}
        return all(
            need in stage.done if need in inside else stage.outside.get(need) or need in self.values[stage.holder]
            for need in (*task.inputs, *task.after)
        )

    # -- the whole way

    def run(self, choices, *, cancel_at=-1, refuse_at=()):
        """Follow `choices`, with faults; then continue without faults until nothing is left to do."""
        for step, choice in enumerate(choices):
            if step in refuse_at:
                self.now_ms += 1
                self.report(WaitsLimited(longest_ms=0))
                self.settle_all()
            if step == cancel_at:
                self.report(CancelRequested(detail=""))
                self.settle_all()
            actions = list(self.actions(with_faults=choice % 8 == 0))
            if self.record.state in RUN_ENDS or not actions:
                break
            self.do(actions[choice // 8 % len(actions)], choice)
        for step in range(STEPS_MAX):
            actions = list(self.actions(with_faults=False))
            if self.record.state in RUN_ENDS or not actions:
                return
            self.do(actions[step % len(actions)], step)


def machine_on(plans, on_error):
    record = RunRecord(run="r", tenant="acme", digest="", spec=b"")
    return RunMachine(record, plans, runtime_env={}, on_error=on_error, retrying=RetryRules(kills_max=FAULTS_MAX + 1))


def singles(record, events):
    """Yield the events, each end in a message of its own after its start."""
    for event in events:
        if isinstance(event, NodesSucceeded):
            for one in event.single(record.stages[event.stage].nodes):
                yield NodeStarted(stage=one.stage, node=one.node, attempt=one.attempt, started_ms=one.started_ms)
                yield one
        else:
            yield event


def check_alike(one, one_record, other, other_record):
    """Check that two machines have gone the same way; only the times of their events may differ."""
    assert one_record.nodes == other_record.nodes
    assert one_record.stages == other_record.stages
    assert one.decisions == other.decisions
    events = ([replace(event, at_ms=0) for event in singly(each.events, one_record.nodes.names)] for each in (one, other))
    assert next(events) == next(events)


def still_needed(plan, state):
    """Return the nodes that this one still needs. Order edges and running readers do not delay a recomputation."""
    if state is NodeState.RUNNING:
        return ()
    return plan.task.inputs if state is NodeState.ASSIGNED else (*plan.task.inputs, *plan.task.after)


def check(machine):
    """Check what holds after every step."""
    record = machine.record
    live = {name: stage for name, stage in record.stages.items() if stage.state not in STAGE_ENDS}
    waits = nx.DiGraph()
    for node, kept in record.nodes.items():
        if kept.state in NODE_ENDS:
            continue
        if kept.state in (NodeState.ASSIGNED, NodeState.RUNNING):
            assert kept.stage in live
            assert live[kept.stage].state in (StageState.QUEUED, StageState.RUNNING)
        if kept.stage is None:
            continue
        assert node in record.stages[kept.stage].nodes
        for need in still_needed(machine.plans[node], kept.state):
            other = record.nodes[need]
            if other.stage not in (None, kept.stage) and other.state not in NODE_ENDS:
                waits.add_edge(kept.stage, other.stage)
    assert nx.is_directed_acyclic_graph(waits), list(nx.find_cycle(waits))
    for before, after in waits.edges:
        if record.stages[before].state is StageState.RUNNING:
            assert record.stages[after].state is StageState.RUNNING, "a stage holds slots while it waits for one that has none"


#: Short lists shrink well when a law breaks; long ones, from a seed, go far into a run.
choices = st.one_of(
    st.lists(st.integers(0, 3**9), max_size=60),
    st.integers(0, 2**32).map(lambda seed: random.Random(seed).choices(range(3**9), k=150)),
)
