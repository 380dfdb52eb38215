"""The lease ledger on Redis. Every decision is one script; this module converts arguments and replies."""

import json
import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, cast

import redis

from federation.auditing import Mismatch, mismatches
from federation.errors import (
    BatchTooLarge,
    LedgerRecovering,
    LedgerUninitialised,
    PlannerSuperseded,
    QuotaExceeded,
    SessionUnknown,
    StoreUnavailable,
    TreeChanged,
)
from federation.leases import (
    ROWS_MAX,
    ROWS_SENT_MAX,
    VICTIMS_MAX,
    Acquired,
    Configured,
    Granted,
    HeartbeatReport,
    Lease,
    LeaseAck,
    LeaseEvent,
    LeaseRefused,
    LeaseTerms,
    LedgerResponse,
    LookAgain,
    QuotaDemand,
    Session,
    Swept,
    TargetUpdate,
)
from federation.receipts import ReceiptKeys
from federation.reparenting import moved
from federation.snapshot import FederationSnapshot, MeshRecord
from federation.store.lease_rows import (
    ack_line,
    ask_line,
    demand_row,
    demand_view,
    holder_of,
    lease_of,
    lease_use_row,
    lines_of,
    marked_leaving,
    refuse_unfit,
    response_leases,
)
from federation.store.redis.client import home_of
from federation.store.redis.durability import await_copy
from federation.store.redis.keys import Keys
from federation.store.redis.row_cache import RowCache
from federation.store.redis.scripts import Scripts, pairs, redis_responses
from federation.store.redis.session_calls import of_session, raise_named
from federation.store.redis.tree_cache import LOOKS_MAX, TreeCache, new_name, not_whole
from federation.store.tree_rows import gone_of, parts_of, rows_of, tree_diff
from federation.tenants import SEPARATOR, TenantTree
from mesh.core.counting import counted
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.wire import encode
from mesh.errors import AmountError

#: Entries of the log per read in a search of the history.
_PAGE = 1000
#: How long a draft is kept between two of its parts, s.
_DRAFT_S = 600
#: How often a tree is sent again after the server has lost a part.
_DRAFTS_MAX = 3
_GRANTED = f"GRANTED{SEPARATOR}"


class RedisLedger:
    """`LeaseLedger` with scripts.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
        terms: In force from the next `configure` on, or from the creation of the ledger.
        uid: Id of the ledger; None creates an id for a new ledger. With a persistent id, meshes can restore their leases after the server
            has lost everything.
        founding: No lease of this ledger can exist yet, so the first creation needs no recovery; a second creation recovers.
        receipts: Signs reported leases and verifies claims; None: callers are trusted.
        copy_wait_ms: Longest wait of a grant for a copy on a replica; 0: no replica. The wait makes lost grants after a failover rare,
            but does not exclude them: recovery makes them harmless (ADR 0019).
        functions: See `Scripts`.
    """

    def __init__(
        self,
        client: "redis.Redis",
        keys: Keys,
        *,
        terms: LeaseTerms,
        uid: str | None = None,
        founding: bool = False,
        receipts: ReceiptKeys | None = None,
        copy_wait_ms: int = 0,
        functions: bool | None = None,
    ) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.scripted, functions=functions)
        self._terms = terms
        self._uid = uid
        self._founding = founding
        self._receipts = receipts
        self._copy_wait_ms = copy_wait_ms
        self._tree = TreeCache(self._call)
        self._rows = RowCache()
        self._packed: tuple[MeshRecord | None, bytes] = (
            None,
            b"",
        )  #: Record of the last heartbeat, encoded: a mesh sends the same record many times.

    # ---- tenants

    def configure(self, tree: TenantTree, *, expected: int | None = None) -> Configured:
        return self._configure(tree, expected, is_strict=False)

    def reparent(self, tenant: TenantPath, parent: TenantPath | None, *, expected: int, force: bool = False) -> Configured:
        return self._configure(moved(self.configured(), tenant, parent), expected, is_strict=not force)

    def configured(self) -> TenantTree:
        """Return the tree that was configured last, without removed tenants that are still charged."""
        return self.configured_at()[1]

    def configured_at(self) -> tuple[int, TenantTree]:
        """Return the version and the configured tree, at one instant."""
        return self._tree.in_force()

    def _configure(self, tree: TenantTree, expected: int | None, *, is_strict: bool) -> Configured:
        name, known = self._tree.kept
        changes = tree_diff(known, tree) if name else None
        done = None
        if changes is not None:
            done = self._put(tree, changes.rows.items(), expected, name, *changes.gone, is_strict=is_strict)
        for _ in range(_DRAFTS_MAX):
            done = done or self._put(tree, rows_of(tree), expected, "", is_strict=is_strict)
        if done is None:
            raise StoreUnavailable(
                f"configure: Redis has lost parts of the tenant tree {_DRAFTS_MAX} times before all were written; try again"
            )
        return done

    def _put(
        self, tree: TenantTree, rows: Iterable[tuple[str, str]], expected: int | None, amended: str | bytes, *gone: str, is_strict: bool
    ) -> Configured | None:
        """Put the tree into force; None if rows are missing, or if the amended tree is not in force."""
        draft, terms = new_name(tree), (self._terms.ttl_ms, self._terms.grace_ms, self._terms.max_step_ms)
        count = 0
        for part in parts_of(rows):
            self._call("draft", draft, _DRAFT_S, *chain.from_iterable(part))
            count += len(part)
        how = "" if expected is None else expected, *terms, int(is_strict)
        code, *rest = self._call("configure", *how, draft, count, amended, *gone)
        if code == b"VERSION":
            raise TreeChanged(f"version {int(rest[0])} of the tenant tree is in force, not {expected}; read it again")
        if code == b"QUOTA":
            raise QuotaExceeded(f"these nodes would be above their limits: {', '.join(node.decode() for node in rest[0])}")
        if code != b"OK":
            return None
        self._tree.keep(draft.encode(), tree)
        return Configured(version=int(rest[0]), over=tuple(node.decode() for node in rest[1]))

    # ---- sessions

    def join(self, record: MeshRecord, *, adopt: int = 0, seen: int = 0) -> Session:
        reply = self._call("join", record.mesh, encode(record), adopt, seen)
        if reply[0] == b"RECOVERING":
            raise LedgerRecovering(f"the ledger recovers for another {int(reply[1])} ms; no session can be recovered until then")
        raise_named(reply, record.mesh)
        uid, incarnation, ttl_ms = reply[6:]
        session = Session(mesh=record.mesh, incarnation=int(incarnation), ttl_ms=int(ttl_ms), epoch=int(reply[1]), ledger=uid.decode())
        response = self._response(session, reply)
        return replace(session, mark=response.mark, response=response)

    def heartbeat(self, session: Session, record: MeshRecord, heartbeat_report: HeartbeatReport) -> LedgerResponse:
        about = self._packed_of(record), heartbeat_report.number
        if (
            not heartbeat_report.acks
            and not heartbeat_report.lease_uses
            and heartbeat_report.demands is None
            and heartbeat_report.claims is None
        ):
            reply = self._call_for(session, "renew", *about)
            if reply[0] != b"LOOK":
                return _nothing_new(*reply[1:5])
        updates: dict[str, object] = {}
        if heartbeat_report.acks:
            updates["acks"] = [
                [part.tenant, part.flavor, part.version, dict(part.amounts.items())] for part in _bounded(heartbeat_report.acks, ROWS_MAX)
            ]
        if heartbeat_report.demands is not None:
            updates["demands"] = [demand_row(demand) for demand in _bounded(heartbeat_report.demands, ROWS_SENT_MAX)]
        if heartbeat_report.claims is not None:
            updates["claims"] = [self._claim_row(session, lease) for lease in _bounded(heartbeat_report.claims, ROWS_SENT_MAX)]
        if heartbeat_report.lease_uses:
            updates["lease_uses"] = [lease_use_row(use) for use in _bounded(heartbeat_report.lease_uses, ROWS_SENT_MAX)]
        return self._copied(self._response(session, self._call_for(session, "heartbeat", *about, json.dumps(updates) if updates else "")))

    def _packed_of(self, record: MeshRecord) -> bytes:
        known, packed = self._packed  # Read both at once: another thread may write them.
        if known is not record:
            packed = encode(record)
            self._packed = record, packed
        return packed

    def _claim_row(self, session: Session, lease: Lease) -> list[object]:
        if self._receipts is not None:
            self._receipts.check(session.ledger, lease)
        refuse_unfit(lease.tenant, lease.flavor, lease.held)
        return [lease.tenant, lease.flavor, lease.token, lease.version, lease.priority, dict(lease.held.items())]

    def leave(self, session: Session) -> None:
        self._call("leave", session.mesh, session.incarnation)

    # ---- leases

    def acquire(self, session: Session, demands: tuple[QuotaDemand, ...]) -> Acquired:
        for demand in demands:
            if demand.slots < 1:
                raise AmountError(f"{counted(demand.slots, 'slot was', 'slots were')} asked for; ask for at least 1")
        reply = self._call_for(session, "acquire", lines_of(map(ask_line, _bounded(demands, ROWS_MAX))))
        answers = tuple(_answer(demand, answer) for demand, answer in zip(demands, reply[6].decode().splitlines(), strict=True))
        return Acquired(answers=answers, response=self._copied(self._response(session, reply)))

    def release(self, session: Session, parts: tuple[LeaseAck, ...]) -> LedgerResponse:
        return self._response(session, self._call_for(session, "release", lines_of(map(ack_line, _bounded(parts, ROWS_MAX)))))

    def sweep(self, limit: int = 200) -> Swept:
        _, _, recovery_ms, leases, meshes, stages, more, _ = self._call("sweep", limit)
        return Swept(
            meshes=tuple(MeshId(mesh.decode()) for mesh in meshes),
            leases=int(leases),
            stages=tuple(StageId(stage.decode()) for stage in stages),
            is_more_due=more == b"1",
            recovery_ms=int(recovery_ms),
        )

    # ---- planning

    def elect(self, name: str, ttl_ms: int) -> int | None:
        code, token = self._call("elect", name, ttl_ms)
        return int(token) if code == b"OK" else None

    def plan_apply(self, planner: int, version: int, target_updates: tuple[TargetUpdate, ...]) -> int:
        rows = [_target_row(target_update) for target_update in _bounded(target_updates, ROWS_MAX)]
        code, *rest = self._call("plan_apply", planner, version, json.dumps(rows))
        if code == b"PLANNER":
            raise PlannerSuperseded(f"planner {planner} is not the planner any more")
        if code == b"VERSION":
            raise TreeChanged(f"version {int(rest[0])} of the tenant tree is in force, not {version}; plan again")
        if code == b"RECOVERING":
            raise LedgerRecovering(f"the ledger recovers for another {int(rest[0])} ms; plan then")
        if code == b"QUOTA":
            raise QuotaExceeded(f"the targets exceed a limit at {'/'.join(part.decode() for part in rest)}")
        if code == b"UNKNOWN":
            raise SessionUnknown(f"mesh {rest[0].decode()} has no session")
        return int(rest[0])

    def revoke(
        self, *, mesh: MeshId | None = None, tenant: TenantPath | None = None, flavor: FlavorName | None = None, hard: bool = False
    ) -> int:
        return int(self._call("revoke", mesh or "", tenant or "", flavor or "", int(hard))[1])

    # ---- reads

    def epoch(self) -> int:
        with redis_responses("read the epoch"):
            found = cast("bytes | None", self._client.hget(self._keys.meta, "epoch"))
        if found is None:
            raise LedgerUninitialised("the server holds no ledger")
        return int(found)

    def snapshot(self) -> FederationSnapshot:
        for _ in range(LOOKS_MAX):
            _, epoch, recovery_ms, lt, now_ms, version, name, gone, use, meshes, leases, demands, running = self._call("snapshot")
            configured = self._tree.named(name)
            if configured is not None:
                break
        else:
            raise not_whole()
        usage, targeted = self._rows.charged(use)
        held = self._rows.leases(leases)
        vanished = gone_of(pairs(gone))
        return FederationSnapshot(
            at_ms=int(now_ms),
            tree=self._tree.extended(configured, vanished, {**usage, **targeted}) if vanished else configured,
            usage=usage,
            meshes=self._rows.meshes(meshes),
            leases=held,
            demands=tuple(
                demand_view(MeshId(mesh.decode()), field, row, int(lt))
                for mesh, flat_demands in sorted(demands)
                for field, row in sorted(_texts(pairs(flat_demands)).items())
            ),
            running=marked_leaving(self._rows.running(running), held),
            version=int(version),
            epoch=int(epoch),
            recovery_ms=int(recovery_ms),
        )

    def audit(self) -> tuple[Mismatch, ...]:
        """Audit as `LeaseLedger.audit`. `TenantTree` counts, so the scripts do not check themselves."""
        return mismatches(self.snapshot())

    def history(
        self, mesh: MeshId | None = None, tenants: Collection[TenantPath] | None = None, limit: int = 100
    ) -> tuple[LeaseEvent, ...]:
        found: list[LeaseEvent] = []
        before = "+"
        while len(found) < limit:
            with redis_responses("read the log of leases"):
                page = cast(list[tuple[bytes, dict[bytes, bytes]]], self._client.xrevrange(self._keys.lease_log, max=before, count=_PAGE))
            lease_events = (lease_event for entry, fields in page for lease_event in reversed(_lease_events(entry, fields)))
            found.extend(lease_event for lease_event in lease_events if _is_about(lease_event, mesh, tenants))
            if len(page) < _PAGE:
                break
            before = f"({page[-1][0].decode()}"
        return tuple(reversed(found[:limit]))

    # ---- calls

    def _call(self, verb: str, *arguments: str | bytes | int) -> Any:
        """Call the verb and return its reply; create the ledger if there is none."""
        try:
            reply = self._scripts.call(verb, *arguments)
        except LedgerUninitialised:
            terms = (self._terms.ttl_ms, self._terms.grace_ms, self._terms.max_step_ms)
            self._scripts.call("init", self._uid or secrets.token_hex(8), *terms, int(self._founding))
            reply = self._scripts.call(verb, *arguments)
        self._founding = False  # From now on leases may exist, even if the server loses them.
        return reply

    def _call_for(self, session: Session, verb: str, *arguments: str | bytes | int) -> Any:
        reply = self._call(verb, *of_session(session), *arguments)
        if reply[0] != b"OK":
            raise_named(reply, session.mesh)
        return reply

    def _copied(self, response: LedgerResponse) -> LedgerResponse:
        """Wait until a replica has the changed leases, or until the wait ends."""
        if response.leases and self._copy_wait_ms:
            with suppress(StoreUnavailable):
                await_copy(home_of(self._client, self._keys.touched), self._keys, self._copy_wait_ms)
        return response

    def _response(self, session: Session, reply: list[Any]) -> LedgerResponse:
        _, epoch, recovery_ms, mark, others_wait, rows = reply[:6]
        leases = response_leases(session.mesh, rows.decode()) if rows else ()
        if self._receipts is not None:
            leases = tuple(self._receipts.signed(session.ledger, lease) for lease in leases)
        return LedgerResponse(
            epoch=int(epoch),
            recovery_ms=int(recovery_ms),
            mark=int(mark),
            others_wait=others_wait == b"1",
            leases=leases,
        )


@lru_cache(maxsize=1024)
def _nothing_new(epoch: bytes, recovery_ms: bytes, mark: bytes, others_wait: bytes) -> LedgerResponse:
    """Return the reply of most heartbeats; cached, because it repeats."""
    return LedgerResponse(epoch=int(epoch), recovery_ms=int(recovery_ms), mark=int(mark), others_wait=others_wait == b"1")


def _target_row(target_update: TargetUpdate) -> list[object]:
    """Format for `lua/plan_apply.lua`. The victims are text, since cjson rounds numbers."""
    before = target_update.before
    return [
        target_update.mesh,
        target_update.tenant,
        target_update.flavor,
        -1 if target_update.wait_ms is None else target_update.wait_ms,
        dict(target_update.target.items()),
        before is not None and dict(before.items()),
        "".join(f",{token}" for token in target_update.victims[:VICTIMS_MAX]),
    ]


def _bounded(rows: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    if len(rows) > most:
        raise BatchTooLarge(f"{counted(len(rows), 'row')} in one call; send at most {most}")
    return rows


def _answer(demand: QuotaDemand, answer: str) -> Granted | LookAgain | LeaseRefused:
    if answer.startswith(_GRANTED):
        return _granted(answer)
    code, *rest = answer.split(SEPARATOR)
    if code == "CHANGED":
        return LookAgain()
    if code == "UNKNOWN_TENANT":
        return LeaseRefused(reason=Reason.TENANT_UNKNOWN, tenant=demand.tenant, flavor=demand.flavor)
    reason, resource, wanted, available = rest
    return LeaseRefused(
        reason=Reason(reason), tenant=demand.tenant, flavor=demand.flavor, resource=resource, wanted=int(wanted), available=int(available)
    )


@lru_cache(maxsize=1024)
def _granted(answer: str) -> Granted:
    """Parse a grant; cached, because most replies of a call are equal."""
    return Granted(slots=int(answer.removeprefix(_GRANTED)))


def _lease_events(entry: bytes, fields: dict[bytes, bytes]) -> list[LeaseEvent]:
    """Return the changes of one call, in order; or the beginning of an epoch."""
    values = _texts(fields)
    at_ms = int(entry.partition(b"-")[0])
    if "verb" in values:
        return [LeaseEvent(at_ms=at_ms, verb=values["verb"], lease=None, why=values.get("why", ""))]
    lease_events = []
    for change in values["changes"].splitlines():
        verb, holder, tenant, flavor, row = change.split(SEPARATOR, 4)
        lease_events.append(LeaseEvent(at_ms=at_ms, verb=verb, lease=lease_of(holder_of(holder)[0], tenant, flavor, row)))
    return lease_events


def _is_about(lease_event: LeaseEvent, mesh: MeshId | None, tenants: Collection[TenantPath] | None) -> bool:
    lease = lease_event.lease
    return lease is None or ((mesh is None or lease.mesh == mesh) and (tenants is None or lease.tenant in tenants))


def _texts(rows: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in rows.items()}
