"""Answers the verbs about jobs; the job reconciler does the work."""

from __future__ import annotations

from typing import Any

from mesh.core.ids import JobId
from mesh.jobs.spec import JobSpec
from mesh.jobs.views import JobView
from mesh.ray.local.agent_messages import Ended, JobPayload
from mesh.ray.local.store.task_payloads import TaskPayloads
from mesh.ray.local.supervision_errors import JobExists
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.ray.local.supervisor.job_reconciler import JobReconciler
from mesh.ray.local.verbs import WAIT_S_MAX


class JobService:
    def __init__(self, loop: ControlLoop, jobs: JobReconciler, payloads: TaskPayloads) -> None:
        self._loop = loop
        self._jobs = jobs
        self._payloads = payloads

    async def submit_job(self, spec: JobSpec, payload: JobPayload) -> JobView:
        if spec.job not in self._loop.jobs.jobs:
            amounts = (spec.leader.resources, *(workers.resources for workers in spec.worker_sets))
            views.check_pool(self._loop.state, spec.pool, *amounts)
        refused = self._jobs.submit(spec, payload)
        if refused is not None:
            raise JobExists(refused.detail)
        return self._jobs.view(spec.job)

    async def job(self, job: JobId) -> JobView:
        return self._jobs.view(job)

    async def jobs(self) -> list[JobView]:
        return self._jobs.views()

    async def wait_job(self, job: JobId, timeout_s: float) -> JobView:
        await self._jobs.until_over(job, min(timeout_s, WAIT_S_MAX))
        return self._jobs.view(job)

    async def terminate_job(self, job: JobId) -> JobView:
        self._jobs.terminate(job)
        return self._jobs.view(job)

    async def job_result(self, job: JobId) -> tuple[Ended, Any | None] | None:
        self._jobs.view(job)  # Raises if the job is unknown.
        return self._payloads.job_ended(job)
