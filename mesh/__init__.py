"""One scheduling domain on a Ray cluster: queues, quota, placement, preemption, agents. `ScheduleMesh` is its face.

Names that need Ray are imported on first use, so `import mesh.ids` stays cheap.

Folders:

    scheduling           tasks: queueing, placement, preemption         policies              choice of a node, by name
    jobs                 a leader and worker sets, as one               actors                selection of agents for a call on many
    runtime              all of it on Ray                               conformance           cases of other systems, run on the core

Quantities and capacity:

    resources            integers in one immutable value                amounts               one counted quantity, in 1/10 000 of a unit
    nodes                a cluster as arrays: total, used, promised     labels                labels of nodes, and label selectors
    instances            numbered instances: a GPU, or half of one      instance_sets         all resources of a node by instance
    instance_pools       one resource of a node: free, held, backlog    pools                 the quota ledger of a mesh, by holder

Admission of the federation's stages:

    stages               a stage as a mesh gets it; argument forms      admission             room in pools, within the leases
    admission_kinds      stages that are refused alike                  admission_order       order of a tenant's stages
    stage_preemption     victims for a tenant's more urgent stage       admission_events      events that admission handles
    admission_decisions  decisions that admission returns               admission_invariants  invariants after every step
    lease_deadline       how long proved leases let work run

Running of stages:

    hosting              the port to a host that runs stages            stage_machine         submit, wait or drop each task of a stage
    idle_groups          kept placement groups: reuse or evict          arguments             argument forms to arguments, and to nodes
    values               where a task's bytes are, how to check them    messages              reports of a mesh about its stages
    saved_state          state that is kept of a preempted task         plugins               a user's own scores and orders, fenced

Shared:

    ids                  names of things, each a type of its own        clock                 time, passed in
    random_stream        random numbers that a seed repeats             reasons               named causes of waiting and refusal
    errors               all errors, as one tree                        wire                  frozen values to JSON bytes and back,
    strictly
    counting             `1 slot`, `2 slots`                            simulated_host        a stage host without Ray, in virtual time
    printable            characters that names may not hold; escaping
    near_names           suggestions for a wrong name
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
    """Import a public name from its module on first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mesh' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
