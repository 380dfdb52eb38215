"""What the driver wants to know of tasks: a port, as code and results are none of its business."""

from __future__ import annotations

from typing import Any, Protocol

from mesh.ids import TaskId, TenantPath
from mesh.runtime.supervision.agent_orders import Ended, Hosted, HostOrder, Stopped
from mesh.scheduling.decisions import StartTask


class Works(Protocol):
    """Where the driver finds what a task runs, and leaves what is kept of it."""

    def host_order(self, order: StartTask) -> HostOrder | None:
        """The task's code and arguments, and its kept state when it resumes; None when they are lost."""
        ...

    def tenant(self, task: TaskId) -> TenantPath:
        """Whose task it is."""
        ...

    def is_call(self, task: TaskId) -> bool:
        """Is it a call on an agent that is up, which the caller makes itself?"""
        ...

    def has_entry(self, task: TaskId) -> bool:
        """Does it have an entry method, which ends it?"""
        ...

    def keep_hosted(self, hosted: Hosted) -> None:
        """Keep where others reach it."""
        ...

    def keep_stopped(self, stopped: Stopped) -> str:
        """Keep the state that came with the answer; what of it was not kept, and why, empty when all was."""
        ...

    def keep_ended(self, ended: Ended, value: Any | None) -> None:
        """Keep what the entry method returned or raised."""
        ...
