"""A job as its user describes it: one leader, and sets of workers that are alike.

The leader is what learns or coordinates, the workers are told its address. The words are those of the job files of
TY-Arranger (`minWorkersNum`, `cleanPodPolicy`, …), which `mesh.jobs.form` reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mesh.counting import counted
from mesh.errors import JobSpecError, SelectorError
from mesh.ids import JobId, LabelName, PoolName, TenantPath
from mesh.labels import check_selector
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.tasks import NO_LABEL, NO_TENANT

LEADER = "leader"  #: The role of the leader; no worker set may be called so.
PRIORITY_MIN, PRIORITY_MAX = 1, 10

_JOB_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_SET_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


class CleanPolicy(str, Enum):
    """What is removed when the job is over (`cleanPodPolicy`)."""

    ALL = "All"
    """All members: those that run are stopped, and what is kept of those that have ended is let go."""
    RUNNING = "Running"
    """The members that still run; those that have ended stay to be looked at."""
    NONE = "None"
    """Nothing: members that run go on until they end by themselves."""


class JobQueuePolicy(str, Enum):
    """In which order waiting jobs are placed (`jobQueuePolicy`)."""

    PRIORITY = "Priority"
    """The higher priority first; of equals the one that came first."""
    DRF = "DRF"
    """Dominant resource fairness: the job that holds the smallest dominant share first, member by member."""


class BasicPolicy(str, Enum):
    """On which nodes the members of one job go (`basicPolicy`)."""

    GANG = "Gang"
    """All members at once or none, close together."""
    BIN_PACK = "BinPack"
    """On the fullest node that has room, so that empty ones stay empty."""
    LEADER_FIRST = "LeaderFirst"
    """The leader on an emptier node, the workers on fuller ones."""
    MIN_FRAGMENT = "MinFragment"
    """Where the shares of CPU and memory in use stay closest to each other."""
    JOB_AFFINITY = "JobAffinity"
    """Next to other members of the job."""
    JOB_ANTI_AFFINITY = "JobAntiAffinity"
    """Away from other members of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """The leader."""

    name: str = LEADER  #: For people; its role is `leader` whatever it is called.
    resources: ResourceSet = NOTHING
    selector: Mapping[str, str] = field(default_factory=dict)  #: Beside the job's own.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetSpec:
    """Workers that are alike."""

    name: str
    resources: ResourceSet = NOTHING
    counts: int = 1
    selector: Mapping[str, str] = field(default_factory=dict)  #: Beside the job's own.


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a job."""

    key: str  #: `worker_sets.actors.counts`.
    text: str  #: What is wrong, and what to write instead.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job, checked.

    Raises:
        JobSpecError: With a line for each thing that is wrong, when it is made.
    """

    job: JobId
    pool: PoolName
    leader: ReplicaSpec
    worker_sets: tuple[WorkerSetSpec, ...] = ()
    min_workers_num: int = 1  #: As many make the job start; with `Gang` all of them do, whatever stands here.
    restart_limit: int = 3  #: How often the leader, and each worker, is started again after it failed.
    clean_pod_policy: CleanPolicy = CleanPolicy.ALL
    priority: int = 5  #: 1 to 10; the higher goes first, and from 8 on its members may take reserved placement groups.
    job_queue_policy: JobQueuePolicy = JobQueuePolicy.PRIORITY
    basic_policy: BasicPolicy = BasicPolicy.BIN_PACK
    terminating: bool = False  #: To be ended: it is over as soon as this is seen.
    label: LabelName = NO_LABEL
    tenant: TenantPath = NO_TENANT
    selector: Mapping[str, str] = field(default_factory=dict)  #: What the labels of all its nodes must say.
    work: str = ""  #: A digest of what its members run: the same name with other work is another job.

    def __post_init__(self) -> None:
        problems = tuple(_problems(self))
        if problems:
            raise JobSpecError("\n".join(f"{problem.key}: {problem.text}" for problem in problems))

    @property
    def workers_num(self) -> int:
        """How many workers it has when all of them are up."""
        return sum(workers.counts for workers in self.worker_sets)

    @property
    def workers_needed(self) -> int:
        """With fewer it does not start, and does not go on."""
        return self.workers_num if self.basic_policy is BasicPolicy.GANG else self.min_workers_num


def _problems(spec: JobSpec) -> Iterator[Problem]:
    if not _JOB_NAME.fullmatch(spec.job):
        yield Problem("name", f"{spec.job!r} is no name; use 1 to 128 letters, digits, `.`, `_`, `-`, no sign at an end")
    if not spec.pool:
        yield Problem("pool", "is empty; name the pool whose nodes and quota the job uses")
    if not PRIORITY_MIN <= spec.priority <= PRIORITY_MAX:
        yield Problem("priority", f"{spec.priority} is not from {PRIORITY_MIN} to {PRIORITY_MAX}; 5 is the usual one, 10 goes first")
    if spec.restart_limit < 0:
        yield Problem("restart_limit", f"{spec.restart_limit} is below 0; write 0 for a job whose members are never started again")
    yield from _set_problems(spec)
    yield from _minimum_problems(spec)
    for key, selector in _selectors(spec):
        try:
            check_selector(selector)
        except SelectorError as wrong:
            yield Problem(key, str(wrong))


def _set_problems(spec: JobSpec) -> Iterator[Problem]:
    for name, times in Counter(workers.name for workers in spec.worker_sets).items():
        if times > 1:
            yield Problem("worker_sets", f"{times} sets are called {name!r}; give each its own name")
        if name == LEADER:
            yield Problem("worker_sets", f"no set may be called {LEADER!r}, as the leader is; choose another name")
        elif not _SET_NAME.fullmatch(name):
            yield Problem("worker_sets", f"{name!r} is no name of a set; use 1 to 63 letters, digits, `_` and `-`")
    for workers in spec.worker_sets:
        if workers.counts < 1:
            yield Problem(f"worker_sets.{workers.name}.counts", f"{workers.counts} is below 1; write at least 1, or leave the set out")


def _minimum_problems(spec: JobSpec) -> Iterator[Problem]:
    if spec.min_workers_num < 0:
        yield Problem("min_workers_num", f"{spec.min_workers_num} is below 0; write 0 for a leader that needs no workers to start")
    elif not spec.worker_sets and spec.min_workers_num > 0:
        yield Problem(
            "min_workers_num",
            f"{spec.min_workers_num} is wanted, and there is no worker set; add `worker_sets`, or write 0 for a leader alone",
        )
    elif spec.min_workers_num > spec.workers_num and all(workers.counts > 0 for workers in spec.worker_sets):
        yield Problem(
            "min_workers_num",
            f"{spec.min_workers_num} is more than the {counted(spec.workers_num, 'worker')} of all sets together; "
            "lower it, or raise a set's `counts`",
        )


def _selectors(spec: JobSpec) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "selector", spec.selector
    yield "leader.selector", spec.leader.selector
    for workers in spec.worker_sets:
        yield f"worker_sets.{workers.name}.selector", workers.selector
