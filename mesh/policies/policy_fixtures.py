"""Views and demands for tests of policies, including users' own: `view(node(cpu=(2, 8)), …)` is a node with 2 of 8 CPUs free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mesh.core.resources import to_units
from mesh.policies.policy import NodeDemand, NodeScoringView

RESOURCES = ("cpu", "gpu", "memory")

Row = dict[str, Any]


def node(
    cpu: tuple[float, float] = (0, 0),
    gpu: tuple[float, float] = (0, 0),
    memory: tuple[str | int, str | int] = (0, 0),
    *,
    busy: int = 0,
    of_job: int = 0,
    local_bytes: int = 0,
    is_named: bool = False,
) -> Row:
    """Return a row with (free, total) of each resource."""
    amounts = [(to_units(name, free), to_units(name, total)) for name, (free, total) in zip(RESOURCES, (cpu, gpu, memory), strict=True)]
    return {"amounts": amounts, "busy": busy, "of_job": of_job, "local_bytes": local_bytes, "is_named": is_named}


def view(*rows: Row) -> NodeScoringView:
    """Return a view of the rows."""
    amounts = np.array([row["amounts"] for row in rows], dtype=np.int64).reshape(len(rows), len(RESOURCES), 2)
    return NodeScoringView(
        resources=RESOURCES,
        total=amounts[:, :, 1].copy(),
        free=amounts[:, :, 0].copy(),
        load=np.zeros((len(rows), len(RESOURCES)), dtype=np.int64),
        busy=_counts(rows, "busy"),
        of_job=_counts(rows, "of_job"),
        local_bytes=_counts(rows, "local_bytes"),
        is_named=_counts(rows, "is_named").astype(np.bool_),
    )


def demand(cpu: float = 0, gpu: float = 0, memory: str | int = 0, **options: Any) -> NodeDemand:
    """Return a demand of these amounts; `options` are fields of `NodeDemand`."""
    amounts = zip(RESOURCES, (cpu, gpu, memory), strict=True)
    return NodeDemand(wanted=np.array([to_units(name, amount) for name, amount in amounts], dtype=np.int64), **options)


def _counts(rows: Sequence[Row], name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([row[name] for row in rows], dtype=np.int64)
