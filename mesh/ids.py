"""The names of things: distinct types, so that a run is never taken for a node."""

import re
from typing import NewType

from mesh.printable import UNPRINTABLE

#: What no name holds: stores set names apart by `|` and by lines, and whoever wrote one of these into a name would speak for others.
_UNFIT = re.compile(f"[|{UNPRINTABLE}]")

MeshId = NewType("MeshId", str)
TenantPath = NewType("TenantPath", str)  #: `acme/research/nlp`: from the root of the tree to the tenant.
FlavorName = NewType("FlavorName", str)
PoolName = NewType("PoolName", str)
RunId = NewType("RunId", str)
NodeId = NewType("NodeId", str)
StageId = NewType("StageId", str)
LeaseId = NewType("LeaseId", str)
NodeName = NewType("NodeName", str)  #: A machine of a Ray cluster, by Ray's node id. (`NodeId` is a vertex of a graph.)
TaskId = NewType("TaskId", str)
AgentId = NewType("AgentId", str)
GroupId = NewType("GroupId", str)  #: A placement group.
JobId = NewType("JobId", str)
LabelName = NewType("LabelName", str)  #: The queue that a task waits in: `tenant:gold`, `gpu:a100`, or empty.


def is_fit_name(name: str) -> bool:
    """May it stand in a row of a store: something, without `|`, control characters, ends of lines and halves of characters?"""
    return bool(name) and not _UNFIT.search(name)
