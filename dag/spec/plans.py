"""A spec as the root reads it: plans of its nodes, and what a tenant may not run or ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from dag.spec.arrays import expanded, has_arrays
from dag.spec.cache_keys import CacheRule, may_be_cached, problem_of_caching
from dag.spec.control import ON_SUCCESS, Control, When, control_of, is_control
from dag.spec.group_forms import group_of, methods_of_group, problem_of_members
from dag.spec.job_forms import calls_of_job, job_of, problem_of_gang
from dag.spec.options import NodeOptions
from dag.spec.retry_options import NO_BACKOFF, NO_TIMEOUTS, Backoff, NodeTimeouts, at_least_one_ms, full_names
from dag.spec.spec import PROBLEMS_MAX, DagSpec, filled_calls
from dag.spec.strict_json import pointer
from federation.tenants import Tenant
from mesh.core.functions import CALLS, PROGRAM, SELECTED
from mesh.core.ids import MeshId, NodeId
from mesh.core.near_names import NO_MESH_HAS, near_resource, unheld
from mesh.core.resources import NOTHING, ResourceSet, to_units
from mesh.core.shapes import Gang
from mesh.core.values import StoredValue
from mesh.stages.call_shapes import Shape, blobs_of
from mesh.stages.calls import Call, Numbers
from mesh.stages.spec import StageTasks, TaskKind, TaskSpec

#: Characters of a function's name that a problem shows.
_SHOWN_MAX = 200
OWN_ENV = "the tenant may not bring its own environment, which is code; `pickled_code: true` would allow it"
#: Key of a node in a spec, by the kind of its function.
_KEYS = {"call": "call", "blob": "function", "program": "program"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """A node as the run machine and routing see it."""

    task: TaskSpec  #: Its first attempt as a mesh would get it; none of `inputs` is among `after`.
    labels: Mapping[str, str] = field(default_factory=dict)
    mesh: MeshId | None = None
    retries: int = 0
    retry_exceptions: frozenset[str] | None = None  #: Names of the errors that `retries` apply to; None: all errors.
    never_on: frozenset[str] = frozenset()  #: Names of the errors that are never retried.
    backoff: Backoff = NO_BACKOFF
    memory_growth: float = 1.0  #: After `OUT_OF_MEMORY` the next attempt asks for so many times the memory.
    timeouts: NodeTimeouts = NO_TIMEOUTS
    priority: int = 0
    is_output: bool = False
    when: When = ON_SUCCESS  #: When it runs, by the ends of the nodes in `after`.
    cache: CacheRule | None = None  #: How its value is cached; None: it is not.


def blobs_named_in(plans: Mapping[NodeId, NodePlan]) -> frozenset[str]:
    """Return the hashes of the pickled bytes of the nodes: functions, and arguments that JSON cannot carry."""
    if isinstance(plans, Plans):
        return plans.calls.blobs()
    return frozenset(sha256 for plan in plans.values() for sha256 in plan.task.blobs())


def function_of(plans: Mapping[NodeId, NodePlan], node: NodeId) -> str:
    """Return the function of a node, without making its plan."""
    return plans.calls.function_of(node) if isinstance(plans, Plans) else plans[node].task.function


def functions_of(plans: Mapping[NodeId, NodePlan]) -> tuple[str, ...]:
    """Return the functions of all nodes, each once."""
    return plans.calls.functions if isinstance(plans, Plans) else tuple(dict.fromkeys(plan.task.function for plan in plans.values()))


def priority_of(plans: Mapping[NodeId, NodePlan], nodes: Iterable[NodeId]) -> int:
    """Return the highest priority of these nodes; 0 of none."""
    if isinstance(plans, Plans):
        return plans.priority_of(nodes)
    return max((plans[node].priority for node in nodes), default=0)


def with_memory(resources: ResourceSet, gang: Gang | None, memory_bytes: int) -> dict[str, Any]:
    """Return the fields of a task that asks for this much memory; for each bundle of a gang."""
    if gang is None:
        return {"resources": ResourceSet({**resources, "memory": memory_bytes})}
    grown = replace(gang, bundle=ResourceSet({**gang.bundle, "memory": memory_bytes}))
    return {"resources": grown.bundle.times(grown.size), "gang": grown}


def timed_in(plans: Mapping[NodeId, NodePlan]) -> dict[NodeId, NodeTimeouts]:
    """Return the nodes that have time limits of the root."""
    if isinstance(plans, Plans):
        return plans.timed()
    return {node: plan.timeouts for node, plan in plans.items() if plan.timeouts != NO_TIMEOUTS}


def cached_in(plans: Mapping[NodeId, NodePlan]) -> Mapping[NodeId, CacheRule]:
    """Return the nodes whose values are cached, in topological order."""
    if isinstance(plans, Plans):
        return plans.cached
    return {node: plan.cache for node, plan in plans.items() if plan.cache is not None}


class Plans(Mapping[NodeId, NodePlan]):
    """Plans of all nodes, in topological order. A plan is made when it is asked for.

    Attributes:
        calls: The nodes as columns, in topological order.
        outputs: The nodes whose values the user gets.
        cached: The nodes whose values are cached.
        digests: Digests of functions and pickled arguments of cached nodes; see `dag.spec.cache_keys`.
    """

    def __init__(self, spec: DagSpec) -> None:
        self.calls = filled_calls(spec)
        self.outputs = frozenset(NodeId(output.node) for output in spec.outputs.values())
        self._kinds = [_kind_of(options.over(spec.defaults)) for options in spec.options]
        self.digests: Mapping[str, str] = spec.head.digests
        self.cached: Mapping[NodeId, CacheRule] = self._cached()
        if has_arrays(self.calls.shapes):
            self.calls, last_kinds = expanded(self.calls, len(self._kinds), self.outputs)
            self._kinds += [_last_of_array(self._kinds[number]) for number in last_kinds]
        self._pass_priorities_on()
        self._made: dict[NodeId, NodePlan] = {}

    def __getitem__(self, node: NodeId) -> NodePlan:
        made = self._made.get(node)
        if made is None:
            made = self._made[node] = self._plan(self.calls.place_of[node])
        return made

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self.calls.ids)

    def __reversed__(self) -> Iterator[NodeId]:
        return reversed(self.calls.ids)

    def __len__(self) -> int:
        return len(self.calls)

    def __contains__(self, node: object) -> bool:
        return node in self.calls.place_of

    @property
    def has_gangs(self) -> bool:
        """Whether any options ask for a gang."""
        return any(kind.task.gang is not None for kind in self._kinds)

    def timed(self) -> dict[NodeId, NodeTimeouts]:
        """Return the nodes that have time limits of the root."""
        if all(kind.timeouts == NO_TIMEOUTS for kind in self._kinds):
            return {}
        of_node = ((node, self._kinds[self.calls.kind_of(place)].timeouts) for place, node in enumerate(self.calls.ids))
        return {node: timeouts for node, timeouts in of_node if timeouts != NO_TIMEOUTS}

    def _cached(self) -> dict[NodeId, CacheRule]:
        """Return the nodes whose values are cached. Arrays are not expanded yet."""
        calls, rules = self.calls, {number: kind.cache for number, kind in enumerate(self._kinds) if kind.cache is not None}
        found: dict[NodeId, CacheRule] = {}
        for place in range(len(calls)) if rules else ():
            rule = rules.get(calls.kind_of(place))
            if rule is not None:
                call = calls.call(place)
                if may_be_cached(call.function, (*call.args, *call.kwargs.values()), is_tolerant=self._kinds[call.kind].when != ON_SUCCESS):
                    found[calls.ids[place]] = rule
        return found

    def _pass_priorities_on(self) -> None:
        """Let each node be as urgent as the most urgent node that waits for it, or less urgent work would keep that one waiting.

        Source: priority inheritance, Sha, Rajkumar and Lehoczky 1990.
        """
        own = [kind.priority for kind in self._kinds]
        if len(set(own)) < 2:  # noqa: PLR2004  all nodes are equally urgent
            return
        calls, of_kind = self.calls, self.calls.kind.tolist()
        urgency = [own[kind] for kind in of_kind]
        input_ptr, after_ptr = calls.input_ptr.tolist(), calls.after_ptr.tolist()
        inputs, after = calls.inputs.tolist(), calls.after.tolist()
        for place in range(len(calls) - 1, -1, -1):
            for need in (*inputs[input_ptr[place] : input_ptr[place + 1]], *after[after_ptr[place] : after_ptr[place + 1]]):
                urgency[need] = max(urgency[need], urgency[place])
        made: dict[tuple[int, int], int] = {}
        for place, (kind, priority) in enumerate(zip(of_kind, urgency, strict=True)):
            if priority > own[kind]:
                if (kind, priority) not in made:
                    made[kind, priority] = len(self._kinds)
                    self._kinds.append(replace(self._kinds[kind], priority=priority))
                of_kind[place] = made[kind, priority]
        if made:
            self.calls = replace(calls, kind=np.array(of_kind, np.uint32))

    def set_memory(self, node: NodeId, memory_bytes: int) -> None:
        """Let a node ask for this much memory, as a kind of its own."""
        place = self.calls.place_of[node]
        kind = self._kinds[self.calls.kind_of(place)]
        kinds = self.calls.kind.copy() if len(self.calls.kind) else np.zeros(len(self.calls), np.uint32)
        kinds[place] = len(self._kinds)
        self._kinds.append(replace(kind, task=replace(kind.task, **with_memory(kind.task.resources, kind.task.gang, memory_bytes))))
        self.calls = replace(self.calls, kind=kinds)
        self._made.pop(node, None)

    def slot_kinds(self) -> list[int]:
        """Return a number for each kind: the same for kinds that ask for the same slots, and for meshes with the same labels."""
        numbers: dict[tuple[object, ...], int] = {}
        asks = ((kind.task.resources, kind.task.gang, tuple(sorted(kind.labels.items()))) for kind in self._kinds)
        return [numbers.setdefault(asked, len(numbers)) for asked in asks]

    def slot_of(self, nodes: Iterable[NodeId]) -> ResourceSet:
        """Return the least slot that covers each single node."""
        slot = NOTHING
        for kind in self._kinds_of(nodes):
            slot = slot.join(kind.task.resources)
        return slot

    def priority_of(self, nodes: Iterable[NodeId]) -> int:
        """Return the highest priority of these nodes."""
        return max(kind.priority for kind in self._kinds_of(nodes))

    def tasks_of(
        self,
        nodes: Sequence[NodeId],
        *,
        attempts: Mapping[int, int],
        exported: Iterable[int],
        checkpoints: Mapping[int, StoredValue],
    ) -> StageTasks:
        """Return a stage's tasks as columns; of `after`, what is inside the stage.

        Args:
            nodes: In topological order.
            attempts: Attempts other than the first, by place in `nodes`.
            exported: Places of the nodes whose values leave the mesh.
            checkpoints: The last one of nodes that have one, by place.
        """
        places = np.fromiter(map(self.calls.place_of.__getitem__, nodes), np.int64, len(nodes))
        kinds = tuple(kind.task for kind in self._kinds)
        return StageTasks(self.calls.take(places), kinds, attempts=attempts, exported=frozenset(exported), checkpoints=checkpoints)

    @property
    def tolerant_kinds(self) -> list[int]:
        """Return the kinds of nodes that do not wait for success."""
        return [number for number, kind in enumerate(self._kinds) if kind.when != ON_SUCCESS]

    def having(self, column: Numbers, values: Sequence[int]) -> list[NodeId]:
        """Return the nodes with one of these values in a column of the calls, in topological order."""
        return [self.calls.ids[place] for place in np.flatnonzero(np.isin(column, values)).tolist()] if values else []

    def control_of(self, node: NodeId) -> Control | None:
        """Return what the root does for the node; None: a mesh runs it."""
        call = self.calls.call(self.calls.place_of[node])
        return control_of(call.function, call.args)

    def when_of(self, node: NodeId) -> When:
        """Return when the node runs."""
        return self._kinds[self.calls.kind_of(self.calls.place_of[node])].when

    def _kinds_of(self, nodes: Iterable[NodeId]) -> list[_Kind]:
        if len(self._kinds) == 1:
            return self._kinds
        place_of, kind_of = self.calls.place_of, self.calls.kind_of
        return [self._kinds[number] for number in sorted({kind_of(place_of[node]) for node in nodes})]

    def sample(self, place: int) -> NodePlan:
        """Return the plan of the node at the place without its arguments and the nodes that it needs."""
        calls = self.calls
        return self._plan_of(place, Call(calls.function_of(calls.ids[place]), (), {}, (), (), calls.kind_of(place)))

    def _plan(self, place: int) -> NodePlan:
        return self._plan_of(place, self.calls.call(place))

    def _plan_of(self, place: int, call: Call) -> NodePlan:
        node, kind = self.calls.ids[place], self._kinds[call.kind]
        task = TaskSpec(
            node=node,
            attempt=1,
            function=call.function,
            args=call.args,
            kwargs=call.kwargs,
            inputs=call.inputs,
            after=call.after,
            resources=kind.task.resources,
            ray_options=kind.task.ray_options,
            gang=kind.task.gang,
            num_returns=kind.task.num_returns,
            is_isolated=kind.task.is_isolated,
            start_to_close_ms=kind.task.start_to_close_ms,
        )
        return NodePlan(
            task=task,
            labels=kind.labels,
            mesh=kind.mesh,
            retries=kind.retries,
            retry_exceptions=kind.retry_exceptions,
            never_on=kind.never_on,
            backoff=kind.backoff,
            memory_growth=kind.memory_growth,
            timeouts=kind.timeouts,
            priority=kind.priority,
            is_output=node in self.outputs,
            when=kind.when,
            cache=self.cached.get(node),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Meaning of the options that some nodes share."""

    task: TaskKind
    labels: Mapping[str, str]
    mesh: MeshId | None
    retries: int
    retry_exceptions: frozenset[str] | None
    never_on: frozenset[str]
    backoff: Backoff
    memory_growth: float
    timeouts: NodeTimeouts
    priority: int
    when: When
    cache: CacheRule | None


def _kind_of(options: NodeOptions) -> _Kind:
    retried = options.retry_on if options.retry_on is not None else options.retry_exceptions
    return _Kind(
        task=TaskKind(
            resources=options.needs(),
            ray_options=options.for_ray(),
            gang=options.as_gang(),
            num_returns=options.num_returns or 1,
            is_isolated=options.isolation == "task",
            start_to_close_ms=at_least_one_ms(options.start_to_close_s),
        ),
        labels=options.labels or {},
        mesh=MeshId(options.mesh) if options.mesh is not None else None,
        retries=options.retries or 0,
        retry_exceptions=full_names(retried) if retried is not None else None,
        never_on=full_names(options.never_on or ()),
        backoff=options.backoff.as_backoff() if options.backoff is not None else NO_BACKOFF,
        memory_growth=options.memory_growth or 1.0,
        timeouts=NodeTimeouts(
            schedule_to_start_ms=at_least_one_ms(options.schedule_to_start_s),
            schedule_to_close_ms=at_least_one_ms(options.schedule_to_close_s),
        ),
        priority=options.priority or 0,
        when=options.when or ON_SUCCESS,
        cache=options.as_cache_rule(),
    )


def _last_of_array(kind: _Kind) -> _Kind:
    """Return what the node asks for that ends an array: a place near the parts, and nothing of what their function needs."""
    cpu = min(kind.task.resources["cpu"], to_units("cpu", 1))
    return replace(kind, task=TaskKind(resources=ResourceSet({"cpu": cpu}) if cpu else NOTHING), retries=0)


def controls_of(plans: Mapping[NodeId, NodePlan]) -> dict[NodeId, Control]:
    """Return what the root does for the nodes that it does itself, in topological order."""
    if isinstance(plans, Plans):
        functions = [number for number, function in enumerate(plans.calls.functions) if is_control(function)]
        nodes = plans.having(plans.calls.function, functions) if functions else []
        return {node: control for node in nodes if (control := plans.control_of(node)) is not None}
    found = {node: control_of(plan.task.function, plan.task.args) for node, plan in plans.items()}
    return {node: control for node, control in found.items() if control is not None}


def whens_of(plans: Mapping[NodeId, NodePlan]) -> dict[NodeId, When]:
    """Return when nodes run, for those that do not wait for success."""
    if isinstance(plans, Plans):
        return {node: plans.when_of(node) for node in plans.having(plans.calls.kind, plans.tolerant_kinds)}
    return {node: plan.when for node, plan in plans.items() if plan.when != ON_SUCCESS}


def plans_of(spec: DagSpec) -> Plans:
    """Return every node's plan, in topological order: parameters filled in, defaults applied to options, amounts in units.

    Raises:
        CycleError: The graph contains a circle, because the spec was not checked.
    """
    return Plans(spec)


class NodeKind(NamedTuple):
    """Needs of a node that routing compares with the meshes; nodes of one kind get the same answers."""

    resources: ResourceSet
    labels: tuple[tuple[str, str], ...]
    mesh: MeshId | None
    gang: Gang | None
    priority: int


def nodes_by_kind(spec: DagSpec) -> dict[NodeKind, list[str]]:
    """Return the nodes of each kind, without the plans of the nodes: a graph may have many thousand nodes, and has few kinds."""
    kinds: dict[NodeKind, list[str]] = {}
    for options, nodes in _nodes_by_options(spec):
        asked = options.over(spec.defaults)
        mesh = MeshId(asked.mesh) if asked.mesh is not None else None
        kind = NodeKind(asked.needs(), tuple(sorted((asked.labels or {}).items())), mesh, asked.as_gang(), asked.priority or 0)
        if of_meshes := _on_meshes(spec, nodes):
            kinds.setdefault(kind, []).extend(of_meshes)
    return kinds


def _nodes_by_options(spec: DagSpec) -> Iterator[tuple[NodeOptions, list[str]]]:
    """Yield the options that nodes have, each with its nodes."""
    kind, ids = spec.calls.kind, spec.calls.ids
    if len(spec.options) == 1:
        yield spec.options[0], list(ids)
        return
    by_options = np.argsort(kind, kind="stable")
    ends = np.searchsorted(kind[by_options], np.arange(len(spec.options) + 1)).tolist()
    places = by_options.tolist()
    for number, options in enumerate(spec.options):
        yield options, [ids[place] for place in places[ends[number] : ends[number + 1]]]


def _on_meshes(spec: DagSpec, nodes: Iterable[str]) -> list[str]:
    """Return the nodes that meshes run, without those that the root does itself."""
    if not any(map(is_control, spec.calls.functions)):
        return list(nodes)
    calls = spec.calls
    return [node for node in nodes if not is_control(calls.functions[calls.function[calls.place_of[NodeId(node)]]])]


def empty_gangs(spec: DagSpec) -> tuple[tuple[str, str], ...]:
    """Return the gangs whose bundles take nothing, as (place, problem): Ray places no empty bundle."""
    problems = [
        (f"{pointer('/nodes', name)}/options/gang", "each bundle takes nothing; give num_cpus, num_gpus, memory or resources, above 0")
        for options, nodes in _nodes_by_options(spec)
        if (gang := options.over(spec.defaults).as_gang()) is not None and not gang.bundle
        for name in nodes
    ]
    return tuple(problems[:PROBLEMS_MAX])


def small_gangs(spec: DagSpec) -> tuple[tuple[str, str], ...]:
    """Return the jobs and actor groups whose members do not fit into the gang of their node, as (place, problem)."""
    forms = [(*shape.args, *shape.kwargs.values()) for shape in spec.calls.shapes]
    jobs, groups = [job_of(each) for each in forms], [group_of(each) for each in forms]
    if not any(each is not None for each in (*jobs, *groups)):
        return ()
    calls, problems = spec.calls, []
    for options, nodes in _nodes_by_options(spec):
        gang = options.over(spec.defaults).as_gang()
        for name in nodes:
            number = calls.shape[calls.place_of[NodeId(name)]]
            job, group = jobs[number], groups[number]
            problem = problem_of_gang(job, gang) if job is not None else problem_of_members(group, gang) if group is not None else None
            if problem is not None:
                problems.append((f"{pointer('/nodes', name)}/options/gang", problem))
    return tuple(problems[:PROBLEMS_MAX])


def uncacheable(spec: DagSpec) -> tuple[tuple[str, str], ...]:
    """Return the nodes that ask for a cache of their own and cannot have one, as (place, problem). A default means only those that can."""
    calls, problems = spec.calls, []
    for options, nodes in _nodes_by_options(spec):
        if options.cache in (None, False):
            continue
        for name in nodes:
            call = calls.call(calls.place_of[NodeId(name)])
            problem = problem_of_caching(
                call.function, (*call.args, *call.kwargs.values()), is_tolerant=options.when not in (None, ON_SUCCESS)
            )
            if problem is not None:
                problems.append((f"{pointer('/nodes', name)}/options/cache", problem))
    return tuple(problems[:PROBLEMS_MAX])


def growth_of_nothing(spec: DagSpec) -> tuple[tuple[str, str], ...]:
    """Return the nodes whose memory could not grow, as (place, problem): they ask for none."""
    problems = [
        (f"{pointer('/nodes', name)}/options/memory_growth", "the node asks for no memory that could grow; give `memory` too")
        for options, nodes in _nodes_by_options(spec)
        if ((asked := options.over(spec.defaults)).memory_growth or 1) > 1 and not asked.memory
        for name in nodes
    ]
    return tuple(problems[:PROBLEMS_MAX])


def refused_for(spec: DagSpec, tenant: Tenant, priority_max: int | None) -> tuple[tuple[str, str], ...]:
    """Return what the tenant may not run or ask for, and what can never be given, as (place, problem)."""
    return (
        *refused_functions(spec, tenant.functions, tenant.pickled_code),
        *refused_priorities(spec, tenant.path, priority_max),
        *empty_gangs(spec),
        *small_gangs(spec),
        *growth_of_nothing(spec),
        *uncacheable(spec),
    )


def misspelt_resources(spec: DagSpec, known: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return custom resources that no mesh has and whose names resemble a known one, as (place, problem), each name once.

    A name that resembles no known one passes, because a mesh that has it may join.
    """
    asked: dict[str, str] = {}
    options = [("/defaults", spec.defaults), *((f"{pointer('/nodes', nodes[0])}/options", each) for each, nodes in _nodes_by_options(spec))]
    for place, described in options:
        for name in described.resources or ():
            asked.setdefault(name, pointer(f"{place}/resources", name))
    problems = [
        (place, unheld(NO_MESH_HAS, name, known)) for name, place in asked.items() if name not in known and near_resource(name, known)
    ]
    return tuple(problems[:PROBLEMS_MAX])


def refused_priorities(spec: DagSpec, tenant: str, priority_max: int | None) -> tuple[tuple[str, str], ...]:
    """Return the priorities above the tenant's bound, as (place, problem). None: no bound."""
    if priority_max is None:
        return ()
    default = spec.defaults.priority
    places = [("/defaults/priority", default)] if default is not None else []
    for options, nodes in _nodes_by_options(spec):
        asked = options.priority if options.priority is not None else 0 if default is None else None
        if asked is not None and asked > priority_max:
            step = "/options/priority" if options.priority is not None else "/options"
            places += [(f"{pointer('/nodes', name)}{step}", asked) for name in nodes]
    remedy = f"the highest priority of tenant {tenant} (limits.priority_max); ask for {priority_max} or less"
    problems = [(place, f"priority {asked} is above {priority_max}, {remedy}") for place, asked in places if asked > priority_max]
    return tuple(problems[:PROBLEMS_MAX])


def refused_functions(spec: DagSpec, patterns: tuple[str, ...], pickled_code: bool) -> tuple[tuple[str, str], ...]:
    """Return the functions that the tenant may not run, as (place, problem).

    A pattern is `module:qualname`. `*` in its module part covers submodules; in the other part it stays within one name. So
    `shop.*:*` allows the functions of these modules, but not names that they import from other modules. Without the right to send
    code, a tenant may not send code as an argument, or a runtime environment, which can replace an allowed module.
    Its list names the methods of actors, groups and jobs too, `module:Class.method`.
    """
    calls = spec.calls
    words = [_refused_call(function, patterns, pickled_code) for function in calls.functions]
    sends_code = [
        not pickled_code and any(True for form in (*shape.args, *shape.kwargs.values()) for _ in blobs_of(form)) for shape in calls.shapes
    ]
    methods = [() if pickled_code else _methods_of(shape) for shape in calls.shapes]
    jobs = [None if pickled_code else job_of((*shape.args, *shape.kwargs.values())) for shape in calls.shapes]
    refused = np.array([each is not None for each in words])[calls.function] | np.array(sends_code)[calls.shape]
    refused |= np.array([bool(each) or job is not None for each, job in zip(methods, jobs, strict=True)])[calls.shape]
    problems: list[tuple[str, str]] = []
    for at in np.nonzero(refused)[0].tolist():
        if len(problems) >= PROBLEMS_MAX:
            break
        place, function = pointer("/nodes", calls.ids[at]), calls.function[at]
        if (problem := words[function]) is not None:
            problems.append((f"{place}/{_KEYS[calls.functions[function].partition(':')[0]]}", problem))
        called = [f"{calls.functions[function]}.{method}" for method in methods[calls.shape[at]]]
        if (job := jobs[calls.shape[at]]) is not None:
            called += calls_of_job(job, calls.functions[function])
        problems += [(f"{place}/args", said) for each in called if (said := _refused_call(each, patterns, pickled_code)) is not None]
        if sends_code[calls.shape[at]] and not calls.functions[function].startswith(PROGRAM):
            problems.append((place, "the tenant may not send pickled arguments, which can hold code; `pickled_code: true` would allow it"))
    if not pickled_code:
        envs = [("/defaults/runtime_env", spec.defaults)]
        envs += [(f"{pointer('/nodes', nodes[0])}/options/runtime_env", options) for options, nodes in _nodes_by_options(spec)]
        problems += [(place, OWN_ENV) for place, options in envs if options.runtime_env]
    if spec.code.runtime_env and not pickled_code:
        problems.append(("/code/runtime_env", OWN_ENV))
    return tuple(problems[:PROBLEMS_MAX])


def _methods_of(shape: Shape) -> tuple[str, ...]:
    """Return the methods that the calls of an actor or a group name, each once."""
    group = group_of((*shape.args, *shape.kwargs.values()))
    if group is not None:
        return methods_of_group(group)
    forms = (form for form in (*shape.args, *shape.kwargs.values()) if type(form) is dict and CALLS in form)
    return tuple(dict.fromkeys(call[0] for form in forms for call in form[CALLS]))


def _refused_call(function: str, patterns: tuple[str, ...], pickled_code: bool) -> str | None:
    kind, _, name = function.partition(":")
    if function == SELECTED or is_control(function):
        return None
    if kind == "program":
        return None if pickled_code else "the tenant may not run programs, which are code; `pickled_code: true` would allow it"
    if kind == "blob":
        return None if pickled_code else "the tenant may not send pickled code; `pickled_code: true` would allow it"
    if any(_allows(pattern, name) for pattern in patterns):
        return None
    allowed = f"it allows {', '.join(patterns)}" if patterns else "it is empty"
    return f"{name[:_SHOWN_MAX]} is not on the tenant's list of functions; {allowed}"


def _allows(pattern: str, call: str) -> bool:
    module_pattern, colon, name_pattern = pattern.partition(":")
    if not colon:
        return fnmatchcase(call, pattern)
    module, _, qualname = call.partition(":")
    names, name_patterns = qualname.split("."), name_pattern.split(".")
    same_depth = len(names) == len(name_patterns)
    return fnmatchcase(module, module_pattern) and same_depth and all(map(fnmatchcase, names, name_patterns))
