"""A spec as the root reads it: plans of its nodes, and what a tenant may not run or ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from dag.spec.forms import escaped, filled
from dag.spec.graph import topological_order
from dag.spec.options import NodeOptions
from dag.spec.spec import PROBLEMS_MAX, DagSpec, NodeSpec
from dag.spec.strict_json import pointer
from mesh.core.ids import MeshId, NodeId
from mesh.core.near_names import NO_MESH_HAS, near_resource, unheld
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.stages.spec import TaskSpec, blobs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """A node as the run machine and routing see it."""

    task: TaskSpec  #: Its first attempt as a mesh would get it; none of `inputs` is among `after`.
    labels: Mapping[str, str] = field(default_factory=dict)
    mesh: MeshId | None = None
    retries: int = 0
    retry_exceptions: frozenset[str] | None = None  #: Class names of the errors that `retries` apply to; None: all errors.
    priority: int = 0
    is_output: bool = False


def blobs_named_in(plans: Iterable[NodePlan]) -> frozenset[str]:
    """Return the hashes of the pickled bytes of the nodes: functions, and arguments that JSON cannot carry."""
    return frozenset(sha256 for plan in plans for sha256 in plan.task.blobs())


def plans_of(spec: DagSpec) -> dict[NodeId, NodePlan]:
    """Return every node's plan, in topological order: parameters filled in, defaults applied to options, amounts in units.

    Raises:
        CycleError: The graph contains a circle, because the spec was not checked.
    """
    params = {name: escaped(value) for name, value in spec.params.items()}
    outputs = {output.node for output in spec.outputs.values()}
    settled: dict[str, tuple[NodeOptions, ResourceSet, Gang | None]] = {}  #: Resolved options: most nodes of a graph share them.
    plans: dict[NodeId, NodePlan] = {}
    for node in topological_order(spec.graph()):
        described = spec.nodes[node]
        key = described.options.model_dump_json()
        if key not in settled:
            options = described.options.over(spec.defaults)
            settled[key] = (options, options.needs(), options.as_gang())
        options, resources, gang = settled[key]
        inputs, after = spec.needs_of(node)
        task = TaskSpec(
            node=node,
            attempt=1,
            function=_function(described),
            args=tuple(filled(form, params) for form in described.args) if params else tuple(described.args),
            kwargs={name: filled(form, params) for name, form in described.kwargs.items()},
            inputs=inputs,
            after=after,
            resources=resources,
            ray_options=options.for_ray(),
            gang=gang,
        )
        plans[node] = NodePlan(
            task=task,
            labels=options.labels or {},
            mesh=MeshId(options.mesh) if options.mesh is not None else None,
            retries=options.retries or 0,
            retry_exceptions=frozenset(options.retry_exceptions) if options.retry_exceptions is not None else None,
            priority=options.priority or 0,
            is_output=node in outputs,
        )
    return plans


class NodeKind(NamedTuple):
    """Needs of a node that routing compares with the meshes; nodes of one kind get the same answers."""

    resources: ResourceSet
    labels: tuple[tuple[str, str], ...]
    mesh: MeshId | None
    gang: Gang | None
    priority: int


def nodes_by_kind(spec: DagSpec) -> dict[NodeKind, list[str]]:
    """Return the nodes of each kind, without the plans of the nodes: a graph may have many thousand nodes, and has few kinds."""
    of_options: dict[tuple[object, ...], list[str]] = {}
    for node, described in spec.nodes.items():
        asked = described.options
        custom, labels = (tuple(sorted((part or {}).items())) for part in (asked.resources, asked.labels))
        amounts = (asked.num_cpus, asked.num_gpus, asked.memory, asked.resources is None, custom, asked.gang)
        key = (*amounts, asked.mesh, asked.labels is None, labels, asked.priority)
        of_options.setdefault(key, []).append(node)
    kinds: dict[NodeKind, list[str]] = {}
    for nodes in of_options.values():
        options = spec.nodes[nodes[0]].options.over(spec.defaults)
        mesh = MeshId(options.mesh) if options.mesh is not None else None
        kind = NodeKind(options.needs(), tuple(sorted((options.labels or {}).items())), mesh, options.as_gang(), options.priority or 0)
        kinds.setdefault(kind, []).extend(nodes)
    return kinds


def empty_gangs(spec: DagSpec) -> tuple[tuple[str, str], ...]:
    """Return the gangs whose bundles take nothing, as (place, problem): Ray places no empty bundle."""
    problems = []
    for name, node in spec.nodes.items():
        gang = node.options.over(spec.defaults).as_gang() if node.options.gang or spec.defaults.gang else None
        if gang is not None and not gang.bundle:
            place = f"{pointer('/nodes', name)}/options/gang"
            problems.append((place, "each bundle takes nothing; give num_cpus, num_gpus, memory or resources, above 0"))
    return tuple(problems[:PROBLEMS_MAX])


def misspelt_resources(spec: DagSpec, known: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return custom resources that no mesh has and whose names resemble a known one, as (place, problem), each name once.

    A name that resembles no known one passes, because a mesh that has it may join.
    """
    asked: dict[str, str] = {}
    options = {"/defaults": spec.defaults, **{f"{pointer('/nodes', name)}/options": node.options for name, node in spec.nodes.items()}}
    for place, described in options.items():
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
    for name, node in spec.nodes.items():
        place = f"{pointer('/nodes', name)}/options"
        if node.options.priority is not None:
            places.append((f"{place}/priority", node.options.priority))
        elif default is None:
            places.append((place, 0))
    remedy = f"the highest priority of tenant {tenant} (limits.priority_max); ask for {priority_max} or less"
    problems = [(place, f"priority {asked} is above {priority_max}, {remedy}") for place, asked in places if asked > priority_max]
    return tuple(problems[:PROBLEMS_MAX])


def refused_functions(spec: DagSpec, patterns: tuple[str, ...], pickled_code: bool) -> tuple[tuple[str, str], ...]:
    """Return the functions that the tenant may not run, as (place, problem).

    A pattern is `module:qualname`. `*` in its module part covers submodules; in the other part it stays within one name. So
    `shop.*:*` allows the functions of these modules, but not names that they import from other modules. Without the right to send
    code, a tenant may not send code as an argument, or a runtime environment, which can replace an allowed module.
    """
    problems: list[tuple[str, str]] = []
    for name, node in spec.nodes.items():
        place = pointer("/nodes", name)
        if node.call is not None and not any(_allows(pattern, node.call) for pattern in patterns):
            allowed = f"it allows {', '.join(patterns)}" if patterns else "it is empty"
            problems.append((f"{place}/call", f"{node.call} is not on the tenant's list of functions; {allowed}"))
        if not pickled_code:
            if node.function is not None:
                problems.append((f"{place}/function", "the tenant may not send pickled code; `pickled_code: true` would allow it"))
            if any(True for form in (*node.args, *node.kwargs.values()) for _ in blobs_of(form)):
                problems.append(
                    (place, "the tenant may not send pickled arguments, which can hold code; `pickled_code: true` would allow it")
                )
    if spec.code.runtime_env and not pickled_code:
        problems.append(
            ("/code/runtime_env", "the tenant may not bring its own environment, which is code; `pickled_code: true` would allow it")
        )
    return tuple(problems)


def _function(described: NodeSpec) -> str:
    return f"call:{described.call}" if described.function is None else f"blob:{described.function.sha256}"


def _allows(pattern: str, call: str) -> bool:
    module_pattern, colon, name_pattern = pattern.partition(":")
    if not colon:
        return fnmatchcase(call, pattern)
    module, _, qualname = call.partition(":")
    names, name_patterns = qualname.split("."), name_pattern.split(".")
    same_depth = len(names) == len(name_patterns)
    return fnmatchcase(module, module_pattern) and same_depth and all(map(fnmatchcase, names, name_patterns))
