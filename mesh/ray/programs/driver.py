"""Driver of a program in Ray: in the placement group of its node, as the code of any node is.

A program connects by `ray.init()`, as a job of its own. Ray lets no driver have a placement group. So the hook that Ray calls in
`ray.init()` gives the driver the group of its node: what it starts runs there, and what it asks for outside is refused. Packages of the
program reach its workers as in a job of Ray: by the job's runtime environment.

The metadata of the job name its node. They are all that the mesh reads, since the program's process may hide what it does
(`ownership.references`).
"""

from __future__ import annotations

import json
import os
from typing import Any

from ray._private.ray_constants import RAY_RUNTIME_ENV_HOOK
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray._private.worker import Worker
from ray._raylet import PlacementGroupID

from mesh.ray.user_code import gang_room
from mesh.ray.user_code.ownership import NodeKey, attribute_driver

#: Variables of a program's process that the hook reads.
GROUP, NODE, WORKING_DIR = "SCHEDULEMESH_GROUP", "SCHEDULEMESH_NODE", "SCHEDULEMESH_WORKING_DIR"


def variables(group: str, node: NodeKey, *, working_dir: str | None) -> dict[str, str]:
    """Return the variables of a program's environment that make its driver one of this node.

    Args:
        group: Placement group of the node, by Ray's id.
        working_dir: Folder whose files the program's workers get as well; None: there are none.
    """
    found = {
        GROUP: group,
        NODE: json.dumps(node),
        RAY_RUNTIME_ENV_HOOK: f"{__name__}.{join_group.__name__}",
        RAY_JOB_CONFIG_JSON_ENV_VAR: json.dumps({"metadata": node.as_metadata()}),
    }
    return found if working_dir is None else {**found, WORKING_DIR: working_dir}


def join_group(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    """Make this process a driver within the placement group of its node; return the runtime environment of its job.

    Ray calls it in `ray.init()`, before it connects.
    """
    group = PlacementGroupID(bytes.fromhex(os.environ[GROUP]))
    kind: Any = Worker
    kind.placement_group_id = property(lambda _: group)
    kind.should_capture_child_tasks_in_placement_group = property(lambda _: True)
    gang_room.install()
    attribute_driver(NodeKey(*json.loads(os.environ[NODE])))
    found = dict(runtime_env or {})
    found["env_vars"] = {**found.get("env_vars", {}), **gang_room.variables()}
    if WORKING_DIR in os.environ:
        found.setdefault("working_dir", os.environ[WORKING_DIR])
    return found
