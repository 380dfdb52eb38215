"""Names of one mesh's actors and groups in Ray, by which a recovered supervisor finds them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mesh.core.ids import GroupId
from mesh.core.resources import ResourceSet

PREFIX = "schedulemesh"
#: Ray's label that names a node.
NODE_LABEL = "ray.io/node-id"
_RAY_NAMES = {"cpu": "CPU", "gpu": "GPU"}
_OWN_NAMES = {name: own for own, name in _RAY_NAMES.items()}
#: Resources that Ray adds itself, per node and per placement group. Nothing schedules on them by name.
_MADE_UP = re.compile(r"node:|bundle_group_|.+_group_(\d+_)?[0-9a-f]{16,}$")


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
    amounts = dict(resources.for_people())
    return {
        "num_cpus": amounts.pop("cpu", 0),
        "num_gpus": amounts.pop("gpu", 0),
        "memory": amounts.pop("memory", None),
        "resources": {name: amount for name, amount in amounts.items() if name != "object_store_memory"} or None,
    }


def own_resources(amounts: Mapping[str, float]) -> ResourceSet:
    """Return Ray's resources of a node in this project's names and units, without those that Ray adds itself."""
    kept = {_OWN_NAMES.get(name, name): round(amount, 4) for name, amount in amounts.items() if not _MADE_UP.match(name)}
    return ResourceSet.of({name: int(amount) if name in ("memory", "object_store_memory") else amount for name, amount in kept.items()})
