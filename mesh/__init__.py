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

Users import from `mesh`, and from two of its modules:

    errors         roots of the tree of errors
    plugins        a user's own scores and orders, fenced
"""

from __future__ import annotations

import importlib
from typing import Any

# fmt: off
__all__ = [
    "ActorGroup", "ArgumentError", "ByLength", "CallPreempted", "CallTimeout", "CancelContext", "ChartsMissing", "Concat",
    "DispatchError", "DriverSettings", "GangContradiction", "GroupCallFailed", "GroupCallTimeout", "GroupError",
    "GroupPoolSpec", "GroupShape", "JobExists", "JobFailed", "JobHandle", "JobSettings", "JobSpec", "JobSpecError",
    "JobTerminated", "JobUnknown", "JobView", "JournalError", "MemberLost", "MeshError", "MeshStopped", "NoCurrentTask",
    "NoMembers", "NoSuchMethod", "NodeDemand", "NodeScoringView", "NotOverYet", "PerRank", "PluginError", "PoolUnknown",
    "PreemptionRules", "PreemptionRulesError", "RankPlace", "Reason", "RequestRefused", "ResourceSet", "RestoreContext", "ResultLost",
    "RuntimeAdapterError", "SavedState", "ScheduleMesh", "SchedulerSettings", "SelectorError", "SequenceSplit", "SettingError",
    "ShapeError", "Split", "StartFailed", "StartsAgain", "StateHandlerError", "SubmissionError", "SupervisorLost", "Targets",
    "TaskExists", "TaskFailed", "TaskHandle", "TaskNotRunning", "TaskPreempted", "TaskState", "TaskUnknown", "UnknownPolicy",
    "Weights", "current_task", "load_plugins", "node_policy", "parse_cross_label", "register_state_handlers", "running_mesh",
]

#: Module to the names that it defines.
_HOMES = {
    "mesh.actors.collecting": ("Concat",),
    "mesh.actors.dispatching": ("ByLength", "SequenceSplit", "Split"),
    "mesh.actors.errors": (
        "CallTimeout", "DispatchError", "GroupCallFailed", "GroupCallTimeout", "GroupError", "MemberLost", "NoMembers",
        "ShapeError",
    ),
    "mesh.actors.per_rank": ("PerRank", "RankPlace"),
    "mesh.core.reasons": ("Reason",),
    "mesh.core.resources": ("ResourceSet",),
    "mesh.core.saved_state": ("CancelContext", "RestoreContext", "SavedState", "StateHandlerError", "register_state_handlers"),
    "mesh.core.shapes": ("GroupPoolSpec", "GroupShape"),
    "mesh.core.task_spec": ("TaskState", "Weights"),
    "mesh.errors": ("JobSpecError", "MeshError", "RuntimeAdapterError", "SelectorError"),
    "mesh.jobs.spec": ("JobSpec",),
    "mesh.jobs.views": ("JobView",),
    "mesh.observability.metric_targets": ("Targets",),
    "mesh.plugins": ("PluginError",),
    "mesh.policies.catalogue": ("UnknownPolicy", "node_policy"),
    "mesh.policies.policy": ("NodeDemand", "NodeScoringView"),
    "mesh.preemption.rules": ("PreemptionRules", "PreemptionRulesError", "parse_cross_label"),
    "mesh.ray.local.agent.agent_errors": ("CallPreempted", "NoSuchMethod"),
    "mesh.ray.local.client.actor_group": ("ActorGroup",),
    "mesh.ray.local.client.charts": ("ChartsMissing",),
    "mesh.ray.local.client.job_handle": ("JobHandle",),
    "mesh.ray.local.client.schedule_mesh": ("ScheduleMesh", "running_mesh"),
    "mesh.ray.local.client.task_handle": ("TaskHandle",),
    "mesh.ray.local.status_values": ("RequestRefused",),
    "mesh.ray.local.supervision_errors": (
        "ArgumentError", "GangContradiction", "JobExists", "JobFailed", "JobTerminated", "JobUnknown", "MeshStopped",
        "NotOverYet", "PoolUnknown", "ResultLost", "StartFailed", "StartsAgain", "SubmissionError", "SupervisorLost",
        "TaskExists", "TaskFailed", "TaskNotRunning", "TaskUnknown",
    ),
    "mesh.ray.local.supervisor.driver": ("DriverSettings",),
    "mesh.ray.local.supervisor.job_reconciler": ("JobSettings",),
    "mesh.ray.plugins.plugin_loading": ("load_plugins",),
    "mesh.ray.user_code.task_context": ("NoCurrentTask", "TaskPreempted", "current_task"),
    "mesh.tasks.journal": ("JournalError",),
    "mesh.tasks.settings": ("SchedulerSettings", "SettingError"),
}
# fmt: on
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'mesh' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
