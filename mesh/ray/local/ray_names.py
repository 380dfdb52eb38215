"""Names of one mesh's actors and groups in Ray, by which a recovered supervisor finds them."""

from __future__ import annotations

from mesh.core.ids import GroupId
from mesh.core.resources import ResourceSet

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


def actor_options(resources: ResourceSet) -> dict[str, object]:
    """Return the resources of an actor as options for `Actor.options`, with nothing left to Ray's defaults."""
    amounts = dict(resources.in_ray_units())
    return {
        "num_cpus": amounts.pop("cpu", 0),
        "num_gpus": amounts.pop("gpu", 0),
        "memory": amounts.pop("memory", None),
        "resources": {name: amount for name, amount in amounts.items() if name != "object_store_memory"} or None,
    }
