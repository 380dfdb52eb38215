"""Stage as a mesh gets it: its tasks, and where their arguments come from.

Everything here is JSON on the wire. Functions and arguments that JSON cannot carry are named by the SHA-256 of their
pickled bytes; only a runner of the tenant reads those bytes.

An argument form is a JSON value in which an object with one `$` key stands for something else:
`{"$ref": node, "path": [...]}` another task's value (or a part of it), `{"$blob": sha256}` a pickled value,
`{"$uri": url}` the address itself, `{"$tuple": [...]}` a tuple of forms, `{"$$x": ...}` an object whose key is `$x`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mesh.core.ids import NodeId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import Gang
from mesh.core.values import StoredValue
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy

#: Bound of a priority, and of a negative one.
PRIORITY_MAX = 1_000_000
#: A JSON value, with the `$` objects above.
ArgumentForm = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """Node of a graph as the mesh runs it."""

    node: NodeId
    attempt: int  #: From 1; a report with another attempt is out of date.
    function: str  #: `call:module:qualname` or `blob:<sha256>`.
    args: tuple[ArgumentForm, ...] = ()
    kwargs: dict[str, ArgumentForm] = field(default_factory=dict)
    inputs: tuple[NodeId, ...] = ()  #: Nodes whose values the arguments read, each once, in order of first use.
    after: tuple[NodeId, ...] = ()  #: Nodes that must succeed first; their values are not passed.
    resources: ResourceSet = NOTHING
    ray_options: dict[str, Any] = field(default_factory=dict)  #: Passed to Ray unchanged: `max_retries`, `label_selector`, …
    export: bool = False  #: Whether the value leaves the mesh: another mesh or the user reads it.
    checkpoint: StoredValue | None = None  #: The last one that an earlier attempt saved.
    gang: Gang | None = None  #: Its placement group, for what its code starts: the task itself takes nothing. `resources` is the sum.

    def blobs(self) -> Iterator[str]:
        """Yield the hashes of the pickled bytes that the task names: its function, arguments that JSON cannot carry, its checkpoint."""
        if self.function.startswith("blob:"):
            yield self.function.removeprefix("blob:")
        for form in (*self.args, *self.kwargs.values()):
            yield from blobs_of(form)
        if self.checkpoint is not None and self.checkpoint.uri is None:
            yield self.checkpoint.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """Part of a run that one mesh gets as one workload. Not a barrier: each task starts when its own inputs are there."""

    stage: StageId
    run: RunId
    tenant: TenantPath
    tasks: tuple[TaskSpec, ...]  #: In topological order.
    slot: ResourceSet  #: Covers every single task; quota and room are granted in slots.
    width: int  #: How many tasks could run at once: the most slots that are useful.
    priority: int = 0  #: Higher goes first.
    runtime_env: dict[str, Any] = field(default_factory=dict)  #: Ray's runtime environment of the tenant's runner.
    created_ms: int = 0  #: When its run was submitted, since the epoch. A stage that runs again after a preemption keeps it.
    preemption: PreemptionPolicy = NEVER_PREEMPTS  #: Whether it preempts less urgent stages of its tenant.
    deadline_ms: int | None = None  #: Time from its claim until it is withdrawn from the mesh; None: no limit.

    @property
    def gang(self) -> Gang | None:
        """Return the gang that each slot is; tasks with different gangs share no stage."""
        return self.tasks[0].gang if self.tasks else None

    def blobs(self) -> frozenset[str]:
        """Return the hashes of all pickled bytes that the stage's tasks name."""
        return frozenset(sha256 for task in self.tasks for sha256 in task.blobs())

    def external_inputs(self) -> frozenset[NodeId]:
        """Return the nodes outside the stage that its tasks read or wait for."""
        inside = {task.node for task in self.tasks}
        return frozenset(node for task in self.tasks for node in (*task.inputs, *task.after) if node not in inside)


def blobs_of(form: ArgumentForm) -> Iterator[str]:
    """Return the hashes named by `{"$blob": …}` objects anywhere in an argument form."""
    pending = [form]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if len(part) == 1 and isinstance(part.get("$blob"), str):
                yield part["$blob"]
            else:
                pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)
