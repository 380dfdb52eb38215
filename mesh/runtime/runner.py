"""The stage runner: the actor that owns a tenant's tasks and values on a mesh.

It is started without a tenant and waits, its imports done, so that a first stage waits for no process. Orders come one
after the other; news are waited for beside them. When it dies, Ray ends its tasks and drops its values: the mesh reports
its stages lost.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from mesh.ids import MeshId, NodeId, RunId, StageId
from mesh.runtime.engine import Delivered, StageEngine
from mesh.runtime.outbox import Batch, Outbox
from mesh.runtime.watch_folder import register
from mesh.stages import StageSpec
from mesh.values import StoredValue
from mesh.wire import decode

#: A stored value as JSON, and its bytes when they are small; (None, None): it will not come.
OnTheWire = tuple[bytes | None, bytes | None]


class Runner:
    """One per (mesh, tenant, runtime environment) once bound."""

    def __init__(self) -> None:
        # A failed task's value is never read here; that is no oversight which Ray has to print.
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
        self._tenant = ""
        self._outbox = Outbox()
        self._engine = StageEngine(ray.get_runtime_context().current_actor, self._outbox)

    def bind(self, tenant: str, storage_url: str, inline_limit_bytes: int, mesh: MeshId) -> None:
        """Give the runner to a tenant of a mesh, for good."""
        register(mesh)  # When nobody proves the mesh's leases any more, the runner has to go with its tasks.
        self._tenant = tenant
        self._engine.bind(mesh, storage_url, inline_limit_bytes)

    def start(
        self,
        spec_json: bytes,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, OnTheWire],
        group: PlacementGroup | None = None,
        held: Sequence[NodeId] = (),
    ) -> None:
        """Run a stage.

        Args:
            spec_json: A `StageSpec`.
            blobs: The pickled code and arguments that the stage names, by SHA-256.
            inputs: Values from outside that are there already.
            group: Where its tasks run.
            held: Values from outside that this runner is believed to hold; one that it does not hold is reported `InputLost`.

        Raises:
            RuntimeDoorError: Not a stage.
            ValueError: The stage is another tenant's.
        """
        spec: StageSpec = decode(StageSpec, spec_json)
        if spec.tenant != self._tenant:
            raise ValueError(f"stage {spec.stage} is of tenant {spec.tenant}, this runner is of {self._tenant or 'nobody yet'}")
        delivered = {node: _from_the_wire(stored, data) for node, (stored, data) in inputs.items()}
        self._engine.start(spec, blobs, delivered, group, frozenset(held))

    def deliver(self, stage: StageId, node: NodeId, stored_json: bytes | None, data: bytes | None) -> None:
        """Give a stage a value from outside; None: it will not come. Harmless when the stage is over."""
        self._engine.deliver(stage, node, _from_the_wire(stored_json, data))

    def cancel(self, stage: StageId, grace_s: float) -> None:
        """Stop a stage: its tasks are interrupted, and killed when they still run after the grace. Its `StageEnded` follows."""
        self._engine.cancel(stage, grace_s)

    def forget(self, run: RunId) -> None:
        """Drop all values of a run."""
        self._engine.forget(run)

    def announce(self, stage: StageId, node: NodeId, attempt: int, started_ms: int) -> None:
        """From a worker: the task runs."""
        self._engine.announce(stage, node, attempt, started_ms)

    @ray.method(concurrency_group="news")
    def next_batch(self, wait_s: float) -> list[Batch]:
        """What has happened since the last call, by stage; waits up to `wait_s` seconds for the first of it."""
        return self._outbox.take(wait_s)


#: The actor class. Typed as Any: Ray's types know neither concurrency groups nor what an actor's handle answers.
StageRunner: Any = ray.remote(num_cpus=0, max_restarts=0, concurrency_groups={"news": 2})(Runner)  # type: ignore[call-overload]  # see above


def _from_the_wire(stored_json: bytes | None, data: bytes | None) -> Delivered:
    return None if stored_json is None else (decode(StoredValue, stored_json), data)
