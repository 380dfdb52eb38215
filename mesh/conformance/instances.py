"""The kind `instances`: a node's resources by instance, changed by the steps of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.conformance.answering import Verbs, answer_all
from mesh.conformance.fields import Fields
from mesh.core.instance_sets import ResourceIdSet, TakenResources
from mesh.core.instances import ResourceIds
from mesh.core.resources import BYTE_RESOURCES, ResourceSet, from_units, to_units
from mesh.errors import AmountError

_NOTHING_TAKEN = TakenResources()


class _Stand:
    """Subject of the steps: a node, and what each holder has of it."""

    def __init__(self, node: ResourceIdSet) -> None:
        self.node = node
        self.held: dict[str, TakenResources] = {}


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer to each step, and the node after the last."""
    try:
        with Fields(case["given"], "given") as given:
            bulk = {*BYTE_RESOURCES, *given.take("bulk", ())}
            node = ResourceIdSet(ResourceSet.of(given.take("total")), bulk=bulk)
    except AmountError:
        return {"error": "AmountError"}
    answers = answer_all(_VERBS, _Stand(node), case)
    total = node.total
    return {
        "answers": answers,
        "total": total.in_ray_units(),
        "available": node.to_set().in_ray_units(),
        "free": {name: _result_of(node.free_ids(name)) for name in total if name not in bulk},
        "backlog": {name: from_units(name, node.backlog(name)) for name in total if node.backlog(name)},
        "wrong": node.check(),
    }


def _acquire(stand: _Stand, wanted: Any, fields: Fields) -> Any:
    holder = fields.take("as", "")
    taken = stand.node.acquire(ResourceSet.of(wanted))
    if taken is None:
        return None
    if holder:
        stand.held[holder] = stand.held.get(holder, _NOTHING_TAKEN).plus(taken)
    return {**{resource: _result_of(ids) for resource, ids in taken.ids.items()}, **taken.bulk.in_ray_units()}


def _release(stand: _Stand, holder: str, fields: Fields) -> str:
    constrained_to = fields.take("constrained_to", None)
    if constrained_to is None:
        stand.node.release(stand.held[holder])
    else:
        stand.node.release_constrained(stand.held[holder], ResourceSet.of(constrained_to))
    return "done"


def _set_capacity(stand: _Stand, amounts: Mapping[str, Any], _: Fields) -> str:
    for resource, amount in amounts.items():
        stand.node.add_or_update(resource, to_units(resource, amount))
    return "done"


def _delete(stand: _Stand, resource: str, _: Fields) -> str:
    stand.node.delete(resource)
    return "done"


def _clear(stand: _Stand, _: Any, __: Fields) -> str:
    stand.node.clear()
    return "done"


def _result_of(ids: ResourceIds) -> dict[str, int | float]:
    return {str(number): from_units("", amount.units) for number, amount in sorted(ids.amounts().items())}


_VERBS: Verbs[_Stand] = {"acquire": _acquire, "release": _release, "capacity": _set_capacity, "delete": _delete, "clear": _clear}
