"""The names of things: distinct types, so that a run is never taken for a node."""

from typing import NewType

MeshId = NewType("MeshId", str)
TenantPath = NewType("TenantPath", str)  #: `acme/research/nlp`: from the root of the tree to the tenant.
FlavorName = NewType("FlavorName", str)
PoolName = NewType("PoolName", str)
RunId = NewType("RunId", str)
NodeId = NewType("NodeId", str)
StageId = NewType("StageId", str)
LeaseId = NewType("LeaseId", str)
