"""Nodes as written in a case: `{"n1": {"total": {"cpu": 4}, "used": {"cpu": 1}, "load": {}, "labels": {"zone": "east"}}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.conformance.fields import Fields
from mesh.core.ids import NodeName, PoolName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest

_NO_POOL = PoolName("")


def read_table(written: Any) -> NodeTable:
    """Return the nodes in the order written. Non-empty `used` and `load` count as one task each."""
    table = NodeTable()
    for name, node in written.items():
        with Fields(node, f"node {name}") as fields:
            table.join(NodeName(name), ResourceSet.of(fields.take("total")), fields.take("labels", {}))
            row = table.row(NodeName(name))
            used, load = ResourceSet.of(fields.take("used", {})), ResourceSet.of(fields.take("load", {}))
        if used:
            table.promise(row, table.vector(used))
            table.start(row, table.vector(used))
        if load:
            table.queue_for(row, table.vector(load))
    return table


def read_request(written: Any) -> TaskRequest:
    """Return the task written as `{"task": "t1", "resources": {"cpu": 1}, "selector": {}}`."""
    with Fields(written, "a task") as fields:
        task = TaskId(fields.take("task"))
        return TaskRequest(
            task=task, pool=_NO_POOL, resources=ResourceSet.of(fields.take("resources", {})), selector=fields.take("selector", {})
        )


def set_load(table: NodeTable) -> Mapping[str, Mapping[str, int | float]]:
    """Return what is promised at each node, in the form of a case."""
    return {name: table.resources_of(name).load.in_ray_units() for name in table.names if name is not None}
