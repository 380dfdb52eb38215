"""Fetching of an entry method's result by its caller."""

from __future__ import annotations

from typing import Any

import cloudpickle
import ray
from ray.exceptions import ObjectLostError

from mesh.ray.local.agent_messages import Ended
from mesh.ray.local.supervision_errors import ResultLost

_REMEDY = "run it again, or write large results to a file and return the path"


def value_of(ended: Ended, ref: Any | None, whose: str) -> Any:
    """Return the value: from the answer itself when it is small, else from Ray's object store.

    Raises:
        ResultLost: The large value was lost with the supervisor that held its reference, or with its node.
    """
    if ended.result is not None:
        return cloudpickle.loads(ended.result)
    if ref is None:
        raise ResultLost(f"the result of {whose} was too large for the journal, and was lost with the supervisor that held it: {_REMEDY}")
    try:
        return ray.get(ref)
    except ObjectLostError as lost:
        raise ResultLost(f"the result of {whose} was too large for the journal, and was lost with its node: {_REMEDY}") from lost
