"""How the things of one mesh are called in Ray, so that a supervisor that starts anew finds them again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mesh.ids import GroupId
from mesh.resources import ResourceSet

PREFIX = "schedulemesh"
#: Ray's label that names a node.
NODE_LABEL = "ray.io/node-id"
_RAY_NAMES = {"cpu": "CPU", "gpu": "GPU"}
_OWN_NAMES = {name: own for own, name in _RAY_NAMES.items()}
#: Resources that Ray makes up: one for each node, and for each placement group what it holds. Nobody schedules on them by name.
_MADE_UP = re.compile(r"node:|bundle_group_|.+_group_(\d+_)?[0-9a-f]{16,}$")


def supervisor_name(mesh: str) -> str:
    """Of the one actor that decides for the mesh."""
    return f"{PREFIX}:{mesh}"


def process_prefix(mesh: str) -> str:
    """What the names of all agent processes of the mesh begin with."""
    return f"{PREFIX}:{mesh}:agent:"


def process_name(mesh: str, number: str) -> str:
    """Of one agent process. It is not named after its task: a process may wait before it has one, and serve several."""
    return process_prefix(mesh) + number


def group_prefix(mesh: str) -> str:
    """What the names of all placement groups of the mesh begin with."""
    return f"{PREFIX}:{mesh}:group:"


def group_name(mesh: str, group: GroupId) -> str:
    """Of one placement group."""
    return group_prefix(mesh) + group


def actor_options(resources: ResourceSet) -> dict[str, object]:
    """The resources of an actor, as `Actor.options` wants them. Nothing is left to Ray's defaults."""
    amounts = dict(resources.for_people())
    return {
        "num_cpus": amounts.pop("cpu", 0),
        "num_gpus": amounts.pop("gpu", 0),
        "memory": amounts.pop("memory", None),
        "resources": {name: amount for name, amount in amounts.items() if name != "object_store_memory"} or None,
    }


def own_resources(amounts: Mapping[str, float]) -> ResourceSet:
    """Ray's resources of a node in this project's names and units; what Ray makes up itself is left out."""
    kept = {_OWN_NAMES.get(name, name): round(amount, 4) for name, amount in amounts.items() if not _MADE_UP.match(name)}
    return ResourceSet.of({name: int(amount) if name in ("memory", "object_store_memory") else amount for name, amount in kept.items()})
