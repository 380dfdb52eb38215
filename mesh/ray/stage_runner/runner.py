"""The stage runner: the actor that owns a tenant's tasks and values on a mesh.

A runner starts without a tenant and waits with its imports done, so a first stage waits for no process. It handles orders in sequence;
calls that wait for messages run beside them. When a runner dies, Ray ends its tasks and drops its values, and the mesh reports its
stages lost.

A runner and its tasks outlive the process that started it: a new process of the mesh asks for its `inventory` and continues. From the
start the watchdog of its node ends the runner when the mesh's leases are no longer renewed.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ray

from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.core.values import StoredValue
from mesh.core.wire import decode
from mesh.ray.stage_runner.engine import Delivered, StageEngine
from mesh.ray.stage_runner.held_groups import Groups, HeldGroups
from mesh.ray.stage_runner.outbox import BYTES_MAX, Batch, Outbox
from mesh.ray.worker.present_task import Saved, Saving
from mesh.ray.worker.watch_folder import register, watch_folder
from mesh.stages.hosting import HeldStage
from mesh.stages.messages import NodeOutput
from mesh.stages.spec import StageSpec

#: A stored value as JSON, and its bytes when they are small; (None, None): it will not come.
OnTheWire = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Identity and contents of a runner, for the recovery by a new process."""

    tenant: TenantPath  #: Empty until the runner is bound.
    environment: str  #: Digest of its runtime environment, empty for none.
    holder: int  #: The runner's token.
    stages: tuple[HeldStage, ...]
    groups: Mapping[StageId, Groups]  #: Placement groups of these stages; none for a stage whose tasks have ended.
    runs: Mapping[RunId, StageId]  #: Runs whose values it may hold, each with a stage that it got.
    slots: Mapping[StageId, ResourceSet] = field(default_factory=dict)  #: The slot of each of these stages.
    gangs: Mapping[StageId, Gang | None] = field(default_factory=dict)  #: The gang that each slot of these stages is.


class Runner:
    """Runner of one (mesh, tenant, runtime environment) once bound.

    Args:
        mesh: `detached_name` of the mesh whose watchdog ends the runner, bound or not; None: no mesh until the runner is bound.
        environment: Digest of the runtime environment that it was started with.
        unconfirmed_max: Bytes of unconfirmed reports from which on no further task begins.
    """

    def __init__(self, mesh: MeshId | None = None, environment: str = "", unconfirmed_max: int = BYTES_MAX) -> None:
        if mesh is not None:
            register(mesh)
        gc.freeze()  # Ray's modules are hundreds of thousands of objects, which each full collection would look at.
        # The runner never reads a failed task's value; Ray must not print that as an oversight.
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
        self._tenant = TenantPath("")
        self._environment = environment
        self._holder = 0
        self._notes: dict[StageId, bytes] = {}  #: Notes of the stages whose end is not confirmed.
        self._slots: dict[StageId, ResourceSet] = {}  #: The slot of each of these stages.
        self._gangs: dict[StageId, Gang | None] = {}  #: The gang that each slot of these stages is.
        self._groups = HeldGroups()  #: Placement groups of these stages.
        self._cancelled: set[StageId] = set()  #: Cancelled ones of these stages.
        self._runs: dict[RunId, StageId] = {}
        self._outbox = Outbox(unconfirmed_max)
        self._engine = StageEngine(ray.get_runtime_context().current_actor, self._outbox, self._groups.free)

    def bind(self, tenant: TenantPath, storage_url: str, inline_limit_bytes: int, mesh: MeshId, holder: int = 0) -> None:
        """Bind the runner to a tenant of a mesh, for good. `holder`: the runner's token, unless it inherits another one."""
        register(mesh)  # When the mesh's leases are no longer renewed, the runner must end with its tasks.
        self._tenant, self._holder = tenant, holder
        self._engine.bind(mesh, storage_url, inline_limit_bytes, watch_folder(mesh))

    def inherit(self, values: dict[RunId, dict[NodeId, OnTheWire]], runs: dict[RunId, StageId], holder: int) -> None:
        """Take over values of finished nodes of a dead runner; (None, None): the value is gone.

        The token comes in the same call. A runner with the token and without the values would wait for ever for inputs that the root
        believes it has.

        Args:
            runs: Runs of the dead runner, each with the first stage that it got, for the next process of the mesh.
            holder: Token of the dead runner, which is this runner's from now on.
        """
        self._holder = holder
        self._runs = {**runs, **self._runs}
        for run, its_values in values.items():
            self._engine.inherit(run, {node: _from_the_wire(stored, data) for node, (stored, data) in its_values.items()})

    def start(
        self,
        spec_json: bytes,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, OnTheWire],
        groups: Groups = (),
        note: bytes = b"",
    ) -> None:
        """Run a stage.

        Args:
            spec_json: A `StageSpec`.
            blobs: The pickled code and arguments that the stage names, by SHA-256.
            inputs: Values from outside that are available already.
            groups: Placement groups of its slots; none: its tasks run anywhere in the cluster.
            note: Opaque bytes, returned by `inventory`.

        Raises:
            RuntimeAdapterError: The spec is not a stage.
            ValueError: The stage is another tenant's.
        """
        spec: StageSpec = decode(StageSpec, spec_json)
        if spec.tenant != self._tenant:
            raise ValueError(
                f"stage {spec.stage} belongs to tenant {spec.tenant}, but this runner is bound to {self._tenant or 'no tenant yet'}"
            )
        self._notes[spec.stage], self._slots[spec.stage], self._gangs[spec.stage] = note, spec.slot, spec.gang
        self._groups.drop(spec.stage)
        self._groups.add(spec.stage, groups)
        self._cancelled.discard(spec.stage)
        self._runs.setdefault(spec.run, spec.stage)
        delivered = {node: _from_the_wire(stored, data) for node, (stored, data) in inputs.items()}
        self._engine.start(spec, blobs, delivered, groups)

    def grow(self, stage: StageId, groups: Groups, note: bytes, missing: int = 0) -> None:
        """Give a stage more slots; they get tasks once Ray has placed their groups. Harmless when the stage has ended.

        Args:
            groups: Placement groups of the new slots.
            note: Replaces the earlier one.
            missing: Slots for which there is no group: they count as given back.
        """
        if stage in self._notes:
            self._notes[stage] = note
            self._groups.add(stage, groups)
            self._engine.grow(stage, groups, missing)

    def shrink(self, stage: StageId, slots: int, grace_s: float | None) -> None:
        """Retire slots of a stage until `slots` are left; `take_free` returns their groups once their tasks have ended.

        Args:
            grace_s: Interrupt these tasks, and kill them after the grace period, in seconds; None: wait for their ends.
        """
        self._engine.shrink(stage, slots, grace_s)

    def take_free(self, stage: StageId) -> Groups:
        """Return the groups of retired slots that the stage uses no more; the caller gives them back."""
        return self._groups.take_free(stage)

    def deliver(self, stage: StageId, node: NodeId, stored_json: bytes | None, data: bytes | None) -> None:
        """Deliver a value from outside to a stage; None: it will not come. Harmless when the stage has ended."""
        self._engine.deliver(stage, node, _from_the_wire(stored_json, data))

    def cancel(self, stage: StageId, grace_s: float) -> None:
        """Stop a stage: interrupt its tasks, and kill those that still run after the grace period. Its `StageEnded` follows."""
        if stage in self._notes:
            self._cancelled.add(stage)
        self._engine.cancel(stage, grace_s)

    def evict(self, stage: StageId, node: NodeId, why: str) -> None:
        """Kill a running task whose code holds resources outside the stage's placement group; the node fails with OUTSIDE_GROUP.

        Args:
            why: Message of the failure.
        """
        self._engine.evict(stage, node, why)

    def lose_group(self, stage: StageId) -> None:
        """Report the stage's running tasks as lost, and end it: its placement group is gone. Harmless when the stage has ended."""
        self._engine.lose_group(stage)

    def forget(self, run: RunId) -> None:
        self._runs.pop(run, None)
        self._engine.forget(run)

    def announce(self, stage: StageId, node: NodeId, attempt: int, started_ms: int) -> None:
        """Record that a task runs; called by its worker."""
        self._engine.announce(stage, node, attempt, started_ms)

    def stalled(self, report: bytes) -> None:
        """Take a report on a chunk that goes on; called by its worker."""
        self._engine.stalled(report)

    def pulse(self, stage: StageId, node: NodeId, saving: Saving) -> bool:
        """Record what is new of a running task, and return whether it is asked to stop; called by its worker."""
        self._engine.save(stage, node, saving)
        return stage in self._cancelled

    def hand_out(self, stage: StageId, source: NodeId, attempt: int, part: NodeId, digest: bytes | None, elements: bytes) -> bool:
        """Take elements of a list that grows, for the part that reads them; called by the worker that makes them.

        Args:
            source: The task that makes the list.
            digest: See `mesh.ray.worker.streaming.digest_of`.
            elements: A `Piece` as a pickle. Empty: the worker only asks.

        Returns:
            Whether more may be handed out now.
        """
        if elements:
            self._engine.hand_out(stage, source, attempt, part, digest, elements)
        return self._engine.wants_elements(stage)

    def output(self, lines: list[NodeOutput]) -> None:
        """Take lines that nodes have printed; called by their worker."""
        self._engine.take_output(lines)

    def last_checkpoint(self, stage: StageId, node: NodeId) -> Saved | None:
        """Return the newest checkpoint of the node; called by its worker."""
        return self._engine.last_checkpoint(stage, node)

    @ray.method(concurrency_group="news")
    def next_batch(self, wait_s: float, listener: int = 0, heard: Mapping[StageId, int] | None = None) -> list[Batch]:
        """Return the messages since the last call, by stage; wait up to `wait_s` seconds for the first.

        Args:
            wait_s: Seconds.
            listener: See `Outbox.take`.
            heard: Batches that have been passed on; all others are kept for the next listener.
        """
        for stage in self._outbox.confirm(heard or {}):
            self._notes.pop(stage, None)
            self._slots.pop(stage, None)
            self._gangs.pop(stage, None)
            self._groups.drop(stage)
            self._cancelled.discard(stage)
        return self._outbox.take(wait_s, listener)

    def inventory(self) -> Inventory:
        """Return the runner's identity and contents."""
        for stage in filter(self._outbox.has_ended, tuple(self._notes)):
            self._groups.drop(stage)  # Another stage may have the group by now.
        stages = (
            HeldStage(stage=stage, note=note, holder=self._holder, is_cancelled=stage in self._cancelled, left=self._engine.left(stage))
            for stage, note in tuple(self._notes.items())
        )
        return Inventory(
            tenant=self._tenant,
            environment=self._environment,
            holder=self._holder,
            stages=tuple(stages),
            groups=self._groups.used(),
            runs=dict(self._runs),
            slots=dict(self._slots),
            gangs=dict(self._gangs),
        )


#: The actor class, typed as Any: Ray's types know neither concurrency groups nor the results of calls on an actor's handle.
StageRunner: Any = ray.remote(num_cpus=0, max_restarts=0, concurrency_groups={"news": 2})(Runner)  # type: ignore[call-overload]  # see above


def _from_the_wire(stored_json: bytes | None, data: bytes | None) -> Delivered:
    return None if stored_json is None else (decode(StoredValue, stored_json), data)
