"""A run, driven by messages that tests write by hand."""

from __future__ import annotations

import hashlib

from dag.run.events import Blockage, CancelRequested, NodesPlaced, Placement, WaitsLimited
from dag.run.machine import RunMachine
from dag.run.node_table import NodeRecord
from dag.run.run_events import singly
from dag.run.runs import CancelStage, DeliverInput, RunRecord, SendStage
from dag.run.states import StageState
from dag.spec.plans import NodePlan
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import Failure, NodeFailed, NodeStarted, NodeSucceeded, StageEnded, StageLost, StageStarted
from mesh.stages.spec import TaskSpec

NOW_MS = 1_000
HOLDER = 77


def plans_of(*nodes, outputs=(), **fields):
    """Return plans. A node: `name: needs`; a need with `~` is only waited for. `fields`: fields of nodes, as `a={"retries": 1}`."""
    plans = {}
    for text in nodes:
        node, _, needs = text.partition(":")
        of_plan = dict(fields.get(node, {}))
        of_task = {name: of_plan.pop(name) for name in ("function", "args", "kwargs", "resources", "ray_options") if name in of_plan}
        task = TaskSpec(
            node=node,
            attempt=1,
            inputs=tuple(need for need in needs.split() if not need.startswith("~")),
            after=tuple(need[1:] for need in needs.split() if need.startswith("~")),
            **{"function": "call:work:do", "resources": ResourceSet.of({"cpu": 1}), **of_task},
        )
        plans[node] = NodePlan(task=task, is_output=node in outputs, **of_plan)
    return plans


class Driven:
    """Run, its decisions, and messages of its meshes. A stage is named by any of its nodes."""

    def __init__(self, *nodes, on_error="fail_fast", **fields):
        self.record = RunRecord(run="r", tenant="acme", digest="", spec=b"")
        self.machine = RunMachine(self.record, plans_of(*nodes, **fields), runtime_env={"pip": []}, on_error=on_error)
        self.decisions = []
        self.events = []
        self.always = ()  #: Fields of every step's report.

    def take(self, *events, after_ms=0):
        """Apply the events and return the change; decisions and events are recorded."""
        change = self.machine.handle((*events, *self.always), NOW_MS + after_ms)
        due_ms = self.machine.next_timer_ms()
        assert due_ms is None or due_ms > NOW_MS + after_ms, "a step takes all that is due"
        self.decisions = list(change.decisions)
        self.events.extend(singly(change.events, self.record.nodes.names))
        assert [event.seq for event in self.events] == list(range(1, self.record.seq + 1))
        return change

    # -- messages

    def place(self, **meshes):
        """Place nodes: `place(a="east")`, or several at once: `place(a_b="east")`."""
        where = {node: mesh for names, mesh in meshes.items() for node in names.split("_")}
        return self.take(NodesPlaced(placements={node: Placement(mesh=mesh, why=f"why {mesh}") for node, mesh in where.items()}))

    def block(self, node, reason=Reason.NO_MESH_FITS, detail="nobody"):
        return self.take(NodesPlaced(blockages={node: Blockage(reason=reason, detail=detail)}))

    def started(self, node, holder=HOLDER):
        stage = self.stage(node)
        return StageStarted(stage=stage.stage, mesh=stage.mesh, incarnation=holder, cluster=f"c-{stage.mesh}", slots=1, token=5)

    def begun(self, node):
        return NodeStarted(**self.attempt(node), started_ms=1)

    def done(self, node, stored=None):
        """Return the success of a node; an exported value is stored."""
        stored = stored or (value(node) if self.node(node).exported else None)
        return NodeSucceeded(**self.attempt(node), started_ms=1, finished_ms=2, worker="host:1", stored=stored)

    def failed(self, node, reason=Reason.USER_ERROR, message="no", kind=ValueError):
        name, *bases = [f"builtins.{each.__name__}" for each in kind.__mro__[:-2]]
        failure = Failure(reason=reason, type_name=name, message=message, bases=tuple(bases))
        return NodeFailed(**self.attempt(node), started_ms=1, finished_ms=2, failure=failure)

    def ended(self, node):
        return StageEnded(stage=self.stage(node).stage)

    def lost(self, node, reason=Reason.LEASE_EXPIRED, *, keeps_values=False):
        stage = self.stage(node)
        return StageLost(stage=stage.stage, mesh=stage.mesh, incarnation=stage.incarnation, reason=reason, keeps_values=keeps_values)

    def start(self, node, holder=HOLDER):
        return self.take(self.started(node, holder))

    def finish(self, *nodes):
        """Start each node (with its stage if need be) and let it succeed."""
        for node in nodes:
            if self.stage(node).state is StageState.QUEUED:
                self.start(node)
            self.take(self.begun(node), self.done(node))

    def refuse_after(self, longest_ms, *, waited_ms):
        return self.take(WaitsLimited(longest_ms=longest_ms), after_ms=waited_ms)

    def cancel(self, *, also_cleanup=False):
        return self.take(CancelRequested(detail="enough", also_cleanup=also_cleanup))

    # -- what is there

    def node(self, node) -> NodeRecord:
        return self.record.nodes[node]

    def stage(self, node):
        return self.record.stages[self.node(node).stage]

    def attempt(self, node):
        return {"stage": self.node(node).stage, "node": node, "attempt": self.node(node).attempt}

    def states(self, *nodes):
        return [self.node(node).state.value for node in nodes or self.record.nodes]

    def sent(self):
        """Return mesh and nodes of each stage that the last step sent."""
        return [(each.mesh, [task.node for task in each.spec.tasks]) for each in self.decisions if isinstance(each, SendStage)]

    def delivered(self):
        """Return the last step's deliveries: stage, node, and whether a value comes or none will."""
        return [(each.stage, each.node, each.value is not None) for each in self.decisions if isinstance(each, DeliverInput)]

    def cancelled(self):
        return [each.stage for each in self.decisions if isinstance(each, CancelStage)]


def value(node):
    return StoredValue(sha256=hashlib.sha256(node.encode()).hexdigest(), size_bytes=1, encoding=Encoding.JSON)
