"""The kind `nodes`: the node table, changed by the steps of a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mesh.conformance.answering import Verbs, answer_all
from mesh.conformance.fields import Fields
from mesh.conformance.node_tables import read_table
from mesh.core.ids import NodeName
from mesh.core.nodes import NodeTable, Units
from mesh.core.resources import ResourceSet, from_units, to_units


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer to each step, and each node after the last."""
    with Fields(case["given"], "given") as given:
        table = read_table(given.take("nodes"))
    answers = answer_all(_VERBS, table, case)
    names = [name for name in table.names if name is not None]
    return {
        "answers": answers,
        "count": len(table),
        "nodes": {name: _result_of(table, name) for name in names},
        "instances": {name: _instances_of(table, name) for name in names},
    }


def _instances_of(table: NodeTable, node: NodeName) -> Mapping[str, Any]:
    """Return the instances of each holder: resource to instance to amount."""
    found: dict[str, dict[str, dict[str, int | float]]] = {}
    for holding in table.holdings(table.row(node)):
        for name, number, units in holding.parts:
            found.setdefault(holding.holder, {}).setdefault(name, {})[str(number)] = from_units(name, units)
    return found


def _by_row(change: Callable[[NodeTable, int, Units, str], None]) -> Callable[[NodeTable, Any, Fields], str]:
    """Return a verb for a change of the table that takes a row, amounts and their holder."""

    def step(table: NodeTable, amounts: Any, fields: Fields) -> str:
        change(table, table.row(NodeName(fields.take("node"))), table.vector(ResourceSet.of(amounts)), fields.take("as", ""))
        return "done"

    return step


def _join(table: NodeTable, total: Any, fields: Fields) -> str:
    table.join(NodeName(fields.take("node")), ResourceSet.of(total), fields.take("labels", {}))
    return "done"


def _leave(table: NodeTable, node: str, _: Fields) -> str:
    table.leave(NodeName(node))
    return "done"


def _update(table: NodeTable, amounts: Mapping[str, Any], fields: Fields) -> str:
    node = NodeName(fields.take("node"))
    for name, amount in amounts.items():
        table.update_resource(node, name, to_units(name, amount))
    return "done"


def _delete(table: NodeTable, resource: str, fields: Fields) -> str:
    table.delete_resource(NodeName(fields.take("node")), resource)
    return "done"


def _result_of(table: NodeTable, node: NodeName) -> Mapping[str, Any]:
    stands = table.resources_of(node)
    row = table.row(node)
    return {
        "total": stands.total.in_ray_units(),
        "available": stands.available.in_ray_units(),
        "load": stands.load.in_ray_units(),
        "free": table.amounts(table.free(slice(row, row + 1))[0]).in_ray_units(),
    }


_VERBS: Verbs[NodeTable] = {
    "promise": _by_row(NodeTable.promise),
    "queue_for": _by_row(NodeTable.queue_for),
    "start": _by_row(lambda table, row, wanted, _: table.start(row, wanted)),
    "withdraw": _by_row(NodeTable.withdraw),
    "finish": _by_row(NodeTable.finish),
    "join": _join,
    "leave": _leave,
    "update": _update,
    "delete": _delete,
}
