"""Names of things, as distinct types: a run is never mistaken for a node."""

import re
from typing import NewType

from mesh.core.printable import UNPRINTABLE

#: Characters that no name may hold. Stores separate names by `|` and by line ends, so a name with one of them could forge other names.
_UNFIT = re.compile(f"[|{UNPRINTABLE}]")

MeshId = NewType("MeshId", str)
TenantPath = NewType("TenantPath", str)  #: `acme/research/nlp`: the path from the root of the tree to the tenant.
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
LabelName = NewType("LabelName", str)  #: Queue of a task: `tenant:gold`, `gpu:a100`, or empty.


def is_fit_name(name: str) -> bool:
    """Return whether a store can hold the name: not empty, without `|`, control characters, line ends and lone surrogates."""
    return bool(name) and not _UNFIT.search(name)
