"""What a cluster of one's own is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNodeSpec:
    """One raylet."""

    cpu: float
    gpu: float = 0
    memory_bytes: int | None = None  #: None: what Ray finds.
    labels: Mapping[str, str] = field(default_factory=dict)  #: Ray's node labels.
    resources: Mapping[str, float] = field(default_factory=dict)  #: Custom ones.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster; the first node is its head."""

    nodes: tuple[ClusterNodeSpec, ...]
    object_store_bytes: int  #: Of each node; Ray wants 75 MiB at least.
