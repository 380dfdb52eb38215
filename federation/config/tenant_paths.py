"""Tenants of both forms of a federation file, each with its path, its parent's path and its place in the file.

The path is a tenant's name. The parent shares its quota: the tenant that the path names, unless `parent` names another. So a tenant with
work can move to another parent and keep its identity.

In the list form an entry with a `name` gets its path from its parent. The entry names the parent by its full path, or by its name alone
if only one tenant has this name. Parents that form a cycle never get a path; the message lists the cycle name by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from federation.config.sections.tenants import TenantEntry, TenantRights, TenantSection
from federation.config.yaml_source import ConfigProblem, Path
from mesh.core.ids import TenantPath
from mesh.core.near_names import nearest

T = TypeVar("T")

TENANT_DEPTH_MAX = 32  #: Levels; each costs a ledger script one step per resource.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTenant:
    """Tenant of the file; `functions` and `pickled_code` include inherited values."""

    path: TenantPath
    parent: TenantPath | None
    place: Path  #: In the file.
    rights: TenantRights
    functions: tuple[str, ...] = ()
    pickled_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTenants:
    """All tenants that have a path, parents before children, and the problems of the others."""

    tenants: tuple[PlacedTenant, ...]
    problems: tuple[ConfigProblem, ...] = ()


def place_tenants(tenants: Mapping[str, TenantSection] | tuple[TenantEntry, ...]) -> PlacedTenants:
    """Return the tenants of both forms of `tenants:`; children inherit rights from their parents."""
    by_path = _from_list(tenants) if isinstance(tenants, tuple) else PlacedTenants(tenants=tuple(_from_tree(tenants)))
    placed = _below_named_parents(by_path)
    inherited: dict[str | None, PlacedTenant] = {}
    for tenant in placed.tenants:
        above, rights = inherited.get(tenant.parent), tenant.rights
        inherited[tenant.path] = replace(
            tenant,
            functions=rights.functions if rights.functions is not None else above.functions if above else (),
            pickled_code=rights.pickled_code if rights.pickled_code is not None else bool(above and above.pickled_code),
        )
    return PlacedTenants(tenants=tuple(inherited.values()), problems=placed.problems)


def _from_tree(
    tenants: Mapping[str, TenantSection], parent: TenantPath | None = None, place: Path = ("tenants",)
) -> Iterator[PlacedTenant]:
    for name, section in tenants.items():  # The file's depth limit bounds the recursion.
        path = TenantPath(f"{parent}/{name}" if parent else name)
        yield PlacedTenant(path=path, parent=parent, place=(*place, name), rights=section)
        yield from _from_tree(section.tenants, path, (*place, name, "tenants"))


def _below_named_parents(by_path: PlacedTenants) -> PlacedTenants:
    """Put each tenant below the parent that it names, parents before children again."""
    known = {tenant.path: tenant for tenant in by_path.tenants}
    named = {path: TenantPath(parent) for path, tenant in known.items() if (parent := _named_parent(tenant)) is not None}
    if not named:
        return by_path
    problems = []
    above = {path: tenant.parent for path, tenant in known.items()}
    for path, parent in named.items():
        place = (*known[path].place, "parent")
        if parent in known:
            above[path] = parent
        else:
            problems.append(ConfigProblem(path=place, text=f"there is no tenant {parent!r}{nearest(parent, known)}"))
        if path in (circle := _circle_from(path, above)):
            problems.append(ConfigProblem(path=place, text=_circle_words(circle)))
            above[path] = None  # Reported once; the other checks treat it as a top-level tenant.
    placed: dict[TenantPath, PlacedTenant] = {}
    for path in known:
        way = [path]
        while (step := above[way[-1]]) is not None and step not in placed:
            way.append(step)
        placed.update((each, replace(known[each], parent=above[each])) for each in reversed(way))
    return PlacedTenants(tenants=tuple(placed.values()), problems=(*by_path.problems, *problems))


def _named_parent(tenant: PlacedTenant) -> str | None:
    """Return the parent that the file names beside the path."""
    rights = tenant.rights
    return None if isinstance(rights, TenantEntry) and rights.path is None else rights.parent


def _from_list(entries: tuple[TenantEntry, ...]) -> PlacedTenants:
    paths = _settled(entries)
    lost = {index: entry for index, entry in enumerate(entries) if index not in paths}
    problems = list(_without_path(lost, tuple(paths.values())))
    placed: dict[str, PlacedTenant] = {}
    for index, path in sorted(paths.items(), key=lambda item: (item[1].count("/"), item[0])):
        place, parent = ("tenants", index), path.rpartition("/")[0]
        if path in placed:
            first = placed[path].place[-1]
            problems.append(ConfigProblem(path=place, text=f"the tenant {path} appears twice (first as tenants[{first}]); keep one"))
        elif parent and parent not in placed and entries[index].parent is None:
            problems.append(
                ConfigProblem(path=place, text=f"the tenant {path} has no parent {parent} in this file{nearest(parent, placed)}")
            )
        else:
            above = TenantPath(parent) if parent in placed else None
            placed[path] = PlacedTenant(path=TenantPath(path), parent=above, place=place, rights=entries[index])
    return PlacedTenants(tenants=tuple(placed.values()), problems=tuple(problems))


def _settled(entries: tuple[TenantEntry, ...]) -> dict[int, str]:
    """Return the paths by index of the entry, for all entries that have a path."""
    by_name: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        by_name.setdefault(_name(entry), []).append(index)
    paths: dict[int, str] = {}
    for _ in range(TENANT_DEPTH_MAX + 1):  # Each round finds the paths of one more level, plus one level that is too deep, to report it.
        known = frozenset(paths.values())
        for index, entry in enumerate(entries):
            path = None if index in paths else _path_of(entry, known, [paths.get(other) for other in by_name.get(str(entry.parent), [])])
            if path is not None:
                paths[index] = path
    return paths


def _path_of(entry: TenantEntry, known: frozenset[str], namesakes: list[str | None]) -> str | None:
    """Return the path of an entry once its parent's path is known. `namesakes`: paths of all tenants with the parent's name."""
    if entry.path is not None:
        return entry.path
    if entry.parent is None:
        return str(entry.name)
    if entry.parent in known:
        return f"{entry.parent}/{entry.name}"
    return f"{namesakes[0]}/{entry.name}" if len(namesakes) == 1 and namesakes[0] is not None else None


def _name(entry: TenantEntry) -> str:
    return entry.name or str(entry.path).rpartition("/")[2]


def _without_path(entries: Mapping[int, TenantEntry], known: tuple[str, ...]) -> Iterator[ConfigProblem]:
    """Report why these have no path: a cycle (once), a parent in a cycle (not again), or an unknown parent."""
    by_name = {_name(entry): index for index, entry in entries.items()}
    above = {index: by_name.get(str(entry.parent).rpartition("/")[2]) for index, entry in entries.items()}
    described: set[int] = set()
    for index, entry in entries.items():
        namesakes = [path for path in known if path.rpartition("/")[2] == entry.parent]
        if len(namesakes) > 1:
            text = f"several tenants are called {entry.parent}; write the whole path: {' or '.join(sorted(namesakes))}"
            yield ConfigProblem(path=("tenants", index, "parent"), text=text)
        elif above[index] is None and entry.parent not in known and not namesakes:  # else: too deep, which the checks report
            near = nearest(str(entry.parent), known) or "; add it, or remove `parent`"
            yield ConfigProblem(path=("tenants", index, "parent"), text=f"there is no tenant {entry.parent!r}{near}")
        circle = _circle_from(index, above)
        if circle and not described.intersection(circle):
            described.update(circle)
            yield ConfigProblem(path=("tenants", circle[0], "parent"), text=_circle_words([_name(entries[step]) for step in circle]))


def _circle_words(names: Sequence[str]) -> str:
    return f"tenants form a cycle: {' -> '.join((*names, names[0]))}; give one of them another parent"


def _circle_from(start: T, above: Mapping[T, T | None]) -> tuple[T, ...]:
    """Return the cycle in which the path up from `start` ends; empty if it ends otherwise."""
    way: list[T] = []
    step: T | None = start
    while step is not None and step not in way:
        way.append(step)
        step = above[step]
    return tuple(way[way.index(step) :]) if step is not None else ()
