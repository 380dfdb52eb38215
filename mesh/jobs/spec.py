"""Validated description of a job: one leader, and sets of identical workers.

The leader learns or coordinates; the workers get its address. The terms are those of TY-Arranger's job files (`minWorkersNum`,
`cleanPodPolicy`, …), which `mesh.jobs.form` reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mesh.core.counting import counted
from mesh.core.ids import JobId, LabelName, PoolName, TenantPath
from mesh.core.labels import check_selector
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.task_spec import NO_LABEL, NO_TENANT
from mesh.errors import JobSpecError, SelectorError

LEADER = "leader"  #: Role of the leader; no worker set may have this name.
PRIORITY_MIN, PRIORITY_MAX = 1, 10

_JOB_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_SET_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


class CleanPolicy(str, Enum):
    """Members removed when the job is over (`cleanPodPolicy`)."""

    ALL = "All"
    """All members: running ones are stopped, and what is retained of ended ones is released."""
    RUNNING = "Running"
    """Running members; ended ones are retained for inspection."""
    NONE = "None"
    """Nothing: running members continue until they end by themselves."""


class JobQueuePolicy(str, Enum):
    """Order in which waiting jobs are placed (`jobQueuePolicy`)."""

    PRIORITY = "Priority"
    """Higher priority first; among equals the earlier arrival."""
    DRF = "DRF"
    """Dominant resource fairness: the job with the smallest dominant share first, member by member."""


class BasicPolicy(str, Enum):
    """Nodes for the members of one job (`basicPolicy`)."""

    GANG = "Gang"
    """All members at once or none, packed."""
    BIN_PACK = "BinPack"
    """The fullest node that fits, so that empty ones stay empty."""
    LEADER_FIRST = "LeaderFirst"
    """The leader on an emptier node, the workers on fuller ones."""
    MIN_FRAGMENT = "MinFragment"
    """The node where the used shares of CPU and memory stay closest."""
    JOB_AFFINITY = "JobAffinity"
    """Near other members of the job."""
    JOB_ANTI_AFFINITY = "JobAntiAffinity"
    """Away from other members of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """The leader."""

    name: str = LEADER  #: For people; the role is always `leader`.
    resources: ResourceSet = NOTHING
    selector: Mapping[str, str] = field(default_factory=dict)  #: In addition to the job's own.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetSpec:
    """Set of identical workers."""

    name: str
    resources: ResourceSet = NOTHING
    counts: int = 1
    selector: Mapping[str, str] = field(default_factory=dict)  #: In addition to the job's own.


@dataclass(frozen=True, slots=True)
class JobSpecProblem:
    """Problem in a job's description."""

    key: str  #: For example `worker_sets.actors.counts`.
    text: str  #: Problem and remedy.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A validated job.

    Raises:
        JobSpecError: On construction, with one line per problem.
    """

    job: JobId
    pool: PoolName
    leader: ReplicaSpec
    worker_sets: tuple[WorkerSetSpec, ...] = ()
    min_workers_num: int = 1  #: Workers needed to start; ignored with `Gang`, which needs all of them.
    restart_limit: int = 3  #: Restarts after failures, for the leader and for each worker.
    clean_pod_policy: CleanPolicy = CleanPolicy.ALL
    priority: int = 5  #: 1 to 10; higher goes first, and from 8 on members may use reserved placement groups.
    job_queue_policy: JobQueuePolicy = JobQueuePolicy.PRIORITY
    basic_policy: BasicPolicy = BasicPolicy.BIN_PACK
    terminating: bool = False  #: End the job as soon as this is seen.
    label: LabelName = NO_LABEL
    tenant: TenantPath = NO_TENANT
    selector: Mapping[str, str] = field(default_factory=dict)  #: Required labels of all its nodes.
    work: str = ""  #: Digest of the members' code: the same name with other code is another job.

    def __post_init__(self) -> None:
        problems = tuple(_problems(self))
        if problems:
            raise JobSpecError("\n".join(f"{problem.key}: {problem.text}" for problem in problems))

    @property
    def workers_num(self) -> int:
        """Number of workers in all sets."""
        return sum(workers.counts for workers in self.worker_sets)

    @property
    def workers_needed(self) -> int:
        """Number of workers without which the job neither starts nor continues."""
        return self.workers_num if self.basic_policy is BasicPolicy.GANG else self.min_workers_num


def _problems(spec: JobSpec) -> Iterator[JobSpecProblem]:
    if not _JOB_NAME.fullmatch(spec.job):
        yield JobSpecProblem(
            "name", f"invalid name {spec.job!r}; use 1 to 128 letters, digits, `.`, `_`, `-`, beginning and ending with a letter or digit"
        )
    if not spec.pool:
        yield JobSpecProblem("pool", "is empty; name the pool whose nodes and quota the job uses")
    if not PRIORITY_MIN <= spec.priority <= PRIORITY_MAX:
        yield JobSpecProblem(
            "priority", f"must be from {PRIORITY_MIN} to {PRIORITY_MAX}, got {spec.priority}; 5 is the default, 10 goes first"
        )
    if spec.restart_limit < 0:
        yield JobSpecProblem("restart_limit", f"must be at least 0, got {spec.restart_limit}; 0 means no restarts")
    yield from _set_problems(spec)
    yield from _minimum_problems(spec)
    for key, selector in _selectors(spec):
        try:
            check_selector(selector)
        except SelectorError as wrong:
            yield JobSpecProblem(key, str(wrong))


def _set_problems(spec: JobSpec) -> Iterator[JobSpecProblem]:
    for name, times in Counter(workers.name for workers in spec.worker_sets).items():
        if times > 1:
            yield JobSpecProblem("worker_sets", f"{times} sets are called {name!r}; give each set its own name")
        if name == LEADER:
            yield JobSpecProblem("worker_sets", f"{LEADER!r} is reserved for the leader; choose another name for the set")
        elif not _SET_NAME.fullmatch(name):
            yield JobSpecProblem("worker_sets", f"invalid name of a set {name!r}; use 1 to 63 letters, digits, `_` and `-`")
    for workers in spec.worker_sets:
        if workers.counts < 1:
            yield JobSpecProblem(f"worker_sets.{workers.name}.counts", f"must be at least 1, got {workers.counts}; or leave the set out")


def _minimum_problems(spec: JobSpec) -> Iterator[JobSpecProblem]:
    if spec.min_workers_num < 0:
        yield JobSpecProblem(
            "min_workers_num", f"must be at least 0, got {spec.min_workers_num}; 0 means that the leader needs no workers to start"
        )
    elif not spec.worker_sets and spec.min_workers_num > 0:
        yield JobSpecProblem(
            "min_workers_num",
            f"{spec.min_workers_num} needed, but there is no worker set; add `worker_sets`, or write 0 for a leader alone",
        )
    elif spec.min_workers_num > spec.workers_num and all(workers.counts > 0 for workers in spec.worker_sets):
        yield JobSpecProblem(
            "min_workers_num",
            f"{spec.min_workers_num} is more than the {counted(spec.workers_num, 'worker')} of all sets together; "
            "lower it, or raise a set's `counts`",
        )


def _selectors(spec: JobSpec) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "selector", spec.selector
    yield "leader.selector", spec.leader.selector
    for workers in spec.worker_sets:
        yield f"worker_sets.{workers.name}.selector", workers.selector
