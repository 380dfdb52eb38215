"""Handle of a submitted job."""

from __future__ import annotations

import time
from typing import Any

import cloudpickle

from mesh.core.ids import JobId
from mesh.core.reasons import Reason
from mesh.jobs.members import Member, member_task
from mesh.jobs.states import MemberState, Stage
from mesh.jobs.views import JobView
from mesh.ray.local.agent_messages import Ended
from mesh.ray.local.client.checked_calls import Count, Seconds, checked
from mesh.ray.local.client.large_values import value_of
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.client.task_handle import TaskHandle
from mesh.ray.local.supervision_errors import JobFailed, JobTerminated, NotOverYet, SubmissionError
from mesh.ray.local.verbs import JobVerbs

_FOREVER_S = 1e9


@checked()
class JobHandle:
    """Client of one job. Can be pickled; the job does not depend on it."""

    def __init__(self, link: SupervisorLink, job: JobId) -> None:
        self.job = job
        self._link = link

    def __reduce__(self) -> tuple[type[JobHandle], tuple[SupervisorLink, JobId]]:
        return type(self), (self._link, self.job)

    def __repr__(self) -> str:
        return f"JobHandle({self.job!r})"

    def status(self) -> JobView:
        """Return the job's stage, schedule state, reason, and members."""
        return self._link.ask(JobVerbs.job, self.job)

    def wait(self, timeout_s: Seconds | None = None) -> JobView:
        """Wait until the job is over and its members are cleaned up, or until the timeout; return its status."""
        deadline = time.monotonic() + (timeout_s if timeout_s is not None else _FOREVER_S)
        while True:
            view: JobView = self._link.ask(JobVerbs.wait_job, self.job, max(0.0, deadline - time.monotonic()))
            is_stopping = any(member.state is MemberState.STOPPING for member in view.members)
            if (view.is_over and not is_stopping) or time.monotonic() >= deadline:
                return view

    def terminate(self) -> JobView:
        """Terminate the job: stop its members and clean them up as the spec says. Idempotent."""
        return self._link.ask(JobVerbs.terminate_job, self.job)

    def result(self, timeout_s: Seconds | None = None) -> Any:
        """Return the result of the leader's entry method.

        Raises:
            JobFailed: The job failed: its leader failed too often, too few workers were left, or no nodes could ever hold it.
            JobTerminated: A user terminated it.
            NotOverYet: It is not over in time; the message names its stage.
        """
        view = self.wait(timeout_s)
        if not view.is_over:
            why = f", {view.reason.value}: {view.detail}" if view.reason is not None else ""
            raise NotOverYet(f"job {self.job} is {view.stage.value}{why}")
        answer: tuple[Ended, Any | None] | None = self._link.ask(JobVerbs.job_result, self.job)
        if view.stage is Stage.FAILED:
            raise _failure(view, answer[0] if answer is not None else None)
        if view.reason is Reason.CANCELLED_BY_USER:
            raise JobTerminated(f"job {self.job} was terminated before its leader returned: {view.detail}")
        if answer is None:
            return None
        return value_of(*answer, f"job {self.job}")

    def member(self, role: str, index: Count = 0) -> TaskHandle:
        """Return the current task of the leader (`"leader"`), or of a worker of a set, to call its methods or read its result.

        Raises:
            SubmissionError: The job has no such member, or the member was not started yet.
        """
        wanted = Member(role, index)
        found = next((one for one in self.status().members if one.name == str(wanted)), None)
        if found is None or not found.attempt:
            raise SubmissionError(f"member {wanted} of job {self.job} " + ("does not exist" if found is None else "has not started yet"))
        return TaskHandle(self._link, member_task(self.job, wanted, found.attempt))


def _failure(view: JobView, ended: Ended | None) -> JobFailed:
    reason = view.reason.value if view.reason is not None else "Failed"
    failure = JobFailed(f"job {view.job} failed, {reason}: {view.detail}")
    if ended is not None and ended.pickled is not None:
        try:
            failure.__cause__ = cloudpickle.loads(ended.pickled)
        except Exception:  # noqa: BLE001 - its class may be unknown in this process; the text remains
            return failure
    return failure
