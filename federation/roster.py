"""The meshes and flavors that the root's file names, and what a mesh that comes is held against there.

Meshes that `up` starts tell what the file says of them, which was checked with the file. Those that come by themselves tell what they like,
at every join and heartbeat: a flavor that is none would attract no work or the wrong work, and nobody would hear why. So what cannot be is
refused by name; who may use a mesh is for the root's file to say, and a mesh may narrow that only; everything else is the mesh's own to
know, and where it differs from the file somebody is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from federation.errors import MeshMisfit
from federation.routing.openness import narrowed
from federation.snapshot import MeshRecord, PoolRecord
from mesh.ids import FlavorName, MeshId
from mesh.labels import mismatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """What a root's file names. It is taken at the start of the root, and kept to its end: `apply` changes tenants and rules only."""

    flavors: dict[FlavorName, dict[str, str]] = field(
        default_factory=dict
    )  #: The labels that a mesh needs to offer each; empty: not known.
    meshes: dict[MeshId, MeshRecord] = field(default_factory=dict)  #: As the file has them.
    root_cluster: str = ""  #: Ray's own id of the root's cluster, where it has that for itself; empty: not known, or it is shared.


#: Of a root without a file: every mesh is taken as it tells itself.
NO_ROSTER = Roster()


def admitted(record: MeshRecord, roster: Roster) -> MeshRecord:
    """The record as it counts at the root: open to no tenant that the file keeps out, and on a shared cluster if the file says so.

    Raises:
        MeshMisfit: A pool is of a flavor that the file does not have, or that the mesh's labels do not fit; or no tenant is left; or it is
            on the root's own cluster.
    """
    if roster.root_cluster and record.cluster == roster.root_cluster:
        raise MeshMisfit(
            f"the mesh {record.mesh} is on the Ray cluster of the root, where its tenants could run code in the control plane; join from "
            "another Ray cluster"
        )
    for pool in record.pools if roster.flavors else ():
        if pool.flavor not in roster.flavors:
            raise MeshMisfit(
                f"the pool {pool.pool} of the mesh {record.mesh} is of the flavor {pool.flavor!r}, which the root's file does not have"
                f"{_near(pool.flavor, roster.flavors)}; name one of those, or write it into the root's file and start the root again"
            )
        lacking = mismatch(roster.flavors[pool.flavor], record.labels)
        if lacking is not None:
            raise MeshMisfit(
                f"the mesh {record.mesh} cannot offer {pool.flavor} in its pool {pool.pool}: {lacking}; join with labels that fit: "
                "--label KEY=VALUE, or --config FILE that has the mesh"
            )
    known = roster.meshes.get(record.mesh)
    if known is None:
        return replace(record, shared=False) if roster.meshes else record
    tenants = narrowed(record.tenants, known.tenants)
    if not tenants:
        raise MeshMisfit(
            f"nobody could use the mesh {record.mesh}: it opens itself to {_listed(record.tenants)}, and the root's file opens it to "
            f"{_listed(known.tenants)}; join without --tenant, or change `meshes.{record.mesh}.tenants` there and start the root again"
        )
    return replace(record, tenants=tenants, shared=known.shared)


def differences(record: MeshRecord, roster: Roster) -> tuple[str, ...]:
    """Where a mesh tells itself otherwise than the root's file does, in words; nothing where the root has no file."""
    known = roster.meshes.get(record.mesh)
    if known is not None:
        return tuple(_differences(record, known))
    return (f"the root's file names no mesh {record.mesh}{_near(record.mesh, roster.meshes)}",) if roster.meshes else ()


def _differences(record: MeshRecord, known: MeshRecord) -> Iterator[str]:
    if record.labels != known.labels:
        yield f"its labels are {_pairs(record.labels)}; the root's file says {_pairs(known.labels)}"
    if set(record.tenants) != set(known.tenants):
        left = narrowed(record.tenants, known.tenants)
        yield f"it opens itself to {_listed(record.tenants)}; the root's file says {_listed(known.tenants)}: it is open to {_listed(left)}"
    told, expected = ({pool.pool: _pool(pool) for pool in each.pools} for each in (record, known))
    for name in sorted(told.keys() | expected.keys()):
        if told.get(name) != expected.get(name):
            yield f"its pool {name} is {told.get(name, 'not there')}; the root's file says {expected.get(name, 'nothing of it')}"


def _pool(pool: PoolRecord) -> str:
    return f"{pool.flavor} {pool.capacity!r}"


def _pairs(labels: dict[str, str]) -> str:
    return _listed(f"{key}={value}" for key, value in sorted(labels.items()))


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words) or "none"


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(known), n=1)
    return f" (did you mean {near[0]}? it has {_listed(sorted(known))})" if near else f" (it has {_listed(sorted(known))})"
