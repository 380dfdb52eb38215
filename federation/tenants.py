"""The tenant tree and its quota arithmetic.

Every tenant has, for each (flavor, resource): a nominal quota, a borrowing limit (use above its own quota) and a lending limit (own quota
that siblings may use). Quantities bubble up as in Kueue's cohorts: a node charges its parent only with the use that exceeds the quota it
never lends.

    own quota(n)       = nominal(n) + sum over children of (own quota(c) - kept(c))
    kept(n)            = max(0, own quota(n) - lending limit(n)) if it has one, else 0
    use(n)             = leases of n itself + sum over children of max(0, use(c) - kept(c))
    available(root)    = own quota - use                              # negative after a quota reduction
    available(n)       = max(0, kept - use) + min(available(parent), cap)              # where kept > use: max(0, available(parent))
      cap              = (own quota - kept) - max(0, use - kept) + borrowing limit     # no cap without a limit
    potential(root)    = own quota
    potential(n)       = min(kept + potential(parent), own quota + borrowing limit)    # no second term without a limit

A flavor is closed to a tenant if neither the tenant nor one of its ancestors names a quota of it, as a ClusterQueue of Kueue uses only the
flavors that it lists. The tenant's own work is granted nothing of a closed flavor; tenants below it that name the flavor are not affected.

A deficit above, after a quota reduction, takes nothing that a node keeps and does not use (ADR 0018, `keeps_local`). The planner's
`quota/ledger.py` computes the same, and a test compares the two.

Unlike a Kueue ClusterQueue, any tenant may hold leases, also one with children. A tree may have several roots, which share nothing.
Quotas depend on the tree alone and are counted once, when it is built; each query then costs one walk to the root. The Redis ledger
computes the same sums in `store/lua/lib_tree.lua`, and a test runs both side by side.
Source: Kueue `pkg/cache/scheduler/resource_node.go`, read as arithmetic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from copy import copy
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Protocol

from federation.errors import ConfigError, UnknownTenant
from mesh.core.ids import FlavorName, TenantPath
from mesh.core.near_names import nearest
from mesh.core.resources import AMOUNT_MAX, ResourceSet
from mesh.errors import LedgerError

FlavorResource = tuple[FlavorName, str]
#: Bubbled use of each node, in units; a missing row is 0.
Usage = MutableMapping[tuple[TenantPath, FlavorName, str], int]

#: Separates the parts of a row's name in the ledger, so no part may contain it.
SEPARATOR = "|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limits of one tenant for one (flavor, resource), in units; None means no limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Node of the tenant tree."""

    path: TenantPath
    parent: TenantPath | None
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    functions: tuple[str, ...] = ()  #: Allowed `module:qualname` patterns of JSON specs; empty: inherited.
    pickled_code: bool = False  #: Whether its clients may send pickled functions, which run only in the tenant's own workers.


def no_such_tenant(path: str, known: Collection[str], covered: str = "") -> str:
    """Return `there is no tenant 'a'; did you mean b?`, or the first known tenants instead of the suggestion.

    Args:
        covered: Restriction of the known tenants, such as ` that this API key covers`.
    """
    hint = nearest(path, known) or f"; there is {', '.join(sorted(known)[:3]) or 'none'}"
    return f"there is no tenant {path!r}{covered}{hint}"


def top_level_of(path: str) -> TenantPath:
    """Return the first name of the path. Keys and rights follow paths, so a key for it covers all paths that begin with it."""
    return TenantPath(path.partition("/")[0])


class Charge(Protocol):
    """Charge of a lease: tenant, flavor and amounts. `Lease` and `LeaseView` both have these."""

    @property
    def tenant(self) -> TenantPath:
        """Tenant that pays."""
        ...

    @property
    def flavor(self) -> FlavorName:
        """Flavor of the lease."""
        ...

    @property
    def amounts(self) -> ResourceSet:
        """Charged amounts."""
        ...


class TenantTree:
    """All tenants with their limits; immutable.

    Raises:
        ConfigError: A duplicate path, a missing parent, a cycle, a negative number, a limit of a root, or a sum too large for a ledger.
            The message has one line per problem.
    """

    __slots__ = ("_children", "_kept", "_keys", "_open", "_own", "_tenants", "_top", "_vanished")

    def __init__(self, tenants: Iterable[Tenant] = ()) -> None:
        listed = sorted(tenants, key=lambda tenant: tenant.path)
        problems = [*_shape_problems(listed), *_number_problems(listed)]
        if problems:
            raise ConfigError("\n".join(problems))
        self._tenants: dict[TenantPath, Tenant] = {tenant.path: tenant for tenant in listed}
        self._children: dict[TenantPath, tuple[TenantPath, ...]] = _children_of(listed)
        self._own: dict[tuple[TenantPath, FlavorName, str], int] = {}
        self._kept: dict[tuple[TenantPath, FlavorName, str], int] = {}
        self._vanished: frozenset[TenantPath] = frozenset()  #: Removed tenants, added back without quota because they are charged.
        self._top: tuple[TenantPath, ...] | None = None
        self._open: dict[TenantPath, frozenset[FlavorName]] = {}  #: Cache of `open_flavors`.
        self._count_quotas()

    def _count_quotas(self) -> None:
        """Count own and kept quota of every node, leaves first."""
        own, kept = self._own, self._kept
        self._keys: frozenset[FlavorResource] = frozenset(key for tenant in self._tenants.values() for key in tenant.quotas)
        for tenant in self._leaves_first():
            for key, quota in tenant.quotas.items():
                row = (tenant.path, *key)
                own[row] = own.get(row, 0) + quota.nominal
                if quota.lending_limit is not None:
                    kept[row] = max(0, own[row] - quota.lending_limit)
            if tenant.parent is not None:
                for flavor, resource in self._keys:
                    row = (tenant.path, flavor, resource)
                    lent = own.get(row, 0) - kept.get(row, 0)
                    if lent:
                        above = (tenant.parent, flavor, resource)
                        own[above] = own.get(above, 0) + lent

    def _leaves_first(self) -> Iterator[Tenant]:
        """Return every tenant after all of its children."""
        roots_first: list[TenantPath] = [tenant.path for tenant in self._tenants.values() if tenant.parent is None]
        for path in roots_first:  # The list grows during iteration: breadth first.
            roots_first.extend(self._children[path])
        return (self._tenants[path] for path in reversed(roots_first))

    @property
    def tenants(self) -> Mapping[TenantPath, Tenant]:
        """All tenants, ordered by path."""
        return self._tenants

    def first_names(self, within: TenantPath | None = None) -> tuple[TenantPath, ...]:
        """Return the first names of the tenants' paths, in order. Runs and keys follow paths, so each is below one of these names.

        Args:
            within: Only this tenant and those below it; None: all.
        """
        paths = self._tenants if within is None else [path for path in self._tenants if self.is_within(path, within)]
        return tuple(sorted(set(map(top_level_of, paths))))

    @property
    def top_level(self) -> tuple[TenantPath, ...]:
        """The first names of the tenants' paths, as `top_level_of` returns them, without removed tenants."""
        if self._top is None:
            self._top = tuple(sorted({top_level_of(path) for path in self._tenants if path not in self._vanished}))
        return self._top

    def is_configured(self, path: TenantPath) -> bool:
        """Return whether the tenant exists: it is in the tree, and not only because it is still charged."""
        return path in self._tenants and path not in self._vanished

    def tenant(self, path: TenantPath) -> Tenant:
        """Return the tenant.

        Raises:
            UnknownTenant: Not in the tree; the message names the nearest paths that are.
        """
        found = self._tenants.get(path)
        if found is None:
            raise UnknownTenant(no_such_tenant(path, self._tenants))
        return found

    def children(self, path: TenantPath) -> tuple[TenantPath, ...]:
        """Return the tenants directly below, in order. Raises UnknownTenant."""
        return self._children[self.tenant(path).path]

    def ancestors(self, path: TenantPath) -> tuple[TenantPath, ...]:
        """Return the parent, its parent, … up to the root. Raises UnknownTenant."""
        return tuple(self._way_up(path))[1:]

    def is_within(self, path: TenantPath, ancestor: TenantPath) -> bool:
        """Return whether `path` is that tenant or below it; False if the tree lacks `path`."""
        return path in self._tenants and ancestor in self._way_up(path)

    def _way_up(self, path: TenantPath) -> Iterator[TenantPath]:
        """Yield the tenant itself, then its ancestors."""
        above: TenantPath | None = self.tenant(path).path
        while above is not None:
            yield above
            above = self._tenants[above].parent

    def flavor_resources(self) -> frozenset[FlavorResource]:
        """Return every (flavor, resource) that some tenant has a quota for."""
        return self._keys

    def open_flavors(self, path: TenantPath) -> frozenset[FlavorName]:
        """Return the flavors that the tenant's own work may use: those of which it or an ancestor names a quota. Raises UnknownTenant."""
        known = self._open.get(path)
        if known is not None:
            return known
        found: frozenset[FlavorName] = frozenset()
        for node in reversed(tuple(self._way_up(path))):
            known = self._open.get(node)
            if known is None:
                own = {flavor for flavor, _ in self._tenants[node].quotas}
                known = self._open[node] = found if own <= found else found | own  # Tenants below share the set.
            found = known
        return found

    def quota(self, path: TenantPath, key: FlavorResource) -> Quota:
        """Return the limits as configured; nominal 0 and no limits by default. Raises UnknownTenant."""
        return self.tenant(path).quotas.get(key, Quota())

    def own_quota(self, path: TenantPath, key: FlavorResource) -> int:
        """Return the node's own quota in units: its nominal quota and what its children lend. Raises UnknownTenant."""
        return self._own.get((self.tenant(path).path, *key), 0)

    def kept(self, path: TenantPath, key: FlavorResource) -> int:
        """Return the units of the own quota that are never lent. Raises UnknownTenant."""
        return self._kept.get((self.tenant(path).path, *key), 0)

    def available(self, usage: Mapping[tuple[TenantPath, FlavorName, str], int], path: TenantPath, key: FlavorResource) -> int:
        """Return the units that the node could still be granted; negative after a quota reduction. Raises UnknownTenant."""
        is_open = key[0] in self.open_flavors(path)
        root, *below = reversed(tuple(self._way_up(path)))
        room = self.own_quota(root, key) - usage.get((root, *key), 0)
        for node in below:
            own, kept, use = self.own_quota(node, key), self.kept(node, key), usage.get((node, *key), 0)
            borrowing_limit = self.quota(node, key).borrowing_limit
            if borrowing_limit is not None:
                room = min(room, (own - kept) - max(0, use - kept) + borrowing_limit)
            if kept > use:
                room = max(0, room) + kept - use
        return room if is_open else min(0, room)

    def borrowing_level(
        self, usage: Mapping[tuple[TenantPath, FlavorName, str], int], path: TenantPath, key: FlavorResource, units: int
    ) -> tuple[int, bool]:
        """Return the borrowing level of `units` more: the steps up to the first tenant whose own quota covers them.

        The level is 0 if the tenant's own quota covers them, so nothing is borrowed. If no own quota covers them, the level is the number
        of steps to the root.

        Returns:
            The level, and whether the covering tenant may reclaim its quota: tenants beside or above it may have borrowed it. False if no
                own quota covers the units.

        Raises:
            UnknownTenant: Not in the tree.
        Source:
            Kueue's height of the lowest subtree that fits; on one path to the root, steps and heights compare alike.
        """
        way = tuple(self._way_up(path))
        for steps, node in enumerate(way):
            use = usage.get((node, *key), 0)
            if use + units <= self.own_quota(node, key):
                return steps, steps < len(way) - 1
            units -= max(0, self.kept(node, key) - use)
        return len(way) - 1, False

    def potential(self, path: TenantPath, key: FlavorResource) -> int:
        """Return the units that the node could hold if no other tenant held any. Raises UnknownTenant."""
        if key[0] not in self.open_flavors(path):
            return 0
        root, *below = reversed(tuple(self._way_up(path)))
        most = self.own_quota(root, key)
        for node in below:
            most += self.kept(node, key)
            borrowing_limit = self.quota(node, key).borrowing_limit
            if borrowing_limit is not None:
                most = min(most, self.own_quota(node, key) + borrowing_limit)
        return most

    def charge(self, usage: Usage, path: TenantPath, key: FlavorResource, by: int) -> None:
        """Add `by` units (negative: return) to the node's use in `usage`; ancestors get what exceeds the kept quota.

        Rows that fall to 0 are removed, so equal uses are equal mappings.

        Raises:
            UnknownTenant: Not in the tree; nothing was charged.
            LedgerError: The node uses less than is returned; nothing was charged.
        """
        if usage.get((self.tenant(path).path, *key), 0) + by < 0:
            raise LedgerError(f"{path} uses {usage.get((path, *key), 0)} of {key}, so {-by} cannot be returned")
        for node in self._way_up(path):
            before = usage.get((node, *key), 0)
            after = before + by
            if after:
                usage[node, key[0], key[1]] = after
            else:
                usage.pop((node, *key), None)
            kept = self.kept(node, key)
            by = max(0, after - kept) - max(0, before - kept)
            if by == 0:
                return

    def recompute(self, leases: Iterable[Charge]) -> dict[tuple[TenantPath, FlavorName, str], int]:
        """Compute the usage of these leases from scratch.

        Raises:
            UnknownTenant: The tree lacks the tenant of a lease.
        """
        usage: defaultdict[tuple[TenantPath, FlavorName, str], int] = defaultdict(int)
        keys: set[FlavorResource] = set()
        for lease in leases:
            for resource, units in lease.amounts.items():
                usage[self.tenant(lease.tenant).path, lease.flavor, resource] += units
                keys.add((lease.flavor, resource))
        for tenant in self._leaves_first():
            if tenant.parent is not None:
                for flavor, resource in keys:
                    above_kept = usage[tenant.path, flavor, resource] - self.kept(tenant.path, (flavor, resource))
                    usage[tenant.parent, flavor, resource] += max(0, above_kept)
        return {row: units for row, units in usage.items() if units}

    def with_vanished(
        self, parents: Mapping[TenantPath, TenantPath | None], usage: Mapping[tuple[TenantPath, FlavorName, str], int]
    ) -> TenantTree:
        """Return this tree plus those removed tenants (`parents`) that are still charged: without quota, unable to borrow, under their
        former parents.
        """
        charged: defaultdict[TenantPath, dict[FlavorResource, Quota]] = defaultdict(dict)
        for path, flavor, resource in usage:
            if path in parents:
                charged[path][flavor, resource] = Quota(borrowing_limit=None if parents[path] is None else 0)
        for path in tuple(charged):  # A tenant's kept use is not charged above, but the parent must be in the tree.
            above = parents[path]
            while above is not None and above in parents:
                charged.setdefault(above, {})
                above = parents[above]
        return self._with([Tenant(path=path, parent=parents[path], quotas=quotas) for path, quotas in charged.items()]) if charged else self

    def _with(self, vanished: list[Tenant]) -> TenantTree:
        """Return the tree plus tenants without quota, lending or other tenants below them, so all counted quotas stay valid.

        Raises:
            ConfigError: A tenant exists already, or its parent is missing.
        """
        known = {path for tenant in vanished for path in (tenant.path, tenant.parent) if path is not None and path in self._tenants}
        problems = list(_shape_problems([*vanished, *(Tenant(path=path, parent=None) for path in known)]))
        if problems:
            raise ConfigError("\n".join(problems))
        children: defaultdict[TenantPath, list[TenantPath]] = defaultdict(list, {path: list(self._children[path]) for path in known})
        for tenant in vanished:
            children[tenant.path].extend(())
            if tenant.parent is not None:
                children[tenant.parent].append(tenant.path)
        tree = copy(self)
        tree._tenants = dict(sorted([*self._tenants.items(), *((tenant.path, tenant) for tenant in vanished)], key=itemgetter(0)))  # noqa: SLF001  same class
        tree._children = {**self._children, **{path: tuple(sorted(below)) for path, below in children.items()}}  # noqa: SLF001  same class
        tree._top, tree._open = self.top_level, {}  # noqa: SLF001  same class
        tree._vanished = self._vanished | {tenant.path for tenant in vanished}  # noqa: SLF001  same class
        return tree

    def with_parent(self, path: TenantPath, parent: TenantPath | None) -> TenantTree:
        """Return this tree with the tenant, and all tenants below it, under another parent, which must not be below it. Only quotas of
        nodes above the two places are counted again.

        Raises:
            UnknownTenant: The tenant or the parent is not in the tree.
            ConfigError: The tenant would become a root and has limits.
        """
        before = self.tenant(path)
        if parent is not None:
            self.tenant(parent)
        tenant = replace(before, parent=parent)
        problems = list(_number_problems([tenant]))
        if problems:
            raise ConfigError("\n".join(problems))
        tree = copy(self)
        tree._tenants = {**self._tenants, path: tenant}  # noqa: SLF001  same class
        tree._own, tree._kept, tree._open = dict(self._own), dict(self._kept), {}  # noqa: SLF001  same class
        tree._children = children = dict(self._children)  # noqa: SLF001  same class
        if before.parent is not None:
            children[before.parent] = tuple(child for child in children[before.parent] if child != path)
        if parent is not None:
            children[parent] = tuple(sorted({*children[parent], path}))
        for key in self._keys:
            lent = self.own_quota(path, key) - self.kept(path, key)
            tree._bring(before.parent, key, -lent)  # noqa: SLF001  same class
            tree._bring(parent, key, lent)  # noqa: SLF001  same class
        return tree

    def _bring(self, path: TenantPath | None, key: FlavorResource, by: int) -> None:
        """Add to the quota that a tenant's children lend it, and propagate upwards."""
        while path is not None and by:
            row, lending_limit = (path, *key), self.quota(path, key).lending_limit
            self._own[row] = self._own.get(row, 0) + by
            if lending_limit is not None:
                kept = max(0, self._own[row] - lending_limit)
                by -= kept - self._kept.get(row, 0)
                self._kept[row] = kept
            path = self._tenants[path].parent

    def covers(self, other: TenantTree) -> bool:
        """Return whether this tree is the other tree plus further `with_vanished` tenants; results for this tree then hold for the other.

        Trees that were built separately never cover each other, even if equal.
        """
        return self._own is other._own and self._vanished >= other._vanished

    def over(self, usage: Mapping[tuple[TenantPath, FlavorName, str], int]) -> tuple[str, ...]:
        """Return `tenant|flavor|resource` of nodes above their limits, as after a quota reduction."""
        found = []
        for (path, flavor, resource), use in usage.items():
            limit = 0 if self.tenant(path).parent is None else self.quota(path, (flavor, resource)).borrowing_limit
            if limit is not None and use > self.own_quota(path, (flavor, resource)) + limit:
                found.append(SEPARATOR.join((path, flavor, resource)))
        return tuple(sorted(found))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TenantTree) and self._tenants == other._tenants

    __hash__ = None  # type: ignore[assignment]  # quotas are dicts

    def __repr__(self) -> str:
        return f"TenantTree({', '.join(self._tenants)})"


def _children_of(listed: Iterable[Tenant]) -> dict[TenantPath, tuple[TenantPath, ...]]:
    below: dict[TenantPath, list[TenantPath]] = {tenant.path: [] for tenant in listed}
    for tenant in listed:
        if tenant.parent is not None:
            below[tenant.parent].append(tenant.path)
    return {path: tuple(children) for path, children in below.items()}


def _shape_problems(listed: list[Tenant]) -> Iterator[str]:
    """Yield problems with paths, parents and names."""
    parents = {tenant.path: tenant.parent for tenant in listed}
    for path, times in Counter(tenant.path for tenant in listed).items():
        if times > 1:
            yield f"{path}: is listed {times} times; list each tenant once"
    fit = {part for part in {part for key in {key for tenant in listed for key in tenant.quotas} for part in key} if _is_name(part)}
    for tenant in listed:
        if tenant.parent is not None and tenant.parent not in parents:
            yield f"{tenant.path}: its parent {tenant.parent} is missing; add it, or name another parent"
        for name in (tenant.path, *(part for key in tenant.quotas for part in key)):
            if name not in fit and not _is_name(name):
                yield f"{tenant.path}: invalid name {name!r}; it must not be empty or contain {SEPARATOR!r}"
    yield from _circles(parents)


def _is_name(name: str) -> bool:
    return bool(name) and SEPARATOR not in name


def _circles(parents: Mapping[TenantPath, TenantPath | None]) -> Iterator[str]:
    """Yield each cycle once, node by node."""
    seen: set[TenantPath] = set()
    for start in parents:
        way: dict[TenantPath, None] = {}
        here: TenantPath | None = start
        while here is not None and here in parents and here not in seen:
            if here in way:
                nodes = list(way)
                circle = [*nodes[nodes.index(here) :], here]
                yield f"{here}: is its own ancestor: {' -> '.join(circle)}"
                break
            way[here] = None
            here = parents[here]
        seen.update(way)


def _number_problems(listed: Iterable[Tenant]) -> Iterator[str]:
    """Yield numbers that a ledger cannot hold, and limits of roots, which have no parent to borrow from or lend to."""
    nominal_sums: Counter[FlavorResource] = Counter()
    for tenant in listed:
        for key, quota in tenant.quotas.items():
            nominal_sums[key] += quota.nominal
            if quota.nominal >= 0 and quota.borrowing_limit is None and quota.lending_limit is None:
                continue  # The common case.
            limits = {"borrowing limit": quota.borrowing_limit, "lending limit": quota.lending_limit}
            for name, units in {"nominal": quota.nominal, **limits}.items():
                if units is not None and units < 0:
                    yield f"{tenant.path}: {name} of {'/'.join(key)} is negative: {units}; write 0 or more"
                if units is not None and name in limits and tenant.parent is None:
                    yield f"{tenant.path}: {name} of {'/'.join(key)} needs a parent; remove it from the root"
    for tenant in listed:
        for key, quota in tenant.quotas.items():
            # No own quota exceeds the sum of all nominal quotas, so no sum of the arithmetic exceeds this one.
            if nominal_sums[key] + (quota.borrowing_limit or 0) > AMOUNT_MAX:
                yield f"{tenant.path}: quotas of {'/'.join(key)} could add up to more than {AMOUNT_MAX} units; use smaller numbers"
