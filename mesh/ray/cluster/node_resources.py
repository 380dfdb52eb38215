"""Resources of Ray's nodes in this project's names and units, and resources of actors in Ray's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mesh.core.resources import ResourceSet

_OWN_NAMES = {"CPU": "cpu", "GPU": "gpu"}
#: Name under which Ray counts a resource of a placement group, or of one of its bundles: ends with the id of the group, 18 bytes. A name
#: of the user's own may contain `_group_`.
_OF_GROUP = re.compile(r".+_group_(\d+_)?[0-9a-f]{36}")
#: Beginning of the resource that names a node.
_OF_NODE = "node:"


def is_of_group(name: str) -> bool:
    """Return whether Ray counts an amount of a placement group under this name."""
    return _OF_GROUP.fullmatch(name) is not None


def own_resources(amounts: Mapping[str, float]) -> ResourceSet:
    """Return Ray's resources of a node in this project's names and units, without those that Ray adds itself: for nodes and groups."""
    kept = {
        _OWN_NAMES.get(name, name): round(amount, 4)
        for name, amount in amounts.items()
        if not name.startswith(_OF_NODE) and not is_of_group(name)
    }
    return ResourceSet.of({name: int(amount) if name in ("memory", "object_store_memory") else amount for name, amount in kept.items()})


def actor_options(resources: ResourceSet) -> dict[str, object]:
    """Return the resources of an actor as options for `Actor.options`, with nothing left to Ray's defaults."""
    amounts = dict(resources.in_ray_units())
    return {
        "num_cpus": amounts.pop("cpu", 0),
        "num_gpus": amounts.pop("gpu", 0),
        "memory": amounts.pop("memory", None),
        "resources": {name: amount for name, amount in amounts.items() if name != "object_store_memory"} or None,
    }
