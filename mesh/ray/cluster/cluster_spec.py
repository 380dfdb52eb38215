"""Specification of a Ray cluster that this project starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNodeSpec:
    """One raylet."""

    cpu: float
    gpu: float = 0
    memory_bytes: int | None = None  #: None: the amount that Ray finds.
    labels: Mapping[str, str] = field(default_factory=dict)  #: Ray's node labels.
    resources: Mapping[str, float] = field(default_factory=dict)  #: Custom resources.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster; the first node is its head."""

    nodes: tuple[ClusterNodeSpec, ...]
    object_store_bytes: int  #: Per node; Ray requires at least 75 MiB.
