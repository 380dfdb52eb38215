"""Jobs that are one gang: which keys such a job has, and the bundle of each member.

A node of a graph may be a job (ADR 0071). All members are placed together, in equal bundles of one placement group. So keys about pools,
nodes, order and tenants, which the node and its run decide, are refused with the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from mesh.core.counting import counted
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import Gang, Strategy
from mesh.errors import JobSpecError
from mesh.jobs.form import read_job
from mesh.jobs.members import Member, members_of, replica_of
from mesh.jobs.spec import BasicPolicy, CleanPolicy, JobSpec, ReplicaSpec, WorkerSetSpec

#: Most members of such a job, the leader included: a gang has as many bundles at most.
MEMBERS_MAX = 1_000
#: Keys of a worker set that say what its workers run, and keys of the job that say how.
CODE_KEYS = frozenset({"call", "function", "args", "kwargs"})
RUN_KEYS = frozenset({"method", "environment"})
_SPREADING = ("SPREAD", "STRICT_SPREAD")
#: Keys of a job on a local mesh that the node decides, with the remedy.
REFUSED: Mapping[str, str] = {
    "name": "a job in a graph has the id of its node: leave it out",
    "pool": "the quota of the run's tenant pays for it, and routing chooses the mesh: leave it out, or give the option `mesh` or `labels`",
    "tenant": "the run has a tenant: give it when you submit the graph",
    "label": "nodes of a graph have no label queues: leave it out",
    "priority": "give `priority` as an option of the node",
    "selector": "give `label_selector` as an option of the node; it means all members",
    "terminating": "a job in a graph ends with its run: leave it out, and cancel the run",
}
_MEMBER_REFUSED: Mapping[str, str] = {
    "selector": "members are in bundles of one placement group: give `label_selector` as an option of the node; it means all members",
}
_ONE_ORDER = "the queue of the tenant orders nodes: leave it out"
_ONE_GANG = "all members have bundles of one placement group: leave it out, or write `Gang`; the option `strategy` spreads or packs them"
_ALL_END = "nothing of a node stays after its end: leave it out, or write `All`"


def read_gang_job(raw: Mapping[str, Any]) -> JobSpec:
    """Return the job that a mapping describes, as `mesh.jobs.form` reads it, without name and pool.

    Args:
        raw: Keys of the job; what its members run may be among them.

    Raises:
        JobSpecError: One line for each problem, with key and remedy.
    """
    raw = {key: value for key, value in raw.items() if key not in RUN_KEYS}
    for key in ("workerSets", "worker_sets"):
        if isinstance(raw.get(key), (list, tuple)):
            raw[key] = [_without_code(part) for part in raw[key]]
    refused = [f"{key}: is not supported in a graph: {remedy}" for key, remedy in _refused(raw)]
    if refused:
        raise JobSpecError("\n".join(refused))
    spec = read_job({**raw, "name": "job", "pool": "node"})
    if spec.workers_num >= MEMBERS_MAX:
        raise JobSpecError(
            f"worker_sets: {counted(spec.workers_num, 'worker')}; a job in a graph has {MEMBERS_MAX} members at most, with its leader"
        )
    return spec


def worker_sets_of(raw: Mapping[str, Any]) -> list[Any]:
    """Return the worker sets as they were written."""
    sets = raw.get("workerSets", raw.get("worker_sets", ()))
    return list(sets) if isinstance(sets, (list, tuple)) else []


def smallest_gang(spec: JobSpec, strategy: Strategy) -> Gang:
    """Return the gang of the fewest bundles that holds all members.

    A bundle is as large as the largest member needs. Members share a bundle when they fit into it together; those that are to be on
    different nodes have one each.

    Raises:
        JobSpecError: No member takes anything: Ray places no empty bundle.
    """
    roles: list[ReplicaSpec | WorkerSetSpec] = [spec.leader, *spec.worker_sets]
    bundle = NOTHING
    for role in roles:
        bundle = bundle.join(role.resources)
    if not bundle:
        raise JobSpecError("leader.resources: no member takes anything; give the leader or a worker set resources, like {cpu: 1}")
    size = 1 + spec.workers_num if strategy in _SPREADING else 1 + max(_places(spec, bundle))
    return Gang(size=size, bundle=bundle, strategy=strategy)


def bundles_of(spec: JobSpec, bundle: ResourceSet, size: int) -> Mapping[Member, int]:
    """Return the bundle of each member, by its index. With enough bundles each member has its own.

    Raises:
        JobSpecError: The members do not fit into so many bundles of these amounts.
    """
    members = members_of(spec)
    for member in members:
        wanted = replica_of(spec, member.role).resources
        if not wanted <= bundle:
            raise JobSpecError(f"{member} takes {wanted}, and each bundle of the gang has {bundle}; give the bundles more")
    if size >= len(members):
        return {member: index for index, member in enumerate(members)}
    places = _places(spec, bundle)
    if max(places) >= size:
        needed = counted(1 + max(places), "bundle")
        raise JobSpecError(f"the members need {needed} of {bundle}, and the gang has {size}; give the gang that size")
    return dict(zip(members, places, strict=True))


def _without_code(part: Any) -> Any:
    return {key: value for key, value in part.items() if key not in CODE_KEYS} if isinstance(part, Mapping) else part


def _places(spec: JobSpec, bundle: ResourceSet) -> list[int]:
    """Return the first bundle with room for each member, in order of ranks."""
    places: list[int] = []
    free: list[ResourceSet] = []
    roles: list[tuple[ReplicaSpec | WorkerSetSpec, int]] = [(spec.leader, 1)]
    roles += [(workers, workers.counts) for workers in spec.worker_sets]
    for role, count in roles:
        index = 0  # Equal members: a bundle that had no room for one has none for the next.
        for _ in range(count):
            while index < len(free) and not role.resources <= free[index]:
                index += 1
            if index == len(free):
                free.append(bundle)
            free[index] -= role.resources
            places.append(index)
    return places


def _refused(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((key, REFUSED[key]) for key in raw if key in REFUSED)
    clean, policy = raw.get("cleanPodPolicy", raw.get("clean_pod_policy")), raw.get("schedulerPolicy", raw.get("scheduler_policy"))
    if clean is not None and clean != CleanPolicy.ALL.value:
        yield _written("cleanPodPolicy", raw), _ALL_END
    if isinstance(policy, Mapping):
        for key in policy:
            where = f"{_written('schedulerPolicy', raw)}.{key}"
            if to_camel(key) == "jobQueuePolicy":
                yield where, _ONE_ORDER
            elif to_camel(key) == "basicPolicy" and policy[key] != BasicPolicy.GANG.value:
                yield where, _ONE_GANG
    leader, sets = raw.get("leader"), raw.get("workerSets", raw.get("worker_sets"))
    parts = [("leader", leader)] if isinstance(leader, Mapping) else []
    if isinstance(sets, (list, tuple)):
        parts += [(f"{_written('workerSets', raw)}.{number}", part) for number, part in enumerate(sets) if isinstance(part, Mapping)]
    for where, part in parts:
        yield from ((f"{where}.{key}", _MEMBER_REFUSED[key]) for key in part if key in _MEMBER_REFUSED)


def _written(key: str, raw: Mapping[str, Any]) -> str:
    """Return the key as the user spells it."""
    return key if key in raw else next((own for own in raw if to_camel(own) == key), key)
