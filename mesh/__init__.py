"""One scheduling domain on a Ray cluster: queues, quota, placement, preemption, agents. `ScheduleMesh` is its face.

What needs Ray is imported when it is asked for, so that `import mesh.ids` costs nothing.

Its rooms:

    scheduling           tasks: who is placed where, who gives way      policies              how a node is chosen, by name
    jobs                 a leader and worker sets, as one               actors                whom a call on many agents reaches
    runtime              all of it on Ray                               conformance           cases that others made, run against the core

Quantities, and what there is of them:

    resources            integers in one immutable value                amounts               one counted quantity, in 1/10 000 of a unit
    nodes                a cluster as arrays: in all, taken, promised   labels                what nodes are, and what work says about them
    instances            which GPU, or which half of it                 instance_sets         all resources of a node by instance
    instance_pools       one resource of a node: free, held, leaving    pools                 who holds what of a mesh's quota

Stages of the federation, let in:

    stages               what a mesh gets as one, and argument forms    admission             room in pools, inside what leases grant
    admission_kinds      what refuses one of a kind refuses all         admission_order       who of a tenant comes first
    stage_preemption     who stops for a tenant's more urgent stage     admission_events      what admission is told
    admission_decisions  what it wants done                             admission_invariants  what must hold of it after every step
    lease_deadline       until when proved leases let work go on

And run:

    hosting              the port to whatever runs stages               stage_machine         which tasks go now, which never will
    idle_groups          which kept groups serve again, which must go   arguments             forms to arguments, and back to nodes
    values               where a task's bytes are, how to check them    messages              what a mesh tells of the stages it runs
    saved_state          what is kept of a task that gives way          plugins               a user's own scores and orders, fenced

What all share:

    ids                  names of things, each a type of its own        clock                 time, passed in
    random_stream        a stream of numbers that its seed gives again  reasons               every named cause of waiting or refusal
    errors               what can break, as one tree                    wire                  frozen values to JSON bytes and back, strictly
    counting             `1 slot`, `2 slots`                            simulated_host        a stage host without Ray, in virtual time
    printable            what names may not hold, and texts show escaped
    near_names           what a wrong name was meant to be
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

_SUPERVISION = "mesh.runtime.supervision"
_HOMES = {
    "CancelContext": "mesh.saved_state",
    "DriverSettings": f"{_SUPERVISION}.driver",
    "GroupPoolSpec": "mesh.scheduling.shapes",
    "GroupShape": "mesh.scheduling.shapes",
    "JobHandle": f"{_SUPERVISION}.job_handle",
    "JobSettings": f"{_SUPERVISION}.job_reconciler",
    "JobSpec": "mesh.jobs.spec",
    "JobSpecError": "mesh.errors",
    "JobView": "mesh.jobs.views",
    "Reason": "mesh.reasons",
    "RequestRefused": f"{_SUPERVISION}.status_values",
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
