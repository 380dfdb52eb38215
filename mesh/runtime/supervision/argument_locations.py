"""Nodes that hold a task's arguments, so that the task can run there."""

from __future__ import annotations

from typing import Any

from ray.exceptions import GetTimeoutError
from ray.experimental import get_object_locations

from mesh.ids import NodeName
from mesh.runtime.supervision.agent_messages import PickledArguments

#: Time limit for the owners of the objects; without an answer, placement ignores the arguments.
_ASKED_MS_MAX = 1_000


def local_bytes(*arguments: PickledArguments | None) -> dict[NodeName, int]:
    """Return the bytes of the arguments on each node, as Ray counts them. Small and unfinished objects count nowhere."""
    refs = list(dict.fromkeys(ref for each in arguments if each is not None for ref in each.refs))
    if not refs:
        return {}
    try:
        found: dict[Any, dict[str, Any]] = get_object_locations(refs, timeout_ms=_ASKED_MS_MAX)
    except GetTimeoutError:
        return {}
    bytes_on: dict[NodeName, int] = {}
    for place in found.values():
        for node in place["node_ids"]:
            bytes_on[NodeName(node)] = bytes_on.get(NodeName(node), 0) + int(place["object_size"] or 0)
    return bytes_on
