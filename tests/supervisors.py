"""The link to the supervisor of a running mesh, for what the facade does not show."""

from __future__ import annotations

import mesh
from mesh.core.saved_state import StateSnapshot
from mesh.ray.local.client.schedule_mesh import NAMESPACE
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.verbs import TaskVerbs


def link_to(running: mesh.ScheduleMesh, namespace: str = NAMESPACE) -> SupervisorLink:
    return SupervisorLink(running.name, namespace)


def saved_state(running: mesh.ScheduleMesh, task: mesh.TaskHandle) -> StateSnapshot | None:
    """The last state that the mesh has of a task."""
    return link_to(running).ask(TaskVerbs.saved, task.task)
