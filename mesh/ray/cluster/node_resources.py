"""Resources of Ray's nodes in this project's names and units."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mesh.core.resources import ResourceSet

_OWN_NAMES = {"CPU": "cpu", "GPU": "gpu"}
#: Resources that Ray adds itself, per node and per placement group. Nothing schedules on them by name.
_MADE_UP = re.compile(r"node:|bundle_group_|.+_group_(\d+_)?[0-9a-f]{16,}$")


def own_resources(amounts: Mapping[str, float]) -> ResourceSet:
    """Return Ray's resources of a node in this project's names and units, without those that Ray adds itself."""
    kept = {_OWN_NAMES.get(name, name): round(amount, 4) for name, amount in amounts.items() if not _MADE_UP.match(name)}
    return ResourceSet.of({name: int(amount) if name in ("memory", "object_store_memory") else amount for name, amount in kept.items()})
