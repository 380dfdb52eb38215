"""The kinds `pool` and `group_pool`: holders of a mesh's quota, and of its placement groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.conformance.answering import Verbs, answer_all
from mesh.conformance.fields import Fields
from mesh.core.ids import GroupId, NodeName, PoolName, TaskId
from mesh.core.pools import PoolLedger, PoolSpec
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.placement.group_ledger import GroupLedger
from mesh.placement.groups import GroupRecord, Layer

_POOL = PoolName("p")
_PACK = "PACK"


def run_pool(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer to each step, and each pool's amounts after the last."""
    with Fields(case["given"], "given") as given:
        ledger = PoolLedger([_pool_spec(written) for written in given.take("pools")])
    answers = answer_all(_POOL_VERBS, ledger, case)
    pools = ledger.pools
    return {
        "answers": answers,
        "capacity": {name: pool.capacity.in_ray_units() for name, pool in pools.items()},
        "reserved": {name: pool.reserved.in_ray_units() for name, pool in pools.items()},
        "used": {name: pool.used.in_ray_units() for name, pool in pools.items()},
        "free": {name: pool.free.in_ray_units() for name, pool in pools.items()},
        "excess": {name: pool.excess.in_ray_units() for name, pool in pools.items()},
        "target_agents": {name: pool.target_agents for name, pool in pools.items()},
        "closing": [name for name, pool in pools.items() if pool.is_closing],
        "wrong": ledger.check(),
    }


def run_groups(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer to each step on groups of the pool `p`, and each group's state, holder and reuses after the last."""
    with Fields(case.get("given", {}), "given") as given:
        reserved = tuple(_shape(written) for written in given.take("reserved", ()))
        spec = GroupPoolSpec(reserved=reserved, **given.take("groups", {}))
    stand = _Stand(GroupLedger(), PoolSpec(pool=_POOL, capacity=NOTHING, groups=spec))
    answers = answer_all(_GROUP_VERBS, stand, case)
    records = stand.ledger.records
    return {
        "answers": answers,
        "states": {name: record.state.value for name, record in records.items()},
        "holders": {name: record.holder for name, record in records.items()},
        "reuses": {name: record.reuse_count for name, record in records.items()},
        "dynamic": stand.ledger.dynamic_count(_POOL),
        "wrong": stand.ledger.check(),
    }


# -- pools -------------------------------------------------------------------------------------------------------------


def _pool_spec(written: Any) -> PoolSpec:
    with Fields(written, "a pool") as fields:
        pool, capacity = PoolName(fields.take("pool")), ResourceSet.of(fields.take("capacity"))
        return PoolSpec(pool=pool, capacity=capacity, target_agents=fields.take("target_agents", 0))


def _reserve(ledger: PoolLedger, holder: str, fields: Fields) -> str:
    ledger.reserve(PoolName(fields.take("pool")), holder, ResourceSet.of(fields.take("amounts")))
    return "done"


def _commit(ledger: PoolLedger, holder: str, fields: Fields) -> str:
    amounts = fields.take("amounts", None)
    ledger.commit(PoolName(fields.take("pool")), holder, None if amounts is None else ResourceSet.of(amounts))
    return "done"


def _configure(ledger: PoolLedger, spec: Any, _: Fields) -> str:
    ledger.configure(_pool_spec(spec))
    return "done"


_POOL_VERBS: Verbs[PoolLedger] = {
    "reserve": _reserve,
    "commit": _commit,
    "release": lambda ledger, holder, _: ledger.release(holder),
    "move": lambda ledger, holder, fields: ledger.move(holder, fields.take("to")),
    "configure": _configure,
    "delete": lambda ledger, pool, _: ledger.delete(PoolName(pool)),
    "held_by": lambda ledger, holder, _: ledger.held_by(holder).in_ray_units(),
    "short_of": lambda ledger, amounts, fields: ledger.pool(fields.take("pool")).short_of(ResourceSet.of(amounts)).in_ray_units(),
}


# -- placement groups --------------------------------------------------------------------------------------------------


class _Stand:
    """Subject of the steps: a group ledger and its pool."""

    def __init__(self, ledger: GroupLedger, spec: PoolSpec) -> None:
        self.ledger = ledger
        self.spec = spec


def _shape(written: Any) -> GroupShape:
    """Parse a shape: one bundle as an object, several as a list, or `{"bundles": […], "strategy": "SPREAD"}`."""
    if isinstance(written, Mapping) and "bundles" in written:
        with Fields(written, "a shape") as fields:
            return GroupShape(tuple(map(ResourceSet.of, fields.take("bundles"))), fields.take("strategy", _PACK))
    return GroupShape(tuple(map(ResourceSet.of, written if isinstance(written, list) else [written])))


def _result_of(shape: GroupShape) -> Any:
    bundles = [bundle.in_ray_units() for bundle in shape.bundles]
    if shape.strategy != _PACK:
        return {"bundles": bundles, "strategy": shape.strategy}
    return bundles[0] if len(bundles) == 1 else bundles


def _names(records: tuple[GroupRecord, ...]) -> list[str]:
    return [record.group for record in records]


def _add(stand: _Stand, group: str, fields: Fields) -> str:
    shape, layer, holder = _shape(fields.take("shape")), Layer(fields.take("layer", "DYNAMIC")), fields.take("for", None)
    nodes, pool = fields.take("nodes", ["n1"] * len(shape.bundles)), PoolName(fields.take("pool", _POOL))
    stand.ledger.add(GroupId(group), pool, shape, layer, tuple(map(NodeName, nodes)), None if holder is None else TaskId(holder))
    return "done"


def _ready(stand: _Stand, group: str, fields: Fields) -> str:
    return stand.ledger.ready(GroupId(group), fields.take("at_ms", 0)).state.value


def _take(stand: _Stand, group: str, fields: Fields) -> str:
    return stand.ledger.take(GroupId(group), TaskId(fields.take("by"))).state.value


def _give_back(stand: _Stand, group: str, fields: Fields) -> str:
    hold_for = fields.take("hold_for", None)
    return stand.ledger.give_back(GroupId(group), fields.take("at_ms", 0), None if hold_for is None else TaskId(hold_for)).state.value


def _drop(stand: _Stand, group: str, _: Fields) -> str | None:
    last = stand.ledger.drop(GroupId(group))
    return None if last is None else last.state.value


def _match(stand: _Stand, shape: Any, fields: Fields) -> str | None:
    layer, task, waste_max = Layer(fields.take("layer", "DYNAMIC")), fields.take("task", None), fields.take("waste_max", None)
    pool = PoolName(fields.take("pool", _POOL))
    found = stand.ledger.match(pool, _shape(shape), layer=layer, task=None if task is None else TaskId(task), waste_max=waste_max)
    return None if found is None else found.group


def _in_the_way(stand: _Stand, needed: Any, fields: Fields) -> list[str]:
    pool = fields.take("pool", None)
    return _names(
        stand.ledger.in_the_way(None if pool is None else PoolName(pool), ResourceSet.of(needed), NodeName(fields.take("node", "n1")))
    )


_GROUP_VERBS: Verbs[_Stand] = {
    "add": _add,
    "ready": _ready,
    "take": _take,
    "give_back": _give_back,
    "remove": lambda stand, group, _: stand.ledger.remove(GroupId(group)),
    "drop": _drop,
    "match": _match,
    "expired": lambda stand, now_ms, _: _names(stand.ledger.expired(now_ms, stand.spec)),
    "missing": lambda stand, _, __: [_result_of(shape) for shape in stand.ledger.missing_reserved(_POOL, stand.spec.groups)],
    "surplus": lambda stand, _, __: _names(stand.ledger.surplus_reserved(_POOL, stand.spec.groups)),
    "in_the_way": _in_the_way,
}
