"""The stage runner: the actor that owns a tenant's tasks and values on a mesh.

It is started without a tenant and waits, its imports done, so that a first stage waits for no process. Orders come one
after the other; news are waited for beside them. When it dies, Ray ends its tasks and drops its values: the mesh reports
its stages lost.

It outlives the process that has ordered it, and its tasks with it: a new process of the mesh calls the roll and goes on. Nobody's
for ever, though: from its first moment on the watchdog of its node ends it when the mesh's leases are not proved any more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from mesh.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.runtime.engine import Delivered, StageEngine
from mesh.runtime.outbox import Batch, Outbox
from mesh.runtime.watch_folder import register
from mesh.stages import StageSpec
from mesh.values import StoredValue
from mesh.wire import decode

#: A stored value as JSON, and its bytes when they are small; (None, None): it will not come.
OnTheWire = tuple[bytes | None, bytes | None]


@dataclass(slots=True)
class HeldStage:
    """A stage that a runner was given, until its end is confirmed."""

    stage: StageId
    note: bytes  #: Of whoever gave it.
    group: PlacementGroup | None  #: Where its tasks run; None: nowhere, or they are over.
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a runner is, and what it has."""

    tenant: TenantPath  #: Empty while it is nobody's.
    environment: str  #: Digest of its runtime environment, empty for none.
    holder: int  #: The token that names it.
    stages: tuple[HeldStage, ...]
    runs: Mapping[RunId, StageId]  #: That it may have values of, each with a stage that it was given.


class Runner:
    """One per (mesh, tenant, runtime environment) once bound.

    Args:
        mesh: The `detached_name` of whose watchdog ends it, bound or not; None: it is nobody's until it is bound.
        environment: Digest of the runtime environment that it was started with.
    """

    def __init__(self, mesh: MeshId | None = None, environment: str = "") -> None:
        if mesh is not None:
            register(mesh)
        # A failed task's value is never read here; that is no oversight which Ray has to print.
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
        self._tenant = TenantPath("")
        self._environment = environment
        self._holder = 0
        self._held: dict[StageId, HeldStage] = {}
        self._runs: dict[RunId, StageId] = {}
        self._outbox = Outbox()
        self._engine = StageEngine(ray.get_runtime_context().current_actor, self._outbox)

    def bind(self, tenant: TenantPath, storage_url: str, inline_limit_bytes: int, mesh: MeshId, holder: int = 0) -> None:
        """Give the runner to a tenant of a mesh, for good. `holder`: the token that names it from now on."""
        register(mesh)  # When nobody proves the mesh's leases any more, the runner has to go with its tasks.
        self._tenant, self._holder = tenant, holder
        self._engine.bind(mesh, storage_url, inline_limit_bytes)

    def start(
        self,
        spec_json: bytes,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, OnTheWire],
        group: PlacementGroup | None = None,
        held: Sequence[NodeId] = (),
        note: bytes = b"",
    ) -> None:
        """Run a stage.

        Args:
            spec_json: A `StageSpec`.
            blobs: The pickled code and arguments that the stage names, by SHA-256.
            inputs: Values from outside that are there already.
            group: Where its tasks run.
            held: Values from outside that this runner is believed to hold; one that it does not hold is reported `InputLost`.
            note: For whoever calls the roll.

        Raises:
            RuntimeAdapterError: Not a stage.
            ValueError: The stage is another tenant's.
        """
        spec: StageSpec = decode(StageSpec, spec_json)
        if spec.tenant != self._tenant:
            raise ValueError(f"stage {spec.stage} is of tenant {spec.tenant}, this runner is of {self._tenant or 'nobody yet'}")
        self._held[spec.stage] = HeldStage(spec.stage, note, group)
        self._runs.setdefault(spec.run, spec.stage)
        delivered = {node: _from_the_wire(stored, data) for node, (stored, data) in inputs.items()}
        self._engine.start(spec, blobs, delivered, group, frozenset(held))

    def deliver(self, stage: StageId, node: NodeId, stored_json: bytes | None, data: bytes | None) -> None:
        """Give a stage a value from outside; None: it will not come. Harmless when the stage is over."""
        self._engine.deliver(stage, node, _from_the_wire(stored_json, data))

    def cancel(self, stage: StageId, grace_s: float) -> None:
        """Stop a stage: its tasks are interrupted, and killed when they still run after the grace. Its `StageEnded` follows."""
        if stage in self._held:
            self._held[stage].is_cancelled = True
        self._engine.cancel(stage, grace_s)

    def lose_group(self, stage: StageId) -> None:
        """The stage's placement group is gone: what ran in it is reported lost, and the stage ends. Harmless when it is over."""
        self._engine.lose_group(stage)

    def forget(self, run: RunId) -> None:
        """Drop all values of a run."""
        self._runs.pop(run, None)
        self._engine.forget(run)

    def announce(self, stage: StageId, node: NodeId, attempt: int, started_ms: int) -> None:
        """From a worker: the task runs."""
        self._engine.announce(stage, node, attempt, started_ms)

    @ray.method(concurrency_group="news")
    def next_batch(self, wait_s: float, listener: int = 0, heard: Mapping[StageId, int] | None = None) -> list[Batch]:
        """What has happened since the last call, by stage; waits up to `wait_s` seconds for the first of it.

        Args:
            wait_s: Seconds.
            listener: See `Outbox.take`.
            heard: Batches that have been passed on; all others are kept for the next listener.
        """
        for stage in self._outbox.confirm(heard or {}):
            self._held.pop(stage, None)
        return self._outbox.take(wait_s, listener)

    def inventory(self) -> Inventory:
        """What it is, and what it has."""
        stages = tuple(self._held.values())
        for held in stages:
            if self._outbox.has_ended(held.stage):
                held.group = None  # It may be another stage's by now.
        return Inventory(tenant=self._tenant, environment=self._environment, holder=self._holder, stages=stages, runs=dict(self._runs))


#: The actor class. Typed as Any: Ray's types know neither concurrency groups nor what an actor's handle answers.
StageRunner: Any = ray.remote(num_cpus=0, max_restarts=0, concurrency_groups={"news": 2})(Runner)  # type: ignore[call-overload]  # see above


def _from_the_wire(stored_json: bytes | None, data: bytes | None) -> Delivered:
    return None if stored_json is None else (decode(StoredValue, stored_json), data)
