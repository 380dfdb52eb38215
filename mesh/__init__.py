"""One scheduling domain on a Ray cluster: queues, quota, placement, preemption, agents. `ScheduleMesh` is its face.

What needs Ray is imported when it is asked for, so that `import mesh.ids` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "CancelContext",
    "DriverSettings",
    "GroupPoolSpec",
    "GroupShape",
    "JobHandle",
    "JobSettings",
    "JobSpec",
    "JobSpecError",
    "JobView",
    "Reason",
    "Refused",
    "ResourceSet",
    "RestoreContext",
    "SavedState",
    "ScheduleMesh",
    "SchedulerSettings",
    "TaskHandle",
    "TaskState",
    "current_task",
    "register_state_handlers",
    "running_mesh",
]

_SUPERVISION = "mesh.runtime.supervision"
_HOMES = {
    "CancelContext": "mesh.saved_state",
    "DriverSettings": f"{_SUPERVISION}.driver",
    "GroupPoolSpec": "mesh.scheduling.shapes",
    "GroupShape": "mesh.scheduling.shapes",
    "JobHandle": f"{_SUPERVISION}.job_handle",
    "JobSettings": f"{_SUPERVISION}.job_desk",
    "JobSpec": "mesh.jobs.spec",
    "JobSpecError": "mesh.errors",
    "JobView": "mesh.jobs.views",
    "Reason": "mesh.reasons",
    "Refused": f"{_SUPERVISION}.answers",
    "ResourceSet": "mesh.resources",
    "RestoreContext": "mesh.saved_state",
    "SavedState": "mesh.saved_state",
    "ScheduleMesh": f"{_SUPERVISION}.schedule_mesh",
    "SchedulerSettings": "mesh.scheduling.settings",
    "TaskHandle": f"{_SUPERVISION}.task_handle",
    "TaskState": "mesh.scheduling.tasks",
    "current_task": f"{_SUPERVISION}.agent_context",
    "register_state_handlers": "mesh.saved_state",
    "running_mesh": f"{_SUPERVISION}.schedule_mesh",
}


def __getattr__(name: str) -> Any:
    """The public names, each from its module."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mesh' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
