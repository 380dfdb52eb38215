"""The lease ledger on Redis. Every decision is one script; this file carries arguments there and replies back."""

import json
from collections.abc import Iterator

import redis

from federation.errors import SessionLost, UnknownTenant
from federation.leases import Lease, LeaseRefused, Session, Swept
from federation.snapshot import MeshRecord, MeshView, Snapshot
from federation.store.keys import Keys
from federation.store.lease_view import view_of
from federation.store.redis_scripts import Scripts, pairs
from federation.tenants import SEPARATOR, FlavorResource, Quota, Tenant, TenantTree
from mesh.errors import AmountError
from mesh.ids import FlavorName, LeaseId, MeshId, StageId, TenantPath
from mesh.reasons import Reason
from mesh.resources import AMOUNT_MAX, ResourceSet
from mesh.wire import decode, encode


class RedisLedger:
    """`LeaseLedger` by scripts.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
        ttl_ms: How long a session lives after each heartbeat.
        grace_ms: How much longer the ledger waits before it takes back what a silent session holds.
    """

    def __init__(self, client: "redis.Redis", keys: Keys, *, ttl_ms: int, grace_ms: int) -> None:
        self._scripts = Scripts(client, keys.scripted)
        self._ttl_ms = ttl_ms
        self._grace_ms = grace_ms

    def configure(self, tree: TenantTree) -> None:
        """See `LeaseLedger.configure`."""
        tenants = [[tenant.path, tenant.parent or "", _tenant_json(tenant)] for tenant in tree.tenants.values()]
        self._scripts.call("configure", json.dumps(tenants), json.dumps(list(_quota_rows(tree))))

    def join(self, record: MeshRecord) -> Session:
        """See `LeaseLedger.join`."""
        incarnation = self._scripts.call("join", record.mesh, encode(record), self._ttl_ms)
        return Session(mesh=record.mesh, incarnation=int(incarnation), ttl_ms=self._ttl_ms)

    def heartbeat(self, session: Session, record: MeshRecord) -> None:
        """See `LeaseLedger.heartbeat`."""
        if self._scripts.call("heartbeat", session.mesh, session.incarnation, encode(record), self._ttl_ms) != b"OK":
            raise SessionLost(f"session {session.incarnation} of {session.mesh} has ended; join again")

    def leave(self, session: Session) -> None:
        """See `LeaseLedger.leave`."""
        self._scripts.call("leave", session.mesh, session.incarnation)

    def acquire(  # the port's signature
        self, session: Session, lease: LeaseId, tenant: TenantPath, flavor: FlavorName, slot: ResourceSet, want: int
    ) -> Lease | LeaseRefused:
        """See `LeaseLedger.acquire`. Raises AmountError besides, when `want` is less than 1."""
        if want < 1:
            raise AmountError(f"{want} slots were asked for; ask for at least 1")
        asked = json.dumps({resource: str(units) for resource, units in slot.items()})
        answer, *rest = self._scripts.call(
            "acquire", session.mesh, session.incarnation, lease, tenant, flavor, asked, min(want, AMOUNT_MAX)
        )
        if answer == b"GRANTED":
            return _lease(lease, session.mesh, rest[0])
        if answer == b"REFUSED":
            reason, resource, wanted, available = (part.decode() for part in rest)
            return LeaseRefused(
                reason=Reason(reason), tenant=tenant, flavor=flavor, resource=resource, wanted=int(wanted), available=int(available)
            )
        if answer == b"SESSION_LOST":
            raise SessionLost(f"session {session.incarnation} of {session.mesh} has ended or run out; join again")
        self.snapshot().tree.tenant(tenant)  # Raises UnknownTenant and names the nearest.
        raise UnknownTenant(f"tenant {tenant} is not in the configuration")

    def release(self, session: Session, lease: LeaseId) -> bool:
        """See `LeaseLedger.release`."""
        answer = self._scripts.call("release", session.mesh, session.incarnation, lease)
        if answer == b"SESSION_LOST":
            raise SessionLost(f"session {session.incarnation} of {session.mesh} has ended; its leases are gone, join again")
        return bool(answer == b"RELEASED")

    def sweep(self) -> Swept:
        """See `LeaseLedger.sweep`."""
        leases, meshes, stages = self._scripts.call("sweep", self._grace_ms)
        return Swept(
            meshes=tuple(MeshId(mesh.decode()) for mesh in meshes),
            leases=leases,
            stages=tuple(StageId(stage.decode()) for stage in stages),
        )

    def snapshot(self) -> Snapshot:
        """See `LeaseLedger.snapshot`."""
        now_ms, flat, rows = self._scripts.call("snapshot")
        tree = {name.decode(): value.decode() for name, value in pairs(flat).items()}
        usage = {_usage_key(name): int(units) for name, units in tree.items() if name.startswith("use" + SEPARATOR)}
        held = [
            _lease(LeaseId(lease.decode()), MeshId(mesh.decode()), packed)
            for mesh, *_, leases in rows
            for lease, packed in pairs(leases).items()
        ]
        return Snapshot(
            at_ms=int(now_ms),
            tree=_tree_of(tree, usage),
            usage=usage,
            meshes=tuple(sorted((_mesh_view(row) for row in rows), key=lambda view: view.record.mesh)),
            leases=tuple(view_of(lease) for lease in sorted(held, key=lambda lease: lease.token)),
        )


def _lease(lease: LeaseId, mesh: MeshId, packed: bytes) -> Lease:
    held = json.loads(packed)
    return Lease(
        lease=lease,
        tenant=TenantPath(held["tenant"]),
        mesh=mesh,
        flavor=FlavorName(held["flavor"]),
        slot=ResourceSet({resource: int(units) for resource, units in held["slot"].items()}),
        slots=int(held["slots"]),
        token=int(held["token"]),
    )


def _mesh_view(row: list[bytes | int]) -> MeshView:
    _, record, incarnation, alive, age_ms, waiting, claimed, _ = row
    return MeshView(
        record=decode(MeshRecord, bytes(record)),
        incarnation=int(incarnation),
        alive=alive == 1,
        heartbeat_age_ms=int(age_ms),
        waiting=int(waiting),
        claimed=int(claimed),
    )


def _quota_rows(tree: TenantTree) -> Iterator[list[str]]:
    """Rows that are not all zero: limits of a tenant, and what it has from its children."""
    for path in tree.tenants:
        for key in sorted(tree.flavor_resources()):
            own, kept, limit = tree.own_quota(path, key), tree.kept(path, key), tree.quota(path, key).borrowing_limit
            if own or kept or limit is not None:
                yield [path, *key, f"{own} {kept} {'-' if limit is None else limit}"]


def _usage_key(name: str) -> tuple[TenantPath, FlavorName, str]:
    _, path, flavor, resource = name.split(SEPARATOR, 3)
    return TenantPath(path), FlavorName(flavor), resource


def _tree_of(rows: dict[str, str], usage: dict[tuple[TenantPath, FlavorName, str], int]) -> TenantTree:
    """The configured tenants, and the vanished ones that are still charged."""
    tenants = [_tenant_of(packed) for name, packed in rows.items() if name.startswith("tenant" + SEPARATOR)]
    configured = {tenant.path for tenant in tenants}
    parents = {
        TenantPath(name.removeprefix("parent" + SEPARATOR)): TenantPath(parent) if parent else None
        for name, parent in rows.items()
        if name.startswith("parent" + SEPARATOR)
    }
    gone = {path: parent for path, parent in parents.items() if path not in configured}
    return TenantTree(tenants).with_vanished(gone, usage)


def _tenant_json(tenant: Tenant) -> str:
    quotas = [
        [flavor, resource, quota.nominal, quota.borrowing_limit, quota.lending_limit] for (flavor, resource), quota in tenant.quotas.items()
    ]
    row = {
        "path": tenant.path,
        "parent": tenant.parent,
        "quotas": quotas,
        "functions": tenant.functions,
        "pickled_code": tenant.pickled_code,
    }
    return json.dumps(row)


def _tenant_of(packed: str) -> Tenant:
    row = json.loads(packed)
    quotas: dict[FlavorResource, Quota] = {
        (FlavorName(flavor), resource): Quota(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)
        for flavor, resource, nominal, borrowing, lending in row["quotas"]
    }
    return Tenant(
        path=TenantPath(row["path"]),
        parent=row["parent"],
        quotas=quotas,
        functions=tuple(row["functions"]),
        pickled_code=row["pickled_code"],
    )
