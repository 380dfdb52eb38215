"""Limits of a tree of tenants, counted once per tree: what each node brings, keeps, lends, and could hold at most.

    own(n)       = nominal(n) + sum over children of lent(c)
    lent(n)      = min(own(n), lending limit(n)), or own(n) without a limit
    kept(n)      = own(n) - lent(n)                                         # no other node can use it
    potential(n) = min(own + borrowing limit, kept + potential(parent))     # at a root: own

Only leaves hold work ("queues"). A tenant that has work of its own and tenants below it gets an extra leaf without quota: its work lives
on what its tenants lend, and they can reclaim it. An amount of `UNLIMITED` or more is endless, and stays endless whatever is taken from
it.
Source: Kueue `pkg/cache/scheduler/resource_node.go`, read as arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import lcm

from federation.errors import ConfigError, UnknownTenant
from federation.tenants import FlavorResource, Quota, TenantTree
from mesh.core.ids import FlavorName

UNLIMITED = 2**63 - 1  #: Amounts from here on are endless; Kueue's largest integer.
UNITS_MAX = 2**128  #: More than any ledger holds; a borrower with a weight of 0 ranks above all that hold less.
_NONE, _CLOSED = Quota(), Quota(borrowing_limit=0)
OWN_LEAF = "/*"  #: Suffix of the leaf for a tenant's own work; no part of a path can be `*`.


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestNode:
    """A declared node; its parent may be declared later."""

    name: str
    parent: str | None = None
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    weight: Fraction = Fraction(1)
    is_queue: bool = False  #: Work is queued here; the node then has no children.
    closed: frozenset[FlavorName] = frozenset()  #: Flavors that a queue may not use at all.


@dataclass(frozen=True, slots=True)
class Rows:
    """Limits of all nodes for one (flavor, resource), by index."""

    own: tuple[int, ...]
    kept: tuple[int, ...]
    lent: tuple[int, ...]
    borrowing_limit: tuple[int | None, ...]
    potential: tuple[int, ...]
    nominal: tuple[int, ...]
    idle: tuple[int, ...]  #: Excess of each node (use less own) while nothing is in use.
    is_declared: tuple[bool, ...]  #: By the node, or by one below it.
    is_closed: tuple[bool, ...]  #: To work queued at the node.
    keeps_any: bool  #: Whether any node keeps something.
    all_declare: bool  #: Whether every node declares it.
    narrow: tuple[tuple[int, ...], ...]  #: For each node, the nodes of its path that keep or limit something; without the root.
    limits: tuple[tuple[tuple[int, int], ...], ...]  #: Those of them that limit something, each with its borrowing limit.


@dataclass(frozen=True, slots=True)
class ShareScale:
    """Factors that turn the shares of all children of one node into whole numbers; `federation.quota.share_ranks` uses them."""

    factors: Mapping[str, int]  #: By resource, of the borrowed amount.
    weights: Mapping[int, int]  #: By child.


class QuotaForest:
    """All nodes; immutable. Inside the core a node is an index, outside a name.

    Raises:
        ConfigError: A duplicate name, a missing parent, a cycle, a queue with children, a negative amount or weight.
    """

    __slots__ = (
        "_lendable",
        "_none",
        "_queues",
        "_rows",
        "_scales",
        "children",
        "heights",
        "index",
        "names",
        "parents",
        "paths",
        "places",
        "queues",
        "weights",
    )

    def __init__(self, nodes: Iterable[ForestNode]) -> None:
        listed = list(nodes)
        self.names = tuple(node.name for node in listed)
        self.index = {name: number for number, name in enumerate(self.names)}
        _refuse_nonsense(listed, self.index)
        self.parents = tuple(-1 if node.parent is None else self.index[node.parent] for node in listed)
        self.weights = tuple(node.weight for node in listed)
        self.queues = tuple(number for number, node in enumerate(listed) if node.is_queue)
        below: defaultdict[int, list[int]] = defaultdict(list)
        for number, parent in enumerate(self.parents):
            below[parent].append(number)
        self.children = tuple(tuple(below[number]) for number in range(len(listed)))
        roots_first = list(below[-1])
        for number in roots_first:  # The list grows while it is read: breadth first.
            roots_first.extend(below[number])
        if len(roots_first) < len(listed):
            lost = sorted(set(self.names) - {self.names[number] for number in roots_first})
            raise ConfigError(f"nodes in a cycle: {', '.join(lost)}; give one of them another parent")
        self.paths = self._paths(roots_first)
        self.heights = self._heights(roots_first)
        cohorts = sorted((number for number in roots_first if below[number]), key=self.names.__getitem__)
        places = {number: place for place, number in enumerate(cohorts)}
        #: Order of nodes that are otherwise equal: cohorts by name, then all queues alike.
        self.places = tuple(places.get(number, len(places)) for number in range(len(listed)))
        keys = sorted({key for node in listed for key in node.quotas})
        self._rows = {key: _rows(key, listed, self.parents, roots_first) for key in keys}
        zeros = (0,) * len(listed)
        never = (False,) * len(listed)
        nothing: tuple[tuple[()], ...] = ((),) * len(listed)
        self._none = Rows(zeros, zeros, zeros, (None,) * len(listed), zeros, zeros, zeros, never, never, False, False, nothing, nothing)
        leaves = {self.tenant_of(node): node for node, name in enumerate(self.names) if name.endswith(OWN_LEAF)}
        self._queues = self.index | leaves
        self._lendable: dict[int, dict[str, int]] = {}
        self._scales: dict[int, ShareScale] = {}

    @classmethod
    def of_tenants(cls, tree: TenantTree, weights: Mapping[str, Fraction] | None = None) -> QuotaForest:
        """Return the forest of a tenant tree. Every tenant declares every flavor; `TenantTree.open_flavors` says which its work may use."""
        keys = dict.fromkeys(sorted(tree.flavor_resources()), Quota())
        flavors = frozenset(flavor for flavor, _ in keys)
        nodes: list[ForestNode] = []
        for path, tenant in tree.tenants.items():
            is_leaf = not tree.children(path)
            weight = (weights or {}).get(path, Fraction(1))
            closed = flavors - tree.open_flavors(path)
            node = ForestNode(name=path, parent=tenant.parent, quotas={**keys, **tenant.quotas}, weight=weight, is_queue=is_leaf)
            if is_leaf:
                nodes.append(replace(node, closed=closed))
            else:
                nodes += [node, ForestNode(name=path + OWN_LEAF, parent=path, quotas=keys, is_queue=True, closed=closed)]
        return cls(nodes)

    def node(self, name: str) -> int:
        """Return the index of a node.

        Raises:
            UnknownTenant: No node has this name.
        """
        if name not in self.index:
            raise UnknownTenant(f"there is no tenant {name!r} in the quota tree")
        return self.index[name]

    def queue_of(self, tenant: str) -> int:
        """Return the leaf that holds the tenant's own work. Raises UnknownTenant."""
        queue = self._queues.get(tenant)
        return self.node(tenant) if queue is None else queue

    def tenant_of(self, node: int) -> str:
        """Return the path of the tenant that a node stands for."""
        return self.names[node].removesuffix(OWN_LEAF)

    @property
    def keys(self) -> tuple[FlavorResource, ...]:
        """Every (flavor, resource) that some node declares, in order."""
        return tuple(self._rows)

    def rows(self, key: FlavorResource) -> Rows:
        """Return the limits of all nodes; zeros if no node declares the key."""
        return self._rows.get(key, self._none)

    def root(self, node: int) -> int:
        return self.paths[node][-1]

    def lendable(self, node: int) -> Mapping[str, int]:
        """Return for each resource the most that the node could hold, all flavors of its root together."""
        known = self._lendable.get(node)
        if known is None:
            known = defaultdict(int)
            root = self.root(node)
            for (_, resource), rows in self._rows.items():
                if rows.is_declared[root]:
                    known[resource] = min(UNLIMITED, known[resource] + rows.potential[node])
            self._lendable[node] = known = dict(known)
        return known

    def share_scale(self, parent: int) -> ShareScale:
        """Return the scale for the shares of the node's children. A negative index stands for the roots, which have no shares."""
        known = self._scales.get(parent)
        if known is None:
            known = self._scales[parent] = self._measure(parent) if parent >= 0 else ShareScale({}, {})
        return known

    def _measure(self, parent: int) -> ShareScale:
        most = {name: units for name, units in self.lendable(parent).items() if units > 0}
        whole = lcm(*most.values())
        weights = {child: self.weights[child] for child in self.children[parent]}
        count = lcm(*{weight.numerator for weight in weights.values() if weight})
        counted = {child: weight.denominator * count // weight.numerator for child, weight in weights.items() if weight}
        endless = UNITS_MAX * whole * max(counted.values(), default=1)
        return ShareScale({name: whole // units for name, units in most.items()}, dict.fromkeys(weights, endless) | counted)

    def lowest_common(self, node: int, other: int) -> tuple[int, int, int]:
        """Return the steps from the first node to the lowest common ancestor, and the two nodes right below it on either path.

        The two nodes differ and have the same root.
        """
        mine, theirs = self.paths[node], self.paths[other]
        depth = 1
        while mine[-depth - 1] == theirs[-depth - 1]:
            depth += 1
        return len(mine) - depth, mine[-depth - 1], theirs[-depth - 1]

    def _paths(self, roots_first: list[int]) -> tuple[tuple[int, ...], ...]:
        paths: list[tuple[int, ...]] = [()] * len(self.names)
        for number in roots_first:
            parent = self.parents[number]
            paths[number] = (number,) if parent < 0 else (number, *paths[parent])
        return tuple(paths)

    def _heights(self, roots_first: list[int]) -> tuple[int, ...]:
        heights = [0] * len(self.names)
        for number in reversed(roots_first):
            heights[number] = max((heights[child] + 1 for child in self.children[number]), default=0)
        return tuple(heights)


def _refuse_nonsense(nodes: list[ForestNode], index: Mapping[str, int]) -> None:
    wrong: list[str] = []
    if len(index) < len(nodes):
        wrong.append("two nodes have the same name")
    parents = {node.parent for node in nodes}
    wrong += [f"{node.name}: there is no parent {node.parent!r}" for node in nodes if node.parent is not None and node.parent not in index]
    wrong += [f"{node.name} is a queue and cannot have children" for node in nodes if node.is_queue and node.name in parents]
    for node in nodes:
        if node.weight < 0:
            wrong.append(f"{node.name}: the weight must not be negative")
        for (flavor, resource), quota in node.quotas.items():
            if quota.nominal < 0 or min(quota.borrowing_limit or 0, quota.lending_limit or 0) < 0:
                wrong.append(f"{node.name}: the quota for {resource} of {flavor} must not be negative")
    if wrong:
        raise ConfigError("\n".join(wrong))


def _rows(key: FlavorResource, nodes: list[ForestNode], parents: tuple[int, ...], roots_first: list[int]) -> Rows:
    closed = tuple(key[0] in node.closed for node in nodes)
    quotas = [_CLOSED if is_closed else node.quotas.get(key, _NONE) for node, is_closed in zip(nodes, closed, strict=True)]
    own = [min(UNLIMITED, quota.nominal) for quota in quotas]
    lent, kept, potential = [0] * len(nodes), [0] * len(nodes), [0] * len(nodes)
    narrow: list[tuple[int, ...]] = [()] * len(nodes)
    limited: list[tuple[tuple[int, int], ...]] = [()] * len(nodes)
    declared = [key in node.quotas for node in nodes]
    for number in reversed(roots_first):
        limit, parent = quotas[number].lending_limit, parents[number]
        lent[number] = own[number] if limit is None else min(own[number], limit)
        kept[number] = 0 if lent[number] == own[number] else own[number] if own[number] == UNLIMITED else own[number] - lent[number]
        if parent >= 0:
            own[parent] = min(UNLIMITED, own[parent] + lent[number])
            declared[parent] = declared[parent] or declared[number]
    for number in roots_first:
        parent, limit = parents[number], quotas[number].borrowing_limit
        most = own[number] if parent < 0 else min(UNLIMITED, kept[number] + potential[parent])
        potential[number] = most if limit is None or parent < 0 else min(most, own[number] + limit)
        if parent >= 0:
            is_limited = limit is not None and lent[number] < UNLIMITED
            narrow[number] = (number, *narrow[parent]) if is_limited or kept[number] > 0 else narrow[parent]
            limited[number] = ((number, limit), *limited[parent]) if limit is not None and is_limited else limited[parent]
    limits = tuple(None if parents[number] < 0 else quota.borrowing_limit for number, quota in enumerate(quotas))
    nominal = tuple(min(UNLIMITED, quota.nominal) for quota in quotas)
    idle = tuple(-units for units in own)
    return Rows(
        tuple(own),
        tuple(kept),
        tuple(lent),
        limits,
        tuple(potential),
        nominal,
        idle,
        tuple(declared),
        closed,
        any(kept),
        all(declared),
        tuple(narrow),
        tuple(limited),
    )
