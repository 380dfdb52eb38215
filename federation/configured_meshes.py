"""Meshes and flavors in the root's file, and the checks of a mesh's record against them.

Meshes that `up` starts report records from the checked file. Other meshes report any record, at every join and heartbeat. A wrong flavor
would attract no work or the wrong work, without a message. So the root refuses impossible records by name. The root's file decides which
tenants may use a mesh; a mesh may only narrow this. All other facts come from the mesh, and differences from the file become warnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from federation.errors import MeshMisfit
from federation.mesh_access import narrowed
from federation.snapshot import MeshRecord, PoolRecord
from mesh.core.ids import FlavorName, MeshId
from mesh.core.labels import mismatch
from mesh.core.near_names import near_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredMeshes:
    """Meshes and flavors of the root's file, fixed when the root starts: `apply` changes tenants and rules only."""

    flavors: dict[FlavorName, dict[str, str]] = field(
        default_factory=dict
    )  #: Labels that a mesh needs to offer each flavor; empty: unknown.
    meshes: dict[MeshId, MeshRecord] = field(default_factory=dict)  #: Records as the file has them.
    root_cluster: str = ""  #: Ray's id of the root's cluster, if the root has its own; empty: unknown or shared.


#: For a root without a file: it accepts every mesh's record as reported.
NO_CONFIGURED_MESHES = ConfiguredMeshes()


def admitted(record: MeshRecord, expected: ConfiguredMeshes) -> MeshRecord:
    """Return the record as the root uses it: without tenants that the file excludes, and `shared` as the file says.

    Raises:
        MeshMisfit: The file lacks a pool's flavor, the mesh's labels do not match the flavor, no tenant is left, or the mesh is on the
            root's own cluster.
    """
    if expected.root_cluster and record.cluster == expected.root_cluster:
        raise MeshMisfit(
            f"the mesh {record.mesh} is on the Ray cluster of the root, where its tenants could run code in the control plane; join from "
            "another Ray cluster"
        )
    for pool in record.pools if expected.flavors else ():
        if pool.flavor not in expected.flavors:
            raise MeshMisfit(
                f"the pool {pool.pool} of the mesh {record.mesh} has the flavor {pool.flavor!r}, which the root's file does not define"
                f"{_near(pool.flavor, expected.flavors)}; use one of these flavors, or add it to the root's file and restart the root"
            )
        lacking = mismatch(expected.flavors[pool.flavor], record.labels)
        if lacking is not None:
            raise MeshMisfit(
                f"the mesh {record.mesh} cannot offer {pool.flavor} in its pool {pool.pool}: {lacking}; join with labels that fit: "
                "--label KEY=VALUE, or --config FILE that has the mesh"
            )
    known = expected.meshes.get(record.mesh)
    if known is None:
        return replace(record, shared=False) if expected.meshes else record
    tenants = narrowed(record.tenants, known.tenants)
    if not tenants:
        raise MeshMisfit(
            f"no tenant could use the mesh {record.mesh}: it allows {_listed(record.tenants)}, and the root's file allows "
            f"{_listed(known.tenants)}; join without --tenant, or change `meshes.{record.mesh}.tenants` there and restart the root"
        )
    return replace(record, tenants=tenants, shared=known.shared)


def differences(record: MeshRecord, expected: ConfiguredMeshes) -> tuple[str, ...]:
    """Return messages on how a mesh's record differs from the root's file; nothing if the root has no file."""
    known = expected.meshes.get(record.mesh)
    if known is not None:
        return tuple(_differences(record, known))
    return (f"the root's file names no mesh {record.mesh}{_near(record.mesh, expected.meshes)}",) if expected.meshes else ()


def _differences(record: MeshRecord, known: MeshRecord) -> Iterator[str]:
    if record.labels != known.labels:
        yield f"its labels are {_pairs(record.labels)}; the root's file says {_pairs(known.labels)}"
    if set(record.tenants) != set(known.tenants):
        left = narrowed(record.tenants, known.tenants)
        yield f"it allows {_listed(record.tenants)}; the root's file allows {_listed(known.tenants)}: tenants in force are {_listed(left)}"
    own, expected = ({pool.pool: _pool(pool) for pool in each.pools} for each in (record, known))
    for name in sorted(own.keys() | expected.keys()):
        if own.get(name) != expected.get(name):
            yield f"its pool {name} is {own.get(name, 'missing')}; the root's file says {expected.get(name, 'no such pool')}"


def _pool(pool: PoolRecord) -> str:
    return f"{pool.flavor} {pool.capacity!r}"


def _pairs(labels: dict[str, str]) -> str:
    return _listed(f"{key}={value}" for key, value in sorted(labels.items()))


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words) or "none"


def _near(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = near_name(name, names)
    return f" (did you mean {near}? it has {_listed(names)})" if near is not None else f" (it has {_listed(names)})"
