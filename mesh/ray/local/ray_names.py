"""Names of one mesh's actors and groups in Ray, by which a recovered supervisor finds them."""

from __future__ import annotations

from mesh.core.ids import GroupId

PREFIX = "schedulemesh"


def supervisor_name(mesh: str) -> str:
    return f"{PREFIX}:{mesh}"


def process_prefix(mesh: str) -> str:
    return f"{PREFIX}:{mesh}:agent:"


def process_name(mesh: str, number: str) -> str:
    """Return the name of an agent process. It does not contain the task: a process may wait for one, and serve several."""
    return process_prefix(mesh) + number


def group_prefix(mesh: str) -> str:
    return f"{PREFIX}:{mesh}:group:"


def group_name(mesh: str, group: GroupId) -> str:
    return group_prefix(mesh) + group
