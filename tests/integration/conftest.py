"""A runner on the shared cluster of one node, with a record of its events."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import ray
from http_federation import shared_federation
from single_ends import single

from mesh.core.ids import NodeId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.wire import decode, encode
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.ray.placement import SlotGroup
from mesh.ray.stage_runner.runner import StageRunner
from mesh.stages.messages import RUNNER_MESSAGE, NodeOutput, StageEnded, StageMessage, StageResized, StageWaiting
from mesh.stages.spec import StageSpec, TaskSpec
from serve_apps.standalone.stack import Stack

#: Longer than a runner, a group's keeper and a task take to start one after the other on a busy machine.
EVENT_S_MAX = 120.0
TENANT = TenantPath("acme/tests")
ONE_CPU = ResourceSet.of({"cpu": 1})


@dataclass
class RunnerLog:
    """Messages of a runner, stage by stage."""

    actor: Any
    storage: Path
    tenant: TenantPath = TENANT
    messages: dict[StageId, list[StageMessage]] = field(default_factory=dict)
    output: dict[StageId, list[NodeOutput]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    code: dict[str, bytes] = field(default_factory=dict)
    stages: int = 0
    nodes: dict[StageId, tuple[NodeId, ...]] = field(default_factory=dict)  #: Nodes of the tasks of each stage.

    def function(self, function: Callable[..., Any]) -> str:
        """Return the key of a pickled function."""
        return f"blob:{self.argument(function)['$blob']}"

    def argument(self, value: Any) -> dict[str, str]:
        """Return the form of a pickled argument."""
        data = cloudpickle.dumps(value, protocol=5)
        sha256 = hashlib.sha256(data).hexdigest()
        self.code[sha256] = data
        return {"$blob": sha256}

    def start(self, *tasks: TaskSpec, run: str, group: Any = None, inputs: Any = None, cancelled: bool = False) -> StageId:
        """Start a stage. `cancelled`: the order to cancel it follows at once."""
        self.stages += 1
        stage = StageId(f"{run}.{self.stages}")
        spec = StageSpec(stage=stage, run=RunId(run), tenant=self.tenant, tasks=tasks, slot=ONE_CPU, width=2)
        self.nodes[stage] = tuple(task.node for task in tasks)
        blobs = {sha256: data for sha256, data in self.code.items() if sha256 in spec.blobs()}
        groups = () if group is None else (SlotGroup(group, slots=1),)
        calls = [self.actor.start.remote(encode(spec), blobs, inputs or {}, groups)]
        if cancelled:
            calls.append(self.actor.cancel.remote(stage, 0.0))
        ray.get(calls)
        return stage

    def until(self, stage: StageId, wanted: Callable[[StageMessage], bool]) -> StageMessage:
        """Return the first matching message of the stage; fail when there is none in time."""
        deadline = time.monotonic() + EVENT_S_MAX
        while time.monotonic() < deadline:
            found = next((message for message in self.messages.get(stage, []) if wanted(message)), None)
            if found is not None:
                return found
            self.take(1.0)
        raise AssertionError(f"it did not come; of {stage} came: {self.messages.get(stage)}")

    def take(self, wait_s: float) -> None:
        """Take what the runner reports within this time."""
        for stage, _, messages, blobs, _ in ray.get(self.actor.next_batch.remote(wait_s)):
            heard = [decode(RUNNER_MESSAGE, message) for message in messages]
            output = [message for message in heard if isinstance(message, NodeOutput)]
            if output:
                self.output.setdefault(stage, []).extend(output)
            others = (message for message in heard if not isinstance(message, NodeOutput))
            self.messages.setdefault(stage, []).extend(single(others, self.nodes[stage]))
            self.blobs.update(blobs)

    def end(self, stage: StageId) -> dict[NodeId, StageMessage]:
        """Wait for the end of the stage, and return the last message of each node."""
        self.until(stage, lambda message: isinstance(message, StageEnded))
        messages = self.messages[stage]
        assert isinstance(messages[-1], StageEnded), "something came after the end"
        return {message.node: message for message in messages[:-1] if not isinstance(message, StageWaiting | StageResized)}


@pytest.fixture(scope="module")
def http_stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A running federation with meshes `east`, over HTTP, `west`, and `lab` on a cluster of its own."""
    return shared_federation(tmp_path_factory).stack


@pytest.fixture(scope="module")
def bound_runner(ray_driver: OwnCluster, tmp_path_factory: pytest.TempPathFactory) -> RunnerLog:
    return _log_of(StageRunner.remote(), tmp_path_factory.mktemp("storage"))


def _log_of(actor: Any, storage: Path) -> RunnerLog:
    runner_log = RunnerLog(actor, storage)
    ray.get(actor.bind.remote(runner_log.tenant, storage.as_uri(), 64 * 1024, "here"))
    return runner_log


@pytest.fixture
def runner_log_on_slow_ray(ray_driver: OwnCluster, tmp_path: Path) -> Iterator[RunnerLog]:
    """Yield the log of a runner in which Ray's own thread is late, as on a busy machine."""
    actor = StageRunner.options(runtime_env={"env_vars": {"RAY_testing_asio_delay_us": "*=20000:20000"}}).remote()
    yield _log_of(actor, tmp_path)
    ray.kill(actor)


@pytest.fixture
def runner_log_with_small_outbox(ray_driver: OwnCluster, tmp_path: Path) -> Iterator[RunnerLog]:
    """Yield the log of a runner that keeps 100 kB of unconfirmed reports."""
    actor = StageRunner.remote(unconfirmed_max=100_000)
    yield _log_of(actor, tmp_path)
    ray.kill(actor)


@pytest.fixture
def runner_log(bound_runner: RunnerLog, request: pytest.FixtureRequest) -> Iterator[RunnerLog]:
    yield bound_runner
    bound_runner.messages.clear()
    bound_runner.output.clear()
    bound_runner.blobs.clear()


def task_spec(node: str, function: str, *args: Any, inputs: tuple[str, ...] = (), after: tuple[str, ...] = (), **options: Any) -> TaskSpec:
    """Return a task of one CPU, first attempt."""
    values: dict[str, Any] = {"attempt": 1, "resources": ONE_CPU, **options}
    return TaskSpec(
        node=NodeId(node), function=function, args=args, inputs=tuple(map(NodeId, inputs)), after=tuple(map(NodeId, after)), **values
    )


@pytest.fixture
def task() -> Callable[..., TaskSpec]:
    return task_spec
