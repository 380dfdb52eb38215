"""Port between the driver and task payloads: the driver never reads code or results."""

from __future__ import annotations

from typing import Any, Protocol

from mesh.core.ids import TaskId, TenantPath
from mesh.ray.local.agent_messages import Ended, HostCommand, Hosted, Stopped
from mesh.tasks.decisions import StartTask


class DriverPayloads(Protocol):
    """Payloads of tasks, and storage of what tasks leave behind."""

    def host_command(self, order: StartTask) -> HostCommand | None:
        """Return the task's code and arguments, and its saved state when it resumes; None when they are lost."""
        ...

    def tenant(self, task: TaskId) -> TenantPath: ...

    def is_call(self, task: TaskId) -> bool:
        """Return whether the task is a call on a running agent, which the caller makes itself."""
        ...

    def has_entry(self, task: TaskId) -> bool:
        """Return whether the task has an entry method, whose end is the task's end."""
        ...

    def keep_hosted(self, hosted: Hosted) -> None:
        """Keep the address where others reach the object."""
        ...

    def keep_stopped(self, stopped: Stopped) -> str:
        """Keep the state that came with the answer. Return why a part was not kept; empty when all was."""
        ...

    def keep_ended(self, ended: Ended, value: Any | None) -> None:
        """Keep the result or the error of the entry method."""
        ...
