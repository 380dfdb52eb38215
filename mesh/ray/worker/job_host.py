"""A job as a node: the task of the node starts, restarts and ends the members in the bundles of its gang.

The life of the job is that of jobs on a local mesh: `JobController` decides, and this loop carries out. Places never change, since the
gang is lost whole. The task itself takes nothing of the gang. Members are Ray actors that it owns, so they end with it, however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.core.functions import JobArgument
from mesh.core.ids import JobId, NodeName
from mesh.errors import JobFailed, JobSpecError
from mesh.jobs.controller import JobController
from mesh.jobs.decisions import StartMember, StopMember
from mesh.jobs.events import (
    JobEvent,
    JobsTicked,
    JobSubmitted,
    MemberFailed,
    MembersAllocated,
    MemberStarted,
    MemberStopped,
    MemberSucceeded,
)
from mesh.jobs.gang_form import bundles_of, read_gang_job, worker_sets_of
from mesh.jobs.members import Member, replica_of
from mesh.jobs.records import JobRecord
from mesh.jobs.snapshots import Allocation, MemberPlacement
from mesh.jobs.spec import LEADER, JobSpec
from mesh.jobs.states import MemberState, ScheduleState, Stage
from mesh.ray.cluster.node_resources import actor_options, own_resources
from mesh.ray.user_code.gang_room import note_group
from mesh.ray.user_code.trace_scope import inherited_trace
from mesh.ray.worker.job_member import JobMember, MemberCode, OutputTarget

#: Variable with the name of the job, which is the id of its node.
JOB_NAME = "SCHEDULEMESH_JOB"


@dataclass(frozen=True, slots=True)
class Heard:
    """State of one attempt of a member: it is up, it has returned, or it failed or ended."""

    member: Member
    attempt: int
    address: str | None = None  #: It is up; a leader is reached here.
    value: tuple[Any] | None = None  #: It has returned this value.
    error: BaseException | None = None


class MemberProcesses(Protocol):
    """Processes of members."""

    def start(self, member: Member, attempt: int, bundle: int, env: Mapping[str, str]) -> None:
        """Start a member in a bundle."""

    def kill(self, member: Member, attempt: int) -> None:
        """Kill a member; one that has not returned is heard of with an error. Harmless when nothing of it runs."""

    def wait(self, wait_s: float | None) -> list[Heard]:
        """Return what became of members; wait up to `wait_s` seconds for the first; None: without limit."""

    def end(self) -> None:
        """Kill all members."""


class JobHost:
    """One job from its start to its end.

    Args:
        spec: The job.
        bundles: Bundle of each member.
        processes: Processes of the members.
        now_ms: Clock that only goes forward; milliseconds.
    """

    def __init__(self, spec: JobSpec, bundles: Mapping[Member, int], processes: MemberProcesses, now_ms: Callable[[], int]) -> None:
        self._spec, self._bundles, self._processes, self._now_ms = spec, bundles, processes, now_ms
        self._controller = JobController()
        self._value: Any = None
        self._last_error: BaseException | None = None

    def run(self) -> Any:
        """Run the job; return the leader's value. All members have ended then.

        Raises:
            JobFailed: The leader failed too often, or too few workers are left; the cause is the last error.
            BaseException: The wait was interrupted.
        """
        try:
            self._send(JobSubmitted(at_ms=self._now_ms(), spec=self._spec))
            while not self._is_done():
                self._allocate()
                for heard in self._processes.wait(self._wait_s()):
                    self._note(heard)
                self._send(JobsTicked(at_ms=self._now_ms()))
        finally:
            self._processes.end()
        job = self._job
        if job.stage is Stage.FAILED:
            reason = job.reason.value if job.reason is not None else Stage.FAILED.value
            raise JobFailed(f"the job failed, {reason}: {job.detail}") from self._last_error
        return self._value

    @property
    def _job(self) -> JobRecord:
        return self._controller.jobs[self._spec.job]

    def _is_done(self) -> bool:
        return self._job.is_over and not self._job.is_stopping

    def _wait_s(self) -> float | None:
        wakes_ms = self._controller.wakes_ms()
        return None if wakes_ms is None else max(0.0, (wakes_ms - self._now_ms()) / 1000)

    def _allocate(self) -> None:
        """Give all members without a place their bundles."""
        for job in self._controller.snapshot():
            places = tuple(MemberPlacement(member, NodeName(str(self._bundles[member]))) for member in job.unplaced)
            if places:
                found = Allocation(
                    job=self._spec.job, incarnation=job.incarnation, schedule_state=ScheduleState.SCHEDULED_SUCCEED, places=places
                )
                self._send(MembersAllocated(at_ms=self._now_ms(), allocation=found))

    def _note(self, heard: Heard) -> None:
        record = self._job.members[heard.member]
        if record.attempt != heard.attempt:
            return
        job: JobId = self._spec.job
        at_ms, member, attempt = self._now_ms(), heard.member, heard.attempt
        if heard.address is not None:
            self._send(MemberStarted(at_ms=at_ms, job=job, member=member, attempt=attempt, address=heard.address))
        elif heard.value is not None:
            if member.is_leader:
                self._value = heard.value[0]
            self._send(MemberSucceeded(at_ms=at_ms, job=job, member=member, attempt=attempt))
        elif record.state is MemberState.STOPPING:
            self._send(MemberStopped(at_ms=at_ms, job=job, member=member, attempt=attempt))
        else:
            self._last_error = heard.error
            self._send(MemberFailed(at_ms=at_ms, job=job, member=member, attempt=attempt, detail=in_words(heard.error)))

    def _send(self, event: JobEvent) -> None:
        for decision in self._controller.handle(event):
            if isinstance(decision, StartMember):
                self._processes.start(decision.member, decision.attempt, int(decision.node), decision.env)
            elif isinstance(decision, StopMember):
                self._processes.kill(decision.member, decision.attempt)
                if decision.has_ended:
                    about: dict[str, Any] = {"job": decision.job, "member": decision.member, "attempt": decision.attempt}
                    self._send(MemberStopped(at_ms=self._now_ms(), **about))


class RayMembers:
    """Members as Ray actors in the bundles of a gang.

    Args:
        spec: The job.
        code: Code, arguments and method by role.
        group: The gang's placement group.
        environment: Variables of all members.
        target: Where their output goes.
    """

    def __init__(
        self,
        spec: JobSpec,
        code: Mapping[str, MemberCode],
        group: PlacementGroup,
        environment: Mapping[str, str],
        target: OutputTarget,
    ) -> None:
        self._spec, self._group, self._environment, self._target = spec, group, environment, target
        self._code = {role: ray.put(of_role) for role, of_role in code.items()}  # Once for all members of a role and their restarts.
        self._actors: dict[tuple[Member, int], Any] = {}
        self._runs: dict[tuple[Member, int], Any] = {}  #: Reference of the run of each member that is not up yet.
        self._awaited: dict[Any, tuple[Member, int]] = {}  #: Reference that each member is heard of by next.

    def start(self, member: Member, attempt: int, bundle: int, env: Mapping[str, str]) -> None:
        """Start a member in a bundle."""
        key = member, attempt
        options = actor_options(replica_of(self._spec, member.role).resources)
        strategy = PlacementGroupSchedulingStrategy(self._group, bundle, placement_group_capture_child_tasks=True)
        made: Any = ray.remote(JobMember).options(**options, max_restarts=0, scheduling_strategy=strategy)
        actor = self._actors[key] = made.remote({**self._environment, **env, JOB_NAME: self._target.node}, str(member), self._target)
        self._awaited[actor.up.remote(self._code[member.role], is_leader=member.is_leader)] = key
        self._runs[key] = actor.run.remote()

    def kill(self, member: Member, attempt: int) -> None:
        """Kill a member; see `MemberProcesses`."""
        actor = self._actors.pop((member, attempt), None)
        if actor is not None:
            ray.kill(actor)

    def wait(self, wait_s: float | None) -> list[Heard]:
        """Return what became of members; see `MemberProcesses`."""
        if not self._awaited:  # A restart pause, and nobody runs.
            time.sleep(wait_s or 0.0)
            return []
        ready, _ = ray.wait(list(self._awaited), num_returns=1, timeout=wait_s)
        return [self._heard(ref, *self._awaited.pop(ref)) for ref in ready]

    def end(self) -> None:
        """Kill all members."""
        for member, attempt in tuple(self._actors):
            self.kill(member, attempt)

    def _heard(self, ref: Any, member: Member, attempt: int) -> Heard:
        key = member, attempt
        run = self._runs.pop(key, None)
        try:
            found = ray.get(ref)
        except RayError as error:
            self.kill(*key)  # The next attempt needs its bundle.
            return Heard(member, attempt, error=error)
        if run is None:
            return Heard(member, attempt, value=(found,))
        self._awaited[run] = key
        return Heard(member, attempt, address=found)


def run_job(
    leader: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    load: Callable[[str], Callable[..., Any]],
    target: OutputTarget,
) -> Any:
    """Run a job in the gang of the present task, and return the leader's value.

    Args:
        leader: Class or function of the leader.
        args: Its arguments, with the job among them or among `kwargs`.
        kwargs: Its arguments by name.
        load: Returns a function or class by its name, `call:module:qualname`.
        target: Where the output of the members goes.

    Raises:
        JobFailed: As `JobHost.run`.
        JobSpecError: The members do not fit into the gang.
    """
    job = next(argument.described for argument in (*args, *kwargs.values()) if type(argument) is JobArgument)
    group = note_group()
    if group is None:
        raise JobSpecError("the node of the job has no gang; make it by dag.job")
    spec, bundles, method = read_gang_job(job), group.bundle_specs, job.get("method")
    own = {name: argument for name, argument in kwargs.items() if type(argument) is not JobArgument}
    code = {LEADER: MemberCode(leader, tuple(argument for argument in args if type(argument) is not JobArgument), own, method)}
    for part in worker_sets_of(job):
        function = load(f"call:{part['call']}") if "call" in part else part["function"]
        code[part["name"]] = MemberCode(function, tuple(part.get("args", ())), part.get("kwargs", {}), method)
    members = RayMembers(spec, code, group, {**inherited_trace(), **job.get("environment", {})}, target)
    return JobHost(spec, bundles_of(spec, own_resources(bundles[0]), len(bundles)), members, _now_ms).run()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def is_lost(error: BaseException) -> bool:
    """Return whether a job failed because the process of a member died, and not by an error of its code."""
    return isinstance(error, JobFailed) and _is_death(error.__cause__)


def _is_death(error: BaseException | None) -> bool:
    """Return whether the process of a member died; its own code may raise such an error of an actor of its own."""
    return isinstance(error, RayActorError) and not isinstance(error, RayTaskError)


def in_words(error: BaseException | None) -> str:
    """Return the error of a member in one line."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        return f"{type(cause).__module__}.{type(cause).__qualname__}: {cause}"
    return " ".join(f"its process ended: {error}".split())
