"""`ScheduleMesh`: the face of a mesh towards Python programs (seed §4, §5). Calls wait for their answers; any process may make them."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import ray
import yaml
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.panel import Panel
from typing_extensions import Self

from mesh.errors import AmountError, MeshError
from mesh.ids import JobId, LabelName, NodeName, PoolName, TaskId, TenantPath
from mesh.jobs.form import read_job
from mesh.jobs.spec import LEADER, JobSpec
from mesh.jobs.views import JobView
from mesh.pools import PoolSpec
from mesh.resources import NOTHING, ResourceSet
from mesh.runtime.supervision.actor_group import ActorGroup
from mesh.runtime.supervision.agent_orders import METRICS_PERIOD_MS, AgentStatus, HostOrder
from mesh.runtime.supervision.answers import (
    AgentSeen,
    Audit,
    CandidateStatus,
    GroupGiven,
    GroupStatus,
    MeshNews,
    MeshStatus,
    NodeStatus,
    PoolStatus,
    Refused,
    SlotReserved,
    TaskStatus,
)
from mesh.runtime.supervision.charts import draw_page, figures_panel
from mesh.runtime.supervision.driver import DriverSettings
from mesh.runtime.supervision.job_desk import JobSettings
from mesh.runtime.supervision.job_handle import JobHandle
from mesh.runtime.supervision.journal_file import LINES_MAX
from mesh.runtime.supervision.observing import ObserverSettings
from mesh.runtime.supervision.pickled_code import pickled_arguments, pickled_class, pickled_handlers
from mesh.runtime.supervision.ray_names import supervisor_name
from mesh.runtime.supervision.supervision_errors import PoolUnknown, SubmissionError, SupervisorLost
from mesh.runtime.supervision.supervisor import Supervisor, SupervisorOptions
from mesh.runtime.supervision.supervisor_link import SupervisorLink, require_cluster
from mesh.runtime.supervision.task_handle import TaskHandle
from mesh.runtime.supervision.works import JobWork
from mesh.saved_state import Preserver, Restorer, StateHandlers
from mesh.saved_state import register_state_handlers as state_handlers_of
from mesh.scheduling.events import LabelConfigured
from mesh.scheduling.figures import Figures, Targets
from mesh.scheduling.settings import SchedulerSettings
from mesh.scheduling.shapes import GroupPoolSpec, GroupShape
from mesh.scheduling.tasks import DEFAULT_PRIORITY, TaskRequest, TaskState, Weights

#: What a user writes for resources: `{"cpu": 1, "memory": "1GiB"}`, or the value itself.
Amounts = Mapping[str, object] | ResourceSet
NAMESPACE = "schedulemesh"


class ScheduleMesh:
    """A running mesh. Can be pickled; as a context manager it ends the mesh at the end of the block.

    Everything refused is an answer (`Refused`), everything misused is an error under `MeshError`.
    """

    def __init__(self, name: str, *, namespace: str = NAMESPACE) -> None:
        self.name = name
        self._link = SupervisorLink(name, namespace)
        self._handlers: StateHandlers | None = None
        self._groups: dict[str | None, ActorGroup] = {}

    # -- the mesh ------------------------------------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        name: str = "default",
        *,
        namespace: str = NAMESPACE,
        state_dir: str | Path | None = None,
        settings: SchedulerSettings | None = None,
        node_labels: Mapping[str, str] | None = None,
        standbys_per_node: int = 1,
        driver: DriverSettings | None = None,
        targets: Targets | None = None,
        tune: bool = True,
        plugins: Mapping[str, str] | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        otlp_endpoint: str | None = None,
        traces_file: str | Path | None = None,
        jobs: JobSettings | None = None,
        journal_lines_max: int = LINES_MAX,
        seed: int = 0,
    ) -> ScheduleMesh:
        """Start a mesh in the cluster that this process is connected to, or find the one of this name.

        Args:
            name: Of the mesh.
            namespace: Ray's, of its actors.
            state_dir: Where it keeps what it must not lose, on the head node. None: a folder of this cluster under the user's
                state home; see `status().state_dir`.
            settings: How it decides; a mesh that runs already keeps its own.
            node_labels: Of the nodes that are this mesh's; None: all.
            standbys_per_node: Idle agent processes that each node keeps ready.
            driver: Time limits of what is done in Ray; its `standbys_per_node` goes before the argument.
            targets: Of the figures.
            tune: Let figures that miss their targets change settings, within bounds.
            plugins: Policies, priorities and rules of preemption of your own: by name `module:attribute`, or a `.wasm` file
                that the head node has. Those that installed packages announce are loaded too.
            metrics_port: Where the head node serves the figures to Prometheus; 0: any free one, see `status()`; None: nowhere.
            metrics_host: The address that it listens at.
            otlp_endpoint: Where traces are sent, `http://collector:4318`; None: nowhere.
            traces_file: Where traces are appended on the head node, a line of JSON each.
            jobs: How jobs are placed.
            journal_lines_max: After so many lines a snapshot takes the journal's place.
            seed: Of its chance.
        Raises:
            RuntimeDoorError: This process is connected to no Ray cluster, or the mesh cannot use its folder or its port.
            PluginError: A plugin cannot be loaded.
        """
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
        strategy = NodeAffinitySchedulingStrategy(_head_node(), soft=False)
        where = {"name": supervisor_name(name), "namespace": namespace, "lifetime": "detached", "get_if_exists": True}
        actor = Supervisor.options(**where, scheduling_strategy=strategy).remote(options)
        mesh = cls(name, namespace=namespace)
        try:
            mesh.status()  # Answers when it is ready.
        except SupervisorLost:
            raise  # It may come back yet.
        except MeshError:
            ray.kill(actor, no_restart=True)
            raise
        return mesh

    @classmethod
    def attach(cls, name: str = "default", *, namespace: str = NAMESPACE) -> ScheduleMesh:
        """A mesh that runs already.

        Raises:
            SupervisorLost: There is none of this name.
        """
        mesh = cls(name, namespace=namespace)
        mesh.status()
        return mesh

    def __reduce__(self) -> tuple[Any, ...]:
        """The name is all."""
        return _again, (self.name, self._link.namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self, *, forget: bool = False) -> None:
        """End everything of the mesh in Ray: agents, placement groups, supervisor. What it keeps on disk stays, unless `forget`."""
        actor = self._link.actor()
        self._link.ask("stop", forget=forget)
        ray.kill(actor, no_restart=True)

    def status(self) -> MeshStatus:
        """The mesh as a whole."""
        status: MeshStatus = self._link.ask("status")
        return status

    def change_settings(self, **settings: float) -> None:
        """Numbers of `SchedulerSettings`; a part of a part with two underscores: `weights__availability=2.0`."""
        self._link.ask("change_settings", {name.replace("__", "."): value for name, value in settings.items()})

    def configure_label(
        self,
        label: str,
        *,
        priority: float = 0.0,
        aging_per_s: float | None = None,
        weights: Mapping[str, float] | None = None,
        policy: str = "",
    ) -> None:
        """How one label's queue is ordered (`P_label`, ageing) and its tasks are placed."""
        self._link.ask(
            "configure_label",
            LabelConfigured(
                at_ms=0, label=LabelName(label), priority=priority, aging_per_s=aging_per_s, weights=dict(weights or {}), policy=policy
            ),
        )

    # -- pools (seed §5 ④) ---------------------------------------------------------------------------------------------

    def create_pool(
        self,
        name: str,
        *,
        capacity: Amounts,
        labels: Mapping[str, str] | None = None,
        policy: str = "weighted",
        groups: GroupPoolSpec | None = None,
        target_agents: int = 0,
        is_protected: bool = False,
    ) -> PoolStatus:
        """A pool of quota. One that exists with this very configuration is left as it is; another one is an error.

        Raises:
            SubmissionError: There is a pool of this name that is configured otherwise; see `ensure_pool`.
        """
        spec = _pool_spec(name, capacity, labels, policy, groups, target_agents, is_protected=is_protected)
        known: PoolSpec | None = self._link.ask("pool_spec", spec.pool)
        if known is not None and known != spec:
            raise SubmissionError(f"there is a pool {name} that is configured otherwise; use ensure_pool or resize_pool to change it")
        return self._configure(spec)

    def ensure_pool(
        self,
        name: str,
        *,
        capacity: Amounts,
        labels: Mapping[str, str] | None = None,
        policy: str = "weighted",
        groups: GroupPoolSpec | None = None,
        target_agents: int = 0,
        is_protected: bool = False,
    ) -> PoolStatus:
        """A pool as described, whether it was there, was otherwise, or was not."""
        return self._configure(_pool_spec(name, capacity, labels, policy, groups, target_agents, is_protected=is_protected))

    def resize_pool(self, name: str, capacity: Amounts, *, target_agents: int | None = None) -> PoolStatus:
        """Another capacity. Below what is held nothing is killed: nothing new goes in until it has shrunk."""
        spec = self._pool_spec(name)
        wanted = target_agents if target_agents is not None else spec.target_agents
        return self._configure(replace(spec, capacity=_amounts(capacity), target_agents=wanted))

    def configure_pool(
        self,
        name: str,
        *,
        high_priority_pg_specs: Sequence[Amounts | Sequence[Amounts]] = (),
        max_dynamic_pgs: int = 4,
        enable_pg_reuse: bool = True,
        min_idle_pgs: int = 0,
        idle_ms: int = 60_000,
        reserved_priority: float = 8.0,
        strategy: str = "PACK",
    ) -> PoolStatus:
        """The placement groups of a pool (seed §6.4): a reserved layer, made now, and a dynamic one.

        Args:
            name: Of the pool.
            high_priority_pg_specs: One per reserved group: its amounts, or a list of bundles.
            max_dynamic_pgs: How many groups may be made on demand, in use or kept.
            enable_pg_reuse: Keep a group for the next task of its shape.
            min_idle_pgs: Kept idle groups that no age removes.
            idle_ms: How long any other idle group is kept.
            reserved_priority: From this priority on a task may take a reserved group.
            strategy: Ray's, of the reserved groups.
        """
        groups = GroupPoolSpec(
            reserved=tuple(GroupShape(_bundles(shape), strategy) for shape in high_priority_pg_specs),
            max_dynamic=max_dynamic_pgs,
            reuse=enable_pg_reuse,
            min_idle=min_idle_pgs,
            idle_ms=idle_ms,
            reserved_priority=reserved_priority,
        )
        return self._configure(replace(self._pool_spec(name), groups=groups))

    def delete_pool(self, name: str) -> None:
        """Cancel what is in it, take its groups down, and forget it. Harmless when there is none."""
        self._link.ask("delete_pool", PoolName(name))

    def list_pools(self) -> list[PoolStatus]:
        """All pools: capacity, used, reserved, target agents."""
        pools: list[PoolStatus] = self._link.ask("pools")
        return pools

    def reserve_agent_slot(self, pool: str, resources: Amounts, *, slot: str | None = None) -> SlotReserved | Refused:
        """Set quota aside for an agent of your own. Again under the same name: the same answer."""
        name = slot or f"slot-{uuid.uuid4().hex[:12]}"
        answer: SlotReserved | Refused = self._link.ask("reserve_slot", name, PoolName(pool), _amounts(resources))
        return answer

    def commit_agent_slot(self, slot: str) -> Refused | None:
        """What was set aside is in use now; None: so it is."""
        refused: Refused | None = self._link.ask("commit_slot", slot)
        return refused

    def release_agent_slot(self, slot: str) -> None:
        """Give the quota back, whether it was set aside or in use. Harmless to repeat."""
        self._link.ask("release_slot", slot)

    # -- placement groups (seed §5 ⑤) ----------------------------------------------------------------------------------

    def allocate_pg(
        self,
        pool: str,
        resources: Amounts | Sequence[Amounts],
        *,
        priority: float = DEFAULT_PRIORITY,
        holder: str | None = None,
        timeout_s: float = 10.0,
    ) -> GroupGiven | Refused:
        """A placement group of the pool, for use of your own: reserved if urgent, reused if one is idle, else made.

        `ray.util.get_placement_group(given.name)` gives the group itself.
        """
        bundles = _bundles(resources)
        request = TaskRequest(
            task=TaskId(holder or f"pg-{uuid.uuid4().hex[:12]}"),
            pool=PoolName(pool),
            resources=bundles[0],
            bundles=bundles,
            priority=priority,
            has_agent=False,
            preemptible=False,
        )
        answer: GroupGiven | Refused = self._link.ask("give_group", request, timeout_s)
        return answer

    def release_pg(self, given: GroupGiven | str, *, destroy: bool = False) -> None:
        """Give it back; it is kept for the next task of its shape, unless `destroy`. Harmless to repeat."""
        holder = given if isinstance(given, str) else given.holder
        self._link.ask("cancel", TaskId(holder), keep_state=False, destroy_group=destroy, requeue=False)

    def list_groups(self) -> list[GroupStatus]:
        """All placement groups of the mesh, with layer, holder and how often each was reused."""
        groups: list[GroupStatus] = self._link.ask("groups")
        return groups

    # -- tasks (seed §6.5) ---------------------------------------------------------------------------------------------

    def submit_task(
        self,
        actor_class: Any,
        *,
        pool: str,
        task_id: str | None = None,
        resources: Amounts | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        method: str | None = None,
        method_args: Sequence[Any] = (),
        method_kwargs: Mapping[str, Any] | None = None,
        priority: float = DEFAULT_PRIORITY,
        label: str = "",
        tenant: str = "",
        labels: Mapping[str, str] | None = None,
        policy: str = "",
        weights: Weights | None = None,
        workload_type: str = "",
        node: str | None = None,
        soft: bool = False,
        after: Sequence[str | TaskHandle] = (),
        bundles: Sequence[Amounts] = (),
        gang: str = "",
        gang_size: int = 0,
        job: str | None = None,
        estimated_s: float | None = None,
        preemptible: bool = True,
        max_restarts: int = 0,
        state_handlers: StateHandlers | None = None,
        environment: Mapping[str, str] | None = None,
        metrics_period_ms: int = METRICS_PERIOD_MS,
    ) -> TaskHandle:
        """An agent with an object of your class, queued until there is room; with `method`, that method is run and ends the task.

        A full pool is a wait: `handle.status()` tells reason, position and estimate. The same id with the same request again is
        the same task, so a submission may be sent twice.

        Args:
            actor_class: A plain class, or one with `@ray.remote`.
            pool: Whose quota pays.
            task_id: A name of your own; None: a new one.
            resources: `{"cpu": 1, "gpu": 0.5, "memory": "1GiB"}`.
            args, kwargs: Of the constructor; ObjectRefs come as their values.
            method, method_args, method_kwargs: The entry method; None: the object waits for calls until `finish` or `cancel`.
            priority: P_base; 8.0 and more may take a reserved placement group.
            label: The queue, like `tier:premium`.
            tenant: A process never serves two tenants.
            labels: What the node's labels must say.
            policy, weights, workload_type, node, soft: How the node is chosen; None and empty: as the pool says.
            after: Tasks that have to succeed first.
            bundles: Its placement group, where that is more than one bundle of `resources`.
            gang, gang_size, job: Tasks that are admitted together, or belong together.
            estimated_s: How long it will run; makes it less likely to be preempted near its start.
            preemptible: May it be asked to give way?
            max_restarts: How often it is started again after its agent was lost; -1: always.
            state_handlers: How its state is kept; None: those of the class, or of this mesh.
            environment: Variables of its process.
            metrics_period_ms: How often its agent reports.
        Raises:
            SubmissionError: A parameter that cannot be.
            TaskExists: Another task of this name is known.
        """
        amounts = _amounts(resources if resources is not None else {})
        request = TaskRequest(
            task=_task_id(task_id),
            pool=PoolName(_required("pool", pool)),
            resources=amounts,
            label=LabelName(label),
            tenant=TenantPath(tenant),
            priority=float(priority),
            selector=dict(labels or {}),
            policy=policy,
            weights=weights,
            workload_type=workload_type,
            node=NodeName(node) if node is not None else None,
            soft=soft,
            after=tuple(TaskId(need if isinstance(need, str) else need.task) for need in after),
            bundles=tuple(map(_amounts, bundles)),
            gang=gang,
            gang_size=gang_size,
            job=JobId(job) if job is not None else None,
            estimated_ms=int(estimated_s * 1000) if estimated_s is not None else None,
            preemptible=preemptible,
            max_restarts=max_restarts,
        )
        handlers = state_handlers or self._handlers
        order = HostOrder(
            task=request.task,
            attempt=0,
            code=_code(actor_class),
            arguments=pickled_arguments(*args, **(kwargs or {})),
            entry=method,
            entry_arguments=pickled_arguments(*method_args, **(method_kwargs or {})) if method is not None else None,
            handlers=pickled_handlers(handlers) if handlers is not None else None,
            environment=dict(environment or {}),
            metrics_period_ms=metrics_period_ms,
        )
        self._link.ask("submit", request, order)
        return TaskHandle(self._link, request.task)

    def submit_task_with_pg_preemption(
        self,
        *,
        pool_name: str,
        resources: Amounts,
        actor_class: Any,
        task_id: str,
        timeout_s: float | None = None,
        **options: Any,
    ) -> TaskHandle:
        """Seed §6.5: check the parameters, allocate a placement group, else preempt and allocate again; and wait for the start.

        What stands in the way is ordered by the mesh itself: a victim keeps its state and goes back to its place in the queue,
        its group stays for this task if it fits.

        Returns:
            The task, started; or waiting still, when the time is over or nobody may be preempted: `status()` says why.
        Raises:
            SubmissionError: A required parameter is missing, or the pool has no placement groups.
            PoolUnknown: No such pool.
        """
        _required("task_id", task_id)
        if actor_class is None:
            raise SubmissionError("actor_class is missing: give the class that the agent is to host")
        if not _amounts(resources):
            raise SubmissionError('resources are missing: say what the agent needs, like {"cpu": 1}')
        if self._pool_spec(_required("pool_name", pool_name)).groups is None:
            raise SubmissionError(f"pool {pool_name} has no placement groups: call configure_pool({pool_name!r}, ...) first")
        handle = self.submit_task(actor_class, pool=pool_name, task_id=task_id, resources=resources, **options)
        handle.wait_started(timeout_s)
        return handle

    def task(self, task_id: str) -> TaskHandle:
        """A task that was submitted, here or elsewhere. Raises `TaskUnknown`."""
        handle = TaskHandle(self._link, TaskId(task_id))
        handle.status()
        return handle

    def list_tasks(self, *, pool: str | None = None, state: TaskState | None = None) -> list[TaskStatus]:
        """All tasks that are remembered, oldest first."""
        tasks: list[TaskStatus] = self._link.ask("tasks")
        return [status for status in tasks if pool in (None, status.pool) and state in (None, status.state)]

    def cancel(self, task_id: str, *, keep_state: bool = True, destroy_group: bool = False) -> TaskStatus:
        """Stop a task, keeping its state first (seed §6.3.1). Harmless to repeat."""
        return TaskHandle(self._link, TaskId(task_id)).cancel(keep_state=keep_state, destroy_group=destroy_group)

    def resume(self, task_id: str) -> TaskStatus:
        """A cancelled task goes on from its kept state."""
        return TaskHandle(self._link, TaskId(task_id)).resume()

    def explain(self, task_id: str) -> str:
        """Why the task does not run now, in words."""
        return TaskHandle(self._link, TaskId(task_id)).why()

    def register_state_handlers(self, *, preserver: Preserver | None = None, restorer: Restorer | None = None) -> StateHandlers:
        """How the state of tasks is kept that this object submits from now on; as a decorator, of one class (seed §6.3.1)."""
        self._handlers = state_handlers_of(preserver=preserver, restorer=restorer)
        return self._handlers

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def submit_job(
        self,
        spec: JobSpec | Mapping[str, Any] | str | Path,
        *,
        leader: Any,
        workers: Mapping[str, Any] | None = None,
        args: Mapping[str, Sequence[Any]] | None = None,
        kwargs: Mapping[str, Mapping[str, Any]] | None = None,
        method: str = "run",
        environment: Mapping[str, str] | None = None,
        metrics_period_ms: int = METRICS_PERIOD_MS,
    ) -> JobHandle:
        """A leader and sets of workers, placed, started, restarted and cleaned up as one (`docs/mesh.md`).

        The leader comes first. Its `address`, an attribute or a method, reaches the workers as `SCHEDULEMESH_LEADER_ADDRESS`; a
        leader without one finds a free address of its node under that name in its own environment. The same job again is the
        same job.

        Args:
            spec: The job, as `JobSpec`, as a mapping, as the text of a YAML document, or as the path of one.
            leader: Its class.
            workers: The class of each worker set, by its name.
            args: Of the constructors, by role: `{"leader": (…), "actors": (…)}`.
            kwargs: Likewise.
            method: What a member runs when it is up; of a class without it, members stay until their job is over.
            environment: Variables of all members, beside those that the mesh sets.
            metrics_period_ms: How often members report.
        Raises:
            JobSpecError: The job contradicts itself, or a key is unknown: a line for each.
            SubmissionError: A role has no class, or a class no role.
            JobExists: Another job of this name is known.
        """
        job = _job_spec(spec)
        classes = {LEADER: leader, **(workers or {})}
        roles = {LEADER, *(each.name for each in job.worker_sets)}
        for role in sorted((roles ^ classes.keys()) | ((set(args or ()) | set(kwargs or ())) - roles)):
            why = "has no class: give it in `workers`" if role in roles else f"is no role of it; there are {', '.join(sorted(roles))}"
            raise SubmissionError(f"job {job.job}: {role!r} {why}")
        orders = {
            role: HostOrder(
                task=TaskId(""),
                attempt=0,
                code=_code(kind),
                arguments=pickled_arguments(*(args or {}).get(role, ()), **(kwargs or {}).get(role, {})),
                entry=method if callable(getattr(kind, method, None)) else None,
                environment=dict(environment or {}),
                metrics_period_ms=metrics_period_ms,
            )
            for role, kind in classes.items()
        }
        self._link.ask("submit_job", job, JobWork(orders=orders))
        return JobHandle(self._link, job.job)

    def job(self, name: str) -> JobHandle:
        """A job that was submitted, here or elsewhere. Raises `JobUnknown`."""
        handle = JobHandle(self._link, JobId(name))
        handle.status()
        return handle

    def list_jobs(self) -> list[JobView]:
        """All jobs that are remembered, oldest first."""
        jobs: list[JobView] = self._link.ask("jobs")
        return jobs

    # -- groups of agents (seed §4.1) ----------------------------------------------------------------------------------

    def group(
        self,
        *,
        pool: str | None = None,
        label: str | None = None,
        tasks: Sequence[str | TaskHandle] | None = None,
        shape: Mapping[str, int] | None = None,
    ) -> ActorGroup:
        """Agents with ranks, called together: those of a pool, of a label, or of these tasks, in this order.

        Agents that are not up yet are not in it. `shape={"pipeline": 2, "tensor": 2}` names its dimensions.

        Raises:
            ShapeError: The shape has not as many places as there are agents.
        """
        names = tuple(TaskId(task if isinstance(task, str) else task.task) for task in tasks) if tasks is not None else None
        members = self._link.ask("members", PoolName(pool) if pool is not None else None, label, names)
        return ActorGroup(members, shape)

    def all(self, label: str | None = None, *, timeout: float | None = None) -> Any:
        """The same method on every agent of the label: `mesh.all("tier:gold").step(x)`. Looked up anew each time; keep a `group`
        for a loop."""
        return self.group(label=label).all(timeout=timeout)

    def choose(self, label: str | None = None, strategy: str = "least_busy", *, timeout: float | None = None) -> Any:
        """One agent of the label for each call: `mesh.choose("tier:gold").infer(x)`. The group behind it is kept, so that what is
        in flight counts."""
        kept = self._groups.get(label)
        members = self._link.ask("members", None, label, None) if kept is None else None
        if kept is None:
            kept = self._groups[label] = ActorGroup(members or ())
        return kept.choose(strategy=strategy, timeout=timeout)

    def refresh_groups(self) -> None:
        """Forget which agents `choose` leads to: some have come or gone."""
        self._groups.clear()

    def shard(self, label: str | None = None, **options: Any) -> Any:
        """A collective call on the agents of the label; options as `ActorGroup.shard` has them."""
        return self.group(label=label).shard(**options)

    # -- preemption (seed §5 ⑦) ----------------------------------------------------------------------------------------

    def evaluate_preemption(
        self, *, pool: str, resources: Amounts, priority: float, label: str = "", bundles: Sequence[Amounts] = ()
    ) -> list[CandidateStatus]:
        """Dry run: every running task with its score, and whether and why it would or would not give way to such a task."""
        request = TaskRequest(
            task=TaskId(f"dry-{uuid.uuid4().hex[:12]}"),
            pool=PoolName(pool),
            resources=_amounts(resources),
            bundles=tuple(map(_amounts, bundles)),
            priority=priority,
            label=LabelName(label),
        )
        candidates: list[CandidateStatus] = self._link.ask("evaluate_preemption", request)
        return candidates

    def execute_preemption(self, task_ids: Sequence[str | CandidateStatus]) -> list[TaskStatus]:
        """Make these tasks give way: each keeps its state, and waits for its next turn at its old place."""
        names = [each if isinstance(each, str) else each.task for each in task_ids]
        return [TaskHandle(self._link, TaskId(name)).preempt() for name in names]

    # -- agents and nodes (seed §5 ⑥) ----------------------------------------------------------------------------------

    def create_agent(
        self, name: str, actor_class: Any, *, pool: str, timeout_s: float | None = 60.0, **options: Any
    ) -> TaskHandle | Refused:
        """A standing agent: a task without an entry method, under a name. Not up in time: refused, and nothing is left."""
        handle = self.submit_task(actor_class, pool=pool, task_id=name, **options)
        status = handle.wait_started(timeout_s)
        if status.state in (TaskState.RUNNING, TaskState.BLOCKED):
            return handle
        handle.cancel(keep_state=False)
        return Refused(reason=status.reason, detail=status.detail) if status.reason is not None else _still(status)

    def create_agent_with_pg(
        self, name: str, actor_class: Any, *, pool: str, resources: Amounts, timeout_s: float | None = 60.0, **options: Any
    ) -> TaskHandle | Refused:
        """The same in a placement group of the pool.

        Raises:
            SubmissionError: The pool has no placement groups.
        """
        if self._pool_spec(pool).groups is None:
            raise SubmissionError(f"pool {pool} has no placement groups: call configure_pool({pool!r}, ...) first")
        return self.create_agent(name, actor_class, pool=pool, resources=resources, timeout_s=timeout_s, **options)

    def delete_agent(self, name: str, *, destroy_pg: bool = False) -> TaskStatus:
        """End an agent and give back what it held; its placement group is kept for the next, unless `destroy_pg`."""
        handle = TaskHandle(self._link, TaskId(name))
        handle.cancel(keep_state=False, destroy_group=destroy_pg)
        return handle.wait()

    def restart_agent(self, name: str) -> TaskStatus:
        """Stop it, keeping its state, and start it again from there as soon as it is its turn."""
        return TaskHandle(self._link, TaskId(name)).preempt()

    def list_agents(self) -> list[AgentSeen]:
        """All agent processes: those with a task, those that wait in a group, and standbys."""
        agents: list[AgentSeen] = self._link.ask("agents")
        return agents

    def list_nodes(self) -> list[NodeStatus]:
        """All nodes of the mesh, as the scheduler counts them."""
        nodes: list[NodeStatus] = self._link.ask("nodes")
        return nodes

    def collect_metrics(self, task_id: str | None = None) -> dict[TaskId, AgentStatus]:
        """What the agents reported last; of one task, its agent is asked now."""
        metrics: dict[TaskId, AgentStatus] = self._link.ask("metrics", TaskId(task_id) if task_id is not None else None)
        return metrics

    def figures(self) -> Figures:
        """The six figures of seed §6.2, and what stands beside them."""
        figures: Figures = self._link.ask("figures")
        return figures

    def figures_history(self) -> list[Figures]:
        """The figures once per metrics period, of the last two hours at the most; the last ones are of now."""
        history: list[Figures] = self._link.ask("figures_history")
        return history

    def chart(self, path: str | Path, *, targets: Targets | None = None) -> None:
        """Draw the figures into a picture; its name ends in `.png`, `.svg` or `.pdf`.

        Raises:
            ChartsMissing: matplotlib is not installed.
            RuntimeDoorError: The picture cannot be written.
        """
        draw_page(self.figures_history(), Path(path), mesh=self.name, targets=targets)

    def panel(self, *, targets: Targets | None = None) -> Panel:
        """The figures as a panel with sparklines for the terminal: `rich.print(mesh.panel())`."""
        return figures_panel(self.figures_history(), mesh=self.name, targets=targets)

    def events(self) -> list[MeshNews]:
        """What those who look after the mesh should know, oldest first: plugins that were fenced off, settings that were tuned,
        alarms, how jobs go. The last thousand, since the supervisor started."""
        news: list[MeshNews] = self._link.ask("news")
        return news

    def audit(self) -> Audit:
        """What is not as it should be, in the ledgers and in Ray; nothing is the rule."""
        found: Audit = self._link.ask("audit")
        return found

    # -- what they share -----------------------------------------------------------------------------------------------

    def _pool_spec(self, name: str) -> PoolSpec:
        spec: PoolSpec | None = self._link.ask("pool_spec", PoolName(name))
        if spec is None:
            raise PoolUnknown(name, tuple(pool.pool for pool in self.list_pools()))
        return spec

    def _configure(self, spec: PoolSpec) -> PoolStatus:
        status: PoolStatus = self._link.ask("configure_pool", spec)
        return status


@contextlib.contextmanager
def running_mesh(name: str = "default", **options: Any) -> Iterator[ScheduleMesh]:
    """A mesh for the length of a block; its folder goes with it."""
    mesh = ScheduleMesh.start(name, **options)
    try:
        yield mesh
    finally:
        mesh.stop(forget=True)


def _again(name: str, namespace: str) -> ScheduleMesh:
    return ScheduleMesh(name, namespace=namespace)


def _still(status: TaskStatus) -> Refused:
    raise SubmissionError(f"agent {status.task} is {status.state.value}: {status.detail}")


def _amounts(amounts: Amounts) -> ResourceSet:
    try:
        return amounts if isinstance(amounts, ResourceSet) else ResourceSet.of(amounts)
    except AmountError as error:
        raise SubmissionError(f"resources: {error}") from None


def _bundles(shape: Amounts | Sequence[Amounts]) -> tuple[ResourceSet, ...]:
    if isinstance(shape, Mapping):
        return (_amounts(shape),)
    return tuple(map(_amounts, shape)) or (NOTHING,)


def _pool_spec(
    name: str,
    capacity: Amounts,
    labels: Mapping[str, str] | None,
    policy: str,
    groups: GroupPoolSpec | None,
    target_agents: int,
    *,
    is_protected: bool,
) -> PoolSpec:
    return PoolSpec(
        pool=PoolName(_required("name", name)),
        capacity=_amounts(capacity),
        selector=dict(labels or {}),
        policy=policy,
        groups=groups,
        target_agents=target_agents,
        is_protected=is_protected,
    )


def _required(parameter: str, value: str) -> str:
    if not isinstance(value, str) or not value:
        raise SubmissionError(f"{parameter} is missing: give a name that is not empty")
    return value


def _task_id(name: str | None) -> TaskId:
    return TaskId(_required("task_id", name) if name is not None else f"task-{uuid.uuid4().hex[:12]}")


def _job_spec(spec: JobSpec | Mapping[str, Any] | str | Path) -> JobSpec:
    if isinstance(spec, JobSpec):
        return spec
    if isinstance(spec, Mapping):
        return read_job(spec)
    try:
        raw = yaml.safe_load(spec.read_text(encoding="utf-8") if isinstance(spec, Path) else spec)
    except (OSError, yaml.YAMLError) as error:
        raise SubmissionError(f"spec: {error}") from None
    if not isinstance(raw, dict):
        raise SubmissionError("spec is no YAML mapping: give a JobSpec, a mapping, the text of a YAML document, or the Path of one")
    return read_job(raw)


def _absolute(source: str) -> str:
    """A file is meant as this process sees it; `module:attribute` stays as it is."""
    return str(Path(source).absolute()) if source.endswith((".wasm", ".wat")) else source


def _code(actor_class: Any) -> bytes:
    try:
        return pickled_class(actor_class)
    except TypeError as error:
        raise SubmissionError(f"actor_class: {error}") from None


def _state_home() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "schedulemesh" / "meshes"


def _cluster_id() -> str:
    """So that a new cluster does not begin with the tasks of the last one, unless a folder is named."""
    return _head_node()[:12]


def _head_node() -> str:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray gives it no types
    alive = [node for node in nodes if node["Alive"]]
    head = next((node for node in alive if "node:__internal_head__" in node["Resources"]), alive[0])
    return str(head["NodeID"])
