"""`ScheduleMesh`: the facade of a mesh for Python programs. Calls wait for their answers; any process may make them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import ray
from pydantic import Field
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from typing_extensions import Self

from mesh.core.labels import check_selector
from mesh.errors import MeshError
from mesh.observability.metric_targets import Targets
from mesh.ray.local.client.agent_calls import AgentCalls
from mesh.ray.local.client.checked_calls import Count, checked
from mesh.ray.local.client.collective_calls import CollectiveCalls
from mesh.ray.local.client.job_calls import JobCalls
from mesh.ray.local.client.mesh_calls import MeshCalls
from mesh.ray.local.client.pool_calls import PoolCalls
from mesh.ray.local.client.supervisor_link import SupervisorLink, require_cluster
from mesh.ray.local.client.task_calls import TaskCalls
from mesh.ray.local.ray_names import supervisor_name
from mesh.ray.local.services.supervisor import Supervisor
from mesh.ray.local.store.journal_file import LINES_MAX
from mesh.ray.local.supervision_errors import MeshStopped, SubmissionError, SupervisorLost
from mesh.ray.local.supervisor.driver import DriverSettings
from mesh.ray.local.supervisor.job_reconciler import JobSettings
from mesh.ray.local.supervisor.observing import ObserverSettings
from mesh.ray.local.supervisor.supervisor_options import SupervisorOptions
from mesh.ray.local.verbs import ActorVerbs, MeshVerbs
from mesh.tasks.settings import SchedulerSettings

NAMESPACE = "schedulemesh"
#: A mesh's name is part of its actors' names and of its folder.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


def delegate(calls: Callable[[ScheduleMesh], C], call: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[ScheduleMesh, P], R]:
    """Return a method of the facade that makes the call, with its signature and docstring."""

    @wraps(call)
    def method(self: ScheduleMesh, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return call(calls(self), *args, **kwargs)

    return method


def _tasks(self: ScheduleMesh) -> TaskCalls:
    return self._tasks


def _pools(self: ScheduleMesh) -> PoolCalls:
    return self._pools


def _agents(self: ScheduleMesh) -> AgentCalls:
    return self._agents


def _collective(self: ScheduleMesh) -> CollectiveCalls:
    return self._collective


def _jobs(self: ScheduleMesh) -> JobCalls:
    return self._jobs


def _mesh(self: ScheduleMesh) -> MeshCalls:
    return self._mesh


@checked(skip=("choose",))  # Called once for each call on an agent.
class ScheduleMesh:
    """A running mesh. Can be pickled; as a context manager it ends the mesh at the end of the block.

    A refused request is a return value (`RequestRefused`); misuse raises an error under `MeshError`.
    """

    def __init__(self, name: str, *, namespace: str = NAMESPACE) -> None:
        self.name = name
        self._link = SupervisorLink(name, namespace)
        self._tasks = TaskCalls(self._link)
        self._pools = PoolCalls(self._link)
        self._agents = AgentCalls(self._link, self._tasks)
        self._collective = CollectiveCalls(self._link)
        self._jobs = JobCalls(self._link)
        self._mesh = MeshCalls(self._link)

    @classmethod
    def start(
        cls,
        name: str = "default",
        *,
        namespace: str = NAMESPACE,
        state_dir: str | Path | None = None,
        settings: SchedulerSettings | None = None,
        node_labels: Mapping[str, str] | None = None,
        standbys_per_node: Count = 1,
        driver: DriverSettings | None = None,
        targets: Targets | None = None,
        tune: bool = True,
        plugins: Mapping[str, str] | None = None,
        metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = None,
        metrics_host: str = "127.0.0.1",
        otlp_endpoint: str | None = None,
        traces_file: str | Path | None = None,
        jobs: JobSettings | None = None,
        journal_lines_max: Annotated[int, Field(ge=1)] = LINES_MAX,
        seed: int = 0,
    ) -> ScheduleMesh:
        """Start a mesh in the cluster that this process is connected to, or find the one of this name.

        Args:
            name: Name of the mesh.
            namespace: Ray namespace of its actors.
            state_dir: Folder on the head node for all state that must survive. None: a folder of this cluster under the user's
                state home; see `status().state_dir`.
            settings: Settings of the scheduler; a running mesh keeps its own.
            node_labels: Labels of this mesh's nodes; None: all nodes.
            standbys_per_node: Number of idle agent processes that each node keeps ready.
            driver: Time limits of work in Ray; its `standbys_per_node` overrides the argument.
            targets: Targets of the metrics.
            tune: Let metrics that miss their targets change settings, within bounds.
            plugins: Your own policies, priorities and preemption rules: by name, `module:attribute` or a `.wasm` file on the head
                node. Plugins announced by installed packages are loaded too.
            metrics_port: Port on the head node that serves the metrics to Prometheus; 0: any free one, see `status()`; None: none.
            metrics_host: Address that the port listens on.
            otlp_endpoint: Address for traces, such as `http://collector:4318`; None: no traces are sent.
            traces_file: File on the head node to which traces are appended, a line of JSON each.
            jobs: Settings of job placement.
            journal_lines_max: Number of lines after which a snapshot replaces the journal.
            seed: Seed of its random choices.
        Raises:
            SubmissionError: An argument is invalid.
            SelectorError: `node_labels` is not a selector.
            RuntimeAdapterError: This process is not connected to a Ray cluster, or the mesh cannot use its folder or its port.
            PluginError: A plugin cannot be loaded.
            JournalError: The content of the folder is damaged.
            StartFailed: Any other error of the supervisor. Nothing of a failed start is left.
        """
        if not _NAME.fullmatch(name):
            raise SubmissionError(
                f"name is {name!r}; give letters, digits, dots, dashes and underscores, at most 64, a letter or digit first"
            )
        check_selector(node_labels or {})
        if otlp_endpoint is not None and not otlp_endpoint.startswith(("http://", "https://")):
            raise SubmissionError(f"otlp_endpoint is {otlp_endpoint!r}; give the address of a collector, like http://collector:4318")
        require_cluster()
        options = SupervisorOptions(
            mesh=name,
            namespace=namespace,
            state_dir=str(Path(state_dir).absolute() if state_dir is not None else _state_home() / f"{name}-{_cluster_id()}"),
            settings=settings or SchedulerSettings(),
            driver=driver or DriverSettings(standbys_per_node=standbys_per_node),
            node_labels=dict(node_labels or {}),
            observing=ObserverSettings(
                targets=targets or Targets(),
                tune=tune,
                metrics_port=metrics_port,
                metrics_host=metrics_host,
                otlp_endpoint=otlp_endpoint,
                traces_file=str(Path(traces_file).absolute()) if traces_file is not None else None,
            ),
            jobs=jobs or JobSettings(),
            plugins={plugin: _absolute(source) for plugin, source in (plugins or {}).items()},
            journal_lines_max=journal_lines_max,
            seed=seed,
        )
        mesh = cls(name, namespace=namespace)
        try:
            _come_up(mesh._link, options)
        except MeshStopped:  # Another client stopped the mesh but has not ended its supervisor yet, and perhaps never will.
            with contextlib.suppress(SupervisorLost):
                mesh.stop()
            _come_up(mesh._link, options)
        except SupervisorLost:
            if not mesh._link.is_gone():
                raise  # The supervisor may come back.
            _come_up(mesh._link, options)  # The supervisor that was found was being ended by another client.
        return mesh

    @classmethod
    def attach(cls, name: str = "default", *, namespace: str = NAMESPACE) -> ScheduleMesh:
        """Attach to a running mesh.

        Raises:
            SupervisorLost: No mesh of this name runs.
        """
        mesh = cls(name, namespace=namespace)
        mesh.status()
        return mesh

    def __repr__(self) -> str:
        namespace = self._link.namespace
        return f"ScheduleMesh({self.name!r})" if namespace == NAMESPACE else f"ScheduleMesh({self.name!r}, namespace={namespace!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.name, self._link.namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self, *, forget: bool = False) -> None:
        """End everything of the mesh in Ray: agents, placement groups, supervisor. Its state on disk stays, unless `forget`.

        Name and folder are free afterwards.

        Raises:
            SupervisorLost: There is no such mesh, or its supervisor does not end.
        """
        actor = self._link.actor()
        try:
            self._link.ask(ActorVerbs.stop, forget=forget)
        except Exception:  # Else Ray would restart it again and again; an interrupted one ends by itself.
            with contextlib.suppress(SupervisorLost):
                self._link.end(actor)
            raise
        self._link.end(actor)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    submit_task = delegate(_tasks, TaskCalls.submit_task)
    submit_task_with_pg_preemption = delegate(_tasks, TaskCalls.submit_task_with_pg_preemption)
    task = delegate(_tasks, TaskCalls.task)
    list_tasks = delegate(_tasks, TaskCalls.list_tasks)
    cancel = delegate(_tasks, TaskCalls.cancel)
    resume = delegate(_tasks, TaskCalls.resume)
    explain = delegate(_tasks, TaskCalls.explain)
    register_state_handlers = delegate(_tasks, TaskCalls.register_state_handlers)
    evaluate_preemption = delegate(_tasks, TaskCalls.evaluate_preemption)
    execute_preemption = delegate(_tasks, TaskCalls.execute_preemption)

    # -- pools and their placement groups ------------------------------------------------------------------------------

    create_pool = delegate(_pools, PoolCalls.create_pool)
    ensure_pool = delegate(_pools, PoolCalls.ensure_pool)
    resize_pool = delegate(_pools, PoolCalls.resize_pool)
    configure_pool = delegate(_pools, PoolCalls.configure_pool)
    delete_pool = delegate(_pools, PoolCalls.delete_pool)
    list_pools = delegate(_pools, PoolCalls.list_pools)
    reserve_agent_slot = delegate(_pools, PoolCalls.reserve_agent_slot)
    commit_agent_slot = delegate(_pools, PoolCalls.commit_agent_slot)
    release_agent_slot = delegate(_pools, PoolCalls.release_agent_slot)
    allocate_pg = delegate(_pools, PoolCalls.allocate_pg)
    release_pg = delegate(_pools, PoolCalls.release_pg)
    list_groups = delegate(_pools, PoolCalls.list_groups)

    # -- agents and nodes ----------------------------------------------------------------------------------------------

    create_agent = delegate(_agents, AgentCalls.create_agent)
    create_agent_with_pg = delegate(_agents, AgentCalls.create_agent_with_pg)
    delete_agent = delegate(_agents, AgentCalls.delete_agent)
    scale_agents = delegate(_agents, AgentCalls.scale_agents)
    restart_agent = delegate(_agents, AgentCalls.restart_agent)
    list_agents = delegate(_agents, AgentCalls.list_agents)
    list_nodes = delegate(_agents, AgentCalls.list_nodes)
    collect_metrics = delegate(_agents, AgentCalls.collect_metrics)

    # -- calls on many agents ------------------------------------------------------------------------------------------

    group = delegate(_collective, CollectiveCalls.group)
    all = delegate(_collective, CollectiveCalls.all)
    choose = delegate(_collective, CollectiveCalls.choose)
    refresh_groups = delegate(_collective, CollectiveCalls.refresh_groups)
    shard = delegate(_collective, CollectiveCalls.shard)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    submit_job = delegate(_jobs, JobCalls.submit_job)
    job = delegate(_jobs, JobCalls.job)
    list_jobs = delegate(_jobs, JobCalls.list_jobs)

    # -- the mesh as a whole -------------------------------------------------------------------------------------------

    status = delegate(_mesh, MeshCalls.status)
    change_settings = delegate(_mesh, MeshCalls.change_settings)
    configure_label = delegate(_mesh, MeshCalls.configure_label)
    metrics = delegate(_mesh, MeshCalls.metrics)
    metrics_history = delegate(_mesh, MeshCalls.metrics_history)
    chart = delegate(_mesh, MeshCalls.chart)
    panel = delegate(_mesh, MeshCalls.panel)
    events = delegate(_mesh, MeshCalls.events)
    audit = delegate(_mesh, MeshCalls.audit)


@contextlib.contextmanager
def running_mesh(name: str = "default", **options: Any) -> Iterator[ScheduleMesh]:
    """Run a mesh for the length of a block; its folder is removed with it."""
    mesh = ScheduleMesh.start(name, **options)
    try:
        yield mesh
    finally:
        mesh.stop(forget=True)


def _come_up(link: SupervisorLink, options: SupervisorOptions) -> None:
    """Start the supervisor if there is none, and wait until it is ready."""
    where = {"name": supervisor_name(options.mesh), "namespace": options.namespace, "lifetime": "detached", "get_if_exists": True}
    strategy = NodeAffinitySchedulingStrategy(_head_node(), soft=False)
    actor = Supervisor.options(**where, scheduling_strategy=strategy).remote(options)
    link.know(actor)
    try:
        link.ask(MeshVerbs.status)  # Answered when the supervisor is ready.
    except SupervisorLost:
        raise
    except MeshError:
        with contextlib.suppress(SupervisorLost):  # The error of the start is the one to raise.
            link.end(actor)
        raise


def _again(name: str, namespace: str) -> ScheduleMesh:
    return ScheduleMesh(name, namespace=namespace)


def _absolute(source: str) -> str:
    """Make a file path absolute for this process; leave `module:attribute` unchanged."""
    return str(Path(source).absolute()) if source.endswith((".wasm", ".wat")) else source


def _state_home() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "schedulemesh" / "meshes"


def _cluster_id() -> str:
    """Return the id of the cluster, so that a new cluster does not start with tasks of the last one."""
    return _head_node()[:12]


def _head_node() -> str:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # untyped in Ray
    alive = [node for node in nodes if node["Alive"]]
    head = next((node for node in alive if "node:__internal_head__" in node["Resources"]), alive[0])
    return str(head["NodeID"])
