"""One scheduling domain on a Ray cluster: queues, quota, placement, preemption, agents. `ScheduleMesh` is its face.

Names that need Ray are imported on first use, so `import mesh.core.ids` stays cheap. Imports go down this list only:

    ray            a mesh on Ray: stage runner, local mesh, clusters
    conformance    cases of other systems, run on the cores below
    observability  metrics, targets and histories of tasks
    tasks          the local scheduler: queue, order, admit, place, preempt
    jobs           a leader and worker sets, as one
    actors         selection of agents for a call on many
    stages         a stage of the federation on a mesh
    placement      nodes for tasks; placement groups kept for reuse
    preemption     the choice of victims
    policies       choice of a node, by name
    core           ids, quantities, nodes, labels, pools, reasons

Users import two modules besides:

    errors         all errors, as one tree
    plugins        a user's own scores and orders, fenced
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
    "RequestRefused",
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

_LOCAL = "mesh.ray.local"
_HOMES = {
    "CancelContext": "mesh.core.saved_state",
    "DriverSettings": f"{_LOCAL}.supervisor.driver",
    "GroupPoolSpec": "mesh.core.shapes",
    "GroupShape": "mesh.core.shapes",
    "JobHandle": f"{_LOCAL}.client.job_handle",
    "JobSettings": f"{_LOCAL}.supervisor.job_reconciler",
    "JobSpec": "mesh.jobs.spec",
    "JobSpecError": "mesh.errors",
    "JobView": "mesh.jobs.views",
    "Reason": "mesh.core.reasons",
    "RequestRefused": f"{_LOCAL}.status_values",
    "ResourceSet": "mesh.core.resources",
    "RestoreContext": "mesh.core.saved_state",
    "SavedState": "mesh.core.saved_state",
    "ScheduleMesh": f"{_LOCAL}.client.schedule_mesh",
    "SchedulerSettings": "mesh.tasks.settings",
    "TaskHandle": f"{_LOCAL}.client.task_handle",
    "TaskState": "mesh.core.task_spec",
    "current_task": f"{_LOCAL}.agent.agent_context",
    "register_state_handlers": "mesh.core.saved_state",
    "running_mesh": f"{_LOCAL}.client.schedule_mesh",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mesh' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
