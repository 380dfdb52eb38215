"""Requests about jobs; the job desk does the work."""

from __future__ import annotations

from typing import Any

from mesh.core.ids import JobId
from mesh.jobs.spec import JobSpec
from mesh.jobs.views import JobView
from mesh.ray.local.agent_messages import Ended
from mesh.ray.local.store.task_payloads import JobPayload
from mesh.ray.local.supervision_errors import JobExists
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.supervised_mesh import WAIT_S_MAX, SupervisedMesh


class JobHandlers(SupervisedMesh):
    async def submit_job(self, spec: JobSpec, work: JobPayload) -> JobView:
        """Submit a job. Idempotent for the same spec. Return its status.

        Raises:
            JobExists: Another job has this name.
            SubmissionError: The job asks for a resource that neither a node nor a pool has.
            PoolUnknown: The pool does not exist; a submitted job stays known when its pool is gone.
        """
        await self._ready
        if spec.job not in self._loop.jobs.jobs:
            views.check_pool(self._state, spec.pool, spec.leader.resources, *(workers.resources for workers in spec.worker_sets))
        refused = self._jobs.submit(spec, work)
        if refused is not None:
            raise JobExists(refused.detail)
        return self._jobs.view(spec.job)

    async def job(self, job: JobId) -> JobView:
        """Return the job's status. Raises `JobUnknown`."""
        await self._ready
        return self._jobs.view(job)

    async def jobs(self) -> list[JobView]:
        """Return all remembered jobs, oldest first."""
        await self._ready
        return self._jobs.views()

    async def wait_job(self, job: JobId, timeout_s: float) -> JobView:
        """Wait until the job is over and cleaned up, at most `WAIT_S_MAX`; return its status."""
        await self._ready
        await self._jobs.until_over(job, min(timeout_s, WAIT_S_MAX))
        return self._jobs.view(job)

    async def terminate_job(self, job: JobId) -> JobView:
        await self._ready
        self._jobs.terminate(job)
        return self._jobs.view(job)

    async def job_result(self, job: JobId) -> tuple[Ended, Any | None] | None:
        """Return the end of the leader's entry method, and the reference of a large value; None before the end."""
        await self._ready
        self._jobs.view(job)
        return self._payloads.job_ended(job)
