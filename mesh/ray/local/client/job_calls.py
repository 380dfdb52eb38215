"""Calls about jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mesh.core.ids import JobId, TaskId
from mesh.core.saved_state import plain_class
from mesh.jobs.spec import LEADER, JobSpec
from mesh.jobs.views import JobView
from mesh.ray.local.agent_messages import METRICS_PERIOD_MS, HostCommand, JobPayload
from mesh.ray.local.client.checked_calls import Milliseconds, Values, checked
from mesh.ray.local.client.job_handle import JobHandle
from mesh.ray.local.client.parsing import read_class, read_job_spec, read_method, read_values
from mesh.ray.local.client.payload_digest import payload_digest
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.supervision_errors import SubmissionError
from mesh.ray.local.verbs import JobVerbs


@checked()
class JobCalls:
    """Calls that submit and list jobs of a leader and worker sets."""

    def __init__(self, link: SupervisorLink) -> None:
        self._link = link

    def submit_job(
        self,
        spec: JobSpec | Mapping[str, Any] | str | Path,
        *,
        leader: Any,
        workers: Mapping[str, Any] | None = None,
        args: Mapping[str, Values] | None = None,
        kwargs: Mapping[str, Mapping[str, Any]] | None = None,
        method: str | None = "run",
        environment: Mapping[str, str] | None = None,
        metrics_period_ms: Milliseconds = METRICS_PERIOD_MS,
    ) -> JobHandle:
        """Submit a leader and sets of workers, placed, started, restarted and cleaned up as one job (`docs/mesh/jobs.md`).

        The leader starts first. Its `address`, an attribute or a method, reaches the workers as `SCHEDULEMESH_LEADER_ADDRESS`; a
        leader without one finds a free address of its node under that name in its own environment. Idempotent for the same job.

        Args:
            spec: The job, as `JobSpec`, as a mapping, as the text of a YAML document, or as the path of one.
            leader: Class of the leader.
            workers: Class of each worker set, by its name.
            args: Arguments of the constructors, by role: `{"leader": (…), "actors": (…)}`.
            kwargs: Keyword arguments of the constructors, by role.
            method: Method that each member runs when it is up. The leader must have it: the job is over when it returns. Workers
                without it stay until the job is over. None: no method runs, and the job stays until `terminate`.
            environment: Environment variables of all members, beside those that the mesh sets.
            metrics_period_ms: Period of the members' reports.
        Raises:
            JobSpecError: The job contradicts itself, or a key is unknown: a line for each.
            SubmissionError: A role has no class, or a class no role; the leader has no such method.
            PoolUnknown: The pool does not exist.
            JobExists: Another job has this name.
        """
        job = read_job_spec(spec)
        classes = {LEADER: leader, **(workers or {})}
        roles = {LEADER, *(each.name for each in job.worker_sets)}
        for role in sorted((roles ^ classes.keys()) | ((set(args or ()) | set(kwargs or ())) - roles)):
            why = "has no class; give it in `workers`" if role in roles else f"is not a role; the roles are {', '.join(sorted(roles))}"
            raise SubmissionError(f"job {job.job}: {role!r} {why}")
        read_class(leader, "leader")
        try:
            read_method(leader, method)
        except SubmissionError as wrong:
            raise SubmissionError(f"leader: {wrong}; use None for a job that runs until `terminate`") from None
        given = {role: ((args or {}).get(role, ()), (kwargs or {}).get(role, {})) for role in classes}
        commands = {
            role: HostCommand(
                task=TaskId(""),
                attempt=0,
                code=read_class(kind, LEADER if role == LEADER else f"workers[{role!r}]"),
                arguments=read_values(f"{role}: ", *given[role]),
                entry=method if method is not None and callable(getattr(plain_class(kind), method, None)) else None,
                environment=dict(environment or {}),
                metrics_period_ms=metrics_period_ms,
            )
            for role, kind in classes.items()
        }
        digests = (
            payload_digest(classes[role], given[role], command.entry, None, command.environment)
            for role, command in sorted(commands.items())
        )
        job = replace(job, work=" ".join(digests))
        self._link.ask(JobVerbs.submit_job, job, JobPayload(commands=commands))
        return JobHandle(self._link, job.job)

    def job(self, name: str) -> JobHandle:
        """Return the handle of a job that was submitted by any client. Raises `JobUnknown`."""
        handle = JobHandle(self._link, JobId(name))
        handle.status()
        return handle

    def list_jobs(self) -> list[JobView]:
        """Return all remembered jobs, oldest first."""
        return self._link.ask(JobVerbs.jobs)
