"""What can be said about a stage that waits at a mesh, or would: its place, why, what would have to change, when, at whose cost.

Nothing here decides. The numbers are those of the deciders, asked on a snapshot: `quota.explain` for places, levers and the start by
what runs, `foreseeing` for stages that the mesh would stop for one of the same tenant, `planning.plan` for who else would be asked to
give way, `estimates` for the queue of the mesh.

A lease is taken for one workload of its tenant, which began when the youngest stage of its mesh did and ends one mean run time of the mesh
after that; what its mesh wants for others beside it is not known here. So a start is an estimate, and is told as one; it is not told
before any stage has ended, nor when what has to end first runs for longer than that already: then by how much it does is told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from federation.dispatch import QueuedStage, StageAges
from federation.estimates import CostRules, overdue_ms, typical_run_ms, wait_ms
from federation.explaining.foreseeing import BegunStage, ForeseenStop, foresee
from federation.explaining.queue_places import Flavors, QueueLine, may_meet
from federation.planning.planner import plan
from federation.planning.reading import free_room, granted_ms, has_room, holdings_of, left_over, wants_of
from federation.planning.values import Plan, Target, Unmet, Want
from federation.quota.explain import Change, Explanation, dry_run, explain
from federation.quota.flavors import Mode
from federation.quota.forest import QuotaForest
from federation.quota.limits import Gate
from federation.quota.policies import Preempt, QueueSettings, ResourceGroup
from federation.quota.scheduler import QuotaScheduler
from federation.quota.workloads import ReplicaSet, Running, Workload
from federation.routing.flavor_choice import in_order
from federation.snapshot import LeaseView, PoolRecord, Snapshot
from federation.tenant_orders import OrdersInForce
from mesh.admission import WANT_OF_ROOM
from mesh.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet

_QUOTA_LACKS = frozenset({Reason.QUOTA_EXHAUSTED, Reason.QUOTA_TOO_SMALL})
#: What keeps a stage from its mesh, and no stage from another mesh.
_MESH_LACKS = WANT_OF_ROOM | {Reason.LEASES_AT_LIMIT}
#: What a mesh says that knows only its own part: its room, or not even that. The quota tree may know more.
SAID_IN_PART = frozenset({Reason.CAPACITY_BUSY, Reason.WAITING_IN_QUEUE})
_SLOT = "slot"  #: The one replica set of a stage: what it needs to start.


@dataclass(frozen=True, slots=True, kw_only=True)
class GivesWay:
    """A lease that would be asked for a part of what it holds, or pays for stages that would stop."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    amounts: ResourceSet  #: The part.
    reason: Reason
    stages: tuple[StageId, ...] = ()  #: Which would stop, where that is known: the piece's own tenant's, on its own mesh.


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Work at a mesh: what it needs to start, and whose it is."""

    stage: str  #: Its id; any name for what was not submitted.
    tenant: TenantPath
    mesh: MeshId
    slot: ResourceSet
    priority: int = 0
    user: str = ""
    created_ms: int = 0  #: Of equals the earlier one goes first.


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """All that can be said about a piece of work."""

    piece: Piece
    reason: Reason | None  #: None: it could start at once.
    ahead: int = 0  #: Stages of the tenant, on any mesh, that go before it and wait for something that it waits for too.
    mesh_ahead: int = 0  #: Stages of anybody that stand before it in the queue of its mesh and could take a flavor that it could take.
    gate: Gate | None = None
    changes: tuple[Change, ...] = ()  #: All of them together would do.
    start_ms: int | None = None  #: On the ledger's clock, about; None: nobody can say.
    overdue_ms: int = 0  #: What has to end first should have ended so long ago, so nobody can say.
    gives_way: tuple[GivesWay, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeshWait:
    """What the queue of a mesh has a piece wait for."""

    is_wait: bool = False
    wait_ms: int = 0
    overdue_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a stage waits, in short."""

    reason: Reason
    changes: tuple[Change, ...] = ()  #: As in `Outlook`; empty where the reason is what its mesh said.


class Outlooks:
    """Over one snapshot of the federation. Asking changes nothing.

    Args:
        queues: What waits at each mesh, the next one first.
        rules: What a stage is taken to run where none has ended yet.
        ages: For how long stages run at each mesh.
        running: What a tenant runs, on any mesh; asked only where less urgent stages of a tenant might stop for more urgent ones.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        orders: OrdersInForce,
        queues: Mapping[MeshId, Sequence[QueuedStage]],
        rules: CostRules,
        ages: Mapping[MeshId, StageAges],
        running: Callable[[TenantPath], Sequence[BegunStage]] = lambda _tenant: (),
    ) -> None:
        self._snapshot = snapshot
        self._age_ms = {mesh: age.claimed_ms_min for mesh, age in ages.items()}
        self._running_of = running
        self._wants = wants_of(snapshot)
        self._free = free_room(snapshot)
        self._orders = orders.merged()
        self._forest = QuotaForest.of_tenants(snapshot.tree, self._orders.weights)
        self._meshes = {view.record.mesh: view for view in snapshot.meshes}
        self._has_paces = any(view.standing.pace is not None for view in snapshot.meshes)
        self._typical_ms = typical_run_ms((view.standing.pace for view in snapshot.meshes), rules)
        self._pieces = {piece.stage: piece for piece in _pieces(queues)}
        self._waiting_at: defaultdict[tuple[MeshId, TenantPath], list[Piece]] = defaultdict(list)
        for piece in self._pieces.values():
            self._waiting_at[piece.mesh, piece.tenant].append(piece)
        self._could_take: dict[tuple[MeshId, TenantPath, ResourceSet], Flavors] = {}
        self._in_order: dict[TenantPath, bool] = {}
        self._by_quota: dict[tuple[MeshId, TenantPath, ResourceSet, int, bool], Explanation] = {}
        self._told: dict[str, Reason] = {stage.stage: stage.reason for queued in queues.values() for stage in queued}
        self._like = self._by_likeness()
        self._lines: defaultdict[MeshId, QueueLine] = defaultdict(QueueLine)
        self._places = {piece.stage: self._take_place(piece) for piece in self._pieces.values()}
        self._scheduler = self._scheduler_of_all()

    def of(self, stage: str, *, asks_planner: bool = True) -> Outlook | None:
        """About a stage that waits; None: it does not wait at any mesh.

        Args:
            asks_planner: Find out who would give way, which is most of the work.
        """
        piece = self._pieces.get(stage)
        if piece is None or not self._is_known(piece):
            return None
        line = self._line_before(piece)
        told = _told_in_line(explain(self._scheduler, stage, _names(line)), line)
        outlook = self._outlook(piece, told, self._places[stage], line)
        if asks_planner:
            others = [
                want for want in self._wants if (want.mesh, want.tenant) != (piece.mesh, piece.tenant) or want.priority > piece.priority
            ]
            outlook = replace(outlook, gives_way=self._own_stops(piece, told, line) or self._gives_way(piece, told, others))
        return replace(outlook, reason=self._reason(stage, told))

    def why(self, stage: str) -> Why | None:
        """The reason that `of` tells, found for many stages at the price of few: those that are alike are asked about once.

        None: it does not wait at any mesh, or its tenant is gone.
        """
        piece = self._pieces.get(stage)
        if piece is None or not self._is_known(piece):
            return None
        if self._told[stage] not in SAID_IN_PART:
            return Why(reason=self._told[stage])
        line = self._line_before(piece)
        alike = (piece.mesh, piece.tenant, piece.slot, piece.priority, bool(line))
        told = self._by_quota.get(alike)
        if told is None:
            self._by_quota[alike] = told = _told_in_line(explain(self._scheduler, stage, _names(line)), line)
        reason = self._reason(stage, told)
        return Why(reason=reason, changes=told.changes if reason is not self._told[stage] else ())

    def place(self, stage: str) -> int:
        """How many of those before it in the queue of its mesh could be in its way.

        Raises:
            KeyError: It does not wait at any mesh.
        """
        return self._places[stage]

    def would_be(self, piece: Piece, before: Sequence[Piece] = ()) -> Outlook:
        """About work that is not there: what if it were sent to its mesh now?

        Args:
            before: What would be sent with it, before it.
        Raises:
            UnknownTenant: There is no such tenant.
        """
        line = self._line_before(piece, before)
        for other in before:
            self._scheduler.submit(self._workload(other))
        try:
            told = _told_in_line(dry_run(self._scheduler, self._workload(piece), _names(line)), line)
        finally:
            for other in before:
                self._scheduler.end(other.stage, self._snapshot.at_ms)
        mesh_ahead = self._behind_all(piece) + sum(other.mesh == piece.mesh and self._may_precede(other, piece) for other in before)
        outlook = self._outlook(piece, told, mesh_ahead, line, before)
        wants = [*self._wants, *(self._want(other) for other in before if self._flavors_at(other))]
        is_full = told.reason is None and self._mesh_wait(piece, mesh_ahead).is_wait
        stops = self._own_stops(piece, told, line)
        if stops:
            return replace(outlook, reason=Reason.WAITING_FOR_VICTIMS, gives_way=stops)
        return replace(outlook, reason=Reason.CAPACITY_BUSY if is_full else outlook.reason, gives_way=self._gives_way(piece, told, wants))

    def unmet(self) -> tuple[Unmet, ...]:
        """What meshes want and the planner would not give them now, each with its reason."""
        return self._plan(self._wants).unmet

    def _plan(self, wants: Iterable[Want]) -> Plan:
        return plan(
            self._forest,
            holdings_of(self._snapshot),
            wants,
            now_ms=self._snapshot.at_ms,
            rules=self._orders.rules,
            settings=self._orders.settings,
        )

    # -- the scheduler that is asked -------------------------------------------------------------------------------------

    def _scheduler_of_all(self) -> QuotaScheduler:
        scheduler = QuotaScheduler(self._forest, self._settings(), self._orders.rules)
        scheduler.snapshot.now_ms = self._snapshot.at_ms
        for lease in self._snapshot.leases:
            if lease.tenant in self._snapshot.tree.tenants:
                scheduler.restore(self._running(lease))
        for piece in self._pieces.values():
            if self._is_known(piece):
                scheduler.submit(self._workload(piece))
        return scheduler

    def _settings(self) -> dict[int, QueueSettings]:
        """As ordered, but for how many run: those who send stages count them, and a lease is not one workload. Every flavor is tried,
        in the tenant's order; and nobody gives way to equals, as neither planner nor mesh asks them to."""
        keys = self._forest.keys
        flavors, resources = sorted({flavor for flavor, _ in keys}), sorted({resource for _, resource in keys})
        groups: dict[tuple[str, ...], ResourceGroup] = {}
        settings = {}
        for node in range(len(self._forest.names)):
            known = self._orders.settings.get(self._forest.tenant_of(node), QueueSettings())
            if known.flavors not in groups:
                groups[known.flavors] = ResourceGroup(resources=tuple(resources), flavors=tuple(in_order(flavors, known)))
            group = groups[known.flavors]
            policies = known.policies
            if policies.within_queue is Preempt.LOWER_OR_NEWER:
                policies = replace(policies, within_queue=Preempt.LOWER_PRIORITY)
            settings[node] = replace(known, policies=policies, groups=(group,), running_max=None, running_max_per_user=None)
        return settings

    def _is_known(self, piece: Piece) -> bool:
        return piece.tenant in self._snapshot.tree.tenants

    def _running(self, lease: LeaseView) -> Running:
        since_ms = min(granted_ms(lease), self._snapshot.at_ms)
        work = Workload(
            workload=f"{lease.lease}#{lease.token}",
            queue=lease.tenant,
            created_ms=since_ms,
            priority=lease.priority,
            expected_run_ms=max(0, self._snapshot.at_ms - since_ms - self._age_ms.get(lease.mesh, 0)) + self._run_ms(lease.mesh),
        )
        amounts = {(lease.flavor, name): units for name, units in lease.amounts.items()}
        return Running(workload=work, amounts=amounts, since_ms=since_ms)

    def _workload(self, piece: Piece) -> Workload:
        return Workload(
            workload=piece.stage,
            queue=piece.tenant,
            created_ms=piece.created_ms,
            replica_sets=(ReplicaSet(name=_SLOT, count=1, amounts=dict(piece.slot.items())),),
            priority=piece.priority,
            user=piece.user,
            flavors=self._flavors_at(piece),
            expected_run_ms=self._run_ms(piece.mesh),
        )

    def _flavors_at(self, piece: Piece) -> tuple[str, ...]:
        """Those of the mesh's pools that could hold it when empty; of a mesh that is away, all."""
        view = self._meshes.get(piece.mesh)
        pools = view.record.pools if view is not None else ()
        return tuple(sorted({pool.flavor for pool in pools if piece.slot <= pool.capacity} or {pool.flavor for pool in pools}))

    # -- who stands before whom ------------------------------------------------------------------------------------------

    def _take_place(self, piece: Piece) -> int:
        """Its place behind those of its mesh that took theirs before, which it takes."""
        place = self._behind_all(piece)
        self._lines[piece.mesh].add(self._flavors_for(piece), piece.tenant)
        return place

    def _behind_all(self, piece: Piece) -> int:
        return self._lines[piece.mesh].before(self._flavors_for(piece), piece.tenant, in_order=self._starts_in_order(piece.tenant))

    def _starts_in_order(self, tenant: TenantPath) -> bool:
        known = self._in_order.get(tenant)
        if known is None:
            self._in_order[tenant] = known = self._orders.yielding(tenant).in_order
        return known

    def _by_likeness(self) -> dict[str, str]:
        """Of each stage one of those that may, or may not, be in the way of just the same others: who explains many stages of a long
        queue asks about few of them."""
        first: dict[tuple[MeshId, TenantPath, Flavors, bool], str] = {}
        return {
            name: first.setdefault((one.mesh, one.tenant, self._flavors_for(one), self._told[name] in _MESH_LACKS), name)
            for name, one in self._pieces.items()
        }

    def _ahead(self, piece: Piece, told: Explanation, before: Iterable[Piece]) -> int:
        """Of those that go first in its tenant's queue, how many could be in its way."""
        sent = {one.stage: one for one in before}
        alike = Counter(self._like.get(name, name) for name in told.ahead)
        return sum(count for name, count in alike.items() if self._may_precede(sent.get(name) or self._pieces[name], piece))

    def _may_precede(self, other: Piece, piece: Piece) -> bool:
        """Whether the first, which comes before the second, may keep it waiting: by a flavor that both could take, unless it only waits
        for what another mesh lacks; or by the order of their tenant."""
        if other.mesh == piece.mesh and other.tenant == piece.tenant and self._starts_in_order(piece.tenant):
            return True
        elsewhere = other.mesh != piece.mesh and self._told.get(other.stage) in _MESH_LACKS
        return not elsewhere and may_meet(self._flavors_for(other), self._flavors_for(piece))

    def _flavors_for(self, piece: Piece) -> Flavors:
        """Those that it could ever take: its mesh has a pool that is large enough, its tenant could be granted as much. All of the
        mesh's where that is none."""
        key = (piece.mesh, piece.tenant, piece.slot)
        known = self._could_take.get(key)
        if known is None:
            flavors = [FlavorName(flavor) for flavor in self._flavors_at(piece)]
            self._could_take[key] = known = frozenset(flavor for flavor in flavors if self._may_ever(piece, flavor)) or frozenset(flavors)
        return known

    def _may_ever(self, piece: Piece, flavor: FlavorName) -> bool:
        tree = self._snapshot.tree
        return self._is_known(piece) and all(units <= tree.potential(piece.tenant, (flavor, name)) for name, units in piece.slot.items())

    def _run_ms(self, mesh: MeshId) -> int:
        view = self._meshes.get(mesh)
        return view.standing.pace.run_ms if view is not None and view.standing.pace is not None else self._typical_ms

    # -- putting the answers together ------------------------------------------------------------------------------------

    def _reason(self, stage: str, told: Explanation) -> Reason:
        """The mesh that looked at it knows best; before it has, the quota tree may know already. Where room and quota lack both, quota
        comes first: more room alone would not help."""
        said = self._told[stage]
        if said is Reason.CAPACITY_BUSY and told.reason in _QUOTA_LACKS:
            return told.reason
        return told.reason or said if said is Reason.WAITING_IN_QUEUE else said

    def _outlook(self, piece: Piece, told: Explanation, mesh_ahead: int, line: Sequence[Piece], before: Sequence[Piece] = ()) -> Outlook:
        start_ms, overdue_ms = told.start_ms, 0
        if start_ms is not None:
            waits = [self._mesh_wait(piece, mesh_ahead), *(self._mesh_wait(one, self._places.get(one.stage, mesh_ahead)) for one in line)]
            start_ms = max(start_ms, self._snapshot.at_ms + max(wait.wait_ms for wait in waits))
            overruns_ms = max(told.overdue_ms, *(wait.overdue_ms for wait in waits)) if told.gate is None else 0
            start_ms = start_ms if overruns_ms == 0 and self._is_reckoned(start_ms, told.gate) else None
            overdue_ms = overruns_ms if self._has_paces else 0
        learns_ms = self._snapshot.learn_ms
        if start_ms is not None and learns_ms:
            start_ms = max(start_ms, self._snapshot.at_ms + learns_ms)  # Until then nothing new is granted to anybody.
        return Outlook(
            piece=piece,
            reason=told.reason or (Reason.LEDGER_LEARNING if learns_ms else None),
            ahead=self._ahead(piece, told, before),
            mesh_ahead=mesh_ahead,
            gate=told.gate,
            changes=told.changes,
            start_ms=start_ms,
            overdue_ms=overdue_ms,
        )

    def _is_reckoned(self, start_ms: int, gate: Gate | None) -> bool:
        """A start that hangs on how long others run can be told only when a stage has ended somewhere; until then it would be the run
        time of the file, which nobody has measured."""
        return self._has_paces or start_ms <= self._snapshot.at_ms or (gate is not None and start_ms == gate.opens_ms)

    def _mesh_wait(self, piece: Piece, ahead: int) -> _MeshWait:
        """All three numbers are of the pools that it could take: what ends on others makes no room for it, nor for those before it. How
        many stages run in a pool nobody tells here, so what is taken of it counts in its slots, and as no more than run on the mesh."""
        view = self._meshes.get(piece.mesh)
        if view is None or not piece.slot:
            return _MeshWait()
        pools = [pool for pool in view.record.pools if pool.flavor in self._flavors_for(piece)]
        free = [_slots(pool, piece.slot, used=pool.used) for pool in pools]
        taken = sum(_slots(pool, piece.slot) for pool in pools) - sum(free)
        room, run_ms, age_ms = max(free, default=0), self._run_ms(piece.mesh), self._age_ms.get(piece.mesh, 0)
        return _MeshWait(
            is_wait=ahead + 1 > room,
            wait_ms=wait_ms(waiting=ahead, room=room, running=min(taken, view.claimed), run_ms=run_ms, age_ms=age_ms),
            overdue_ms=overdue_ms(waiting=ahead, room=room, run_ms=run_ms, age_ms=age_ms),
        )

    def _own_stops(self, piece: Piece, told: Explanation, line: Sequence[Piece]) -> tuple[GivesWay, ...]:
        """Less urgent stages of its own tenant that its mesh would stop, without asking the planner; none for what may not start yet."""
        view, rules = self._meshes.get(piece.mesh), self._orders.yielding(piece.tenant)
        if view is None or told.gate is not None or line or not rules.takes or not piece.slot:
            return ()
        where = (piece.mesh, piece.tenant)
        held = {lease.flavor: lease.amounts for lease in self._snapshot.leases if (lease.mesh, lease.tenant) == where}
        running = [one for one in self._running_of(piece.tenant) if (one.mesh, one.tenant) == where]
        stop: ForeseenStop | None = None
        for one in (*(() if rules.in_order else self._ahead_of(piece)), piece):  # Who stops for those before it stops for nobody else.
            running = [other for other in running if stop is None or other.stage not in stop.stages]
            as_begun = _as_begun(one, self._snapshot.at_ms)
            stop = foresee(as_begun, view, held, running, is_quota_free=told.reason is None, rules=rules, now_ms=self._snapshot.at_ms)
        if stop is None:
            return ()
        reason = Reason.LOWER_IN_QUEUE
        return (
            GivesWay(mesh=piece.mesh, tenant=piece.tenant, flavor=stop.flavor, amounts=stop.amounts, reason=reason, stages=stop.stages),
        )

    def _line_before(self, piece: Piece, before: Iterable[Piece] = ()) -> tuple[Piece, ...]:
        """Who starts before it on its mesh, where its tenant's stages start in order; as `mesh.admission_order` has it.

        Args:
            before: Beside those that wait.
        """
        if not self._starts_in_order(piece.tenant):
            return ()
        where, turn = (piece.mesh, piece.tenant), self._turn_of(piece)
        others = (*self._waiting_at.get(where, ()), *(one for one in before if (one.mesh, one.tenant) == where))
        return tuple(one for one in others if one.stage != piece.stage and self._turn_of(one) < turn)

    def _turn_of(self, piece: Piece) -> tuple[bool, int, int]:
        """The least starts first: that for which others stop, then the most urgent."""
        return self._told.get(piece.stage) is not Reason.WAITING_FOR_VICTIMS, -piece.priority, piece.created_ms

    def _ahead_of(self, piece: Piece) -> list[Piece]:
        """Of the same tenant on the same mesh, the next one first."""
        others = (one for one in self._waiting_at.get((piece.mesh, piece.tenant), ()) if one.slot)
        order = {one.stage: (-one.priority, one.created_ms) for one in (piece, *others)}
        return sorted((self._pieces[name] for name in order if order[name] < order[piece.stage]), key=lambda one: order[one.stage])

    def _gives_way(self, piece: Piece, told: Explanation, others: Sequence[Want]) -> tuple[GivesWay, ...]:
        """Whom the planner would ask for the sake of this piece, and not of the others that want something."""
        if told.reason in (None, Reason.BEHIND_HEAD) or told.gate is not None or not self._flavors_at(piece):
            return ()
        usual = {_key(target): target for target in self._plan(others).lowered}
        with_it = self._plan((*others, self._want(piece))).lowered
        return tuple(self._difference(target, usual.get(_key(target))) for target in with_it if target != usual.get(_key(target)))

    def _want(self, piece: Piece) -> Want:
        flavor = FlavorName(self._flavors_at(piece)[0])
        return Want(
            mesh=piece.mesh,
            tenant=piece.tenant,
            flavor=flavor,
            slot=dict(piece.slot.items()),
            slots=1,
            priority=piece.priority,
            since_ms=self._snapshot.at_ms,
            is_crowded=not has_room(self._free, piece.mesh, flavor, piece.slot),
            free=left_over(self._free, piece.mesh, flavor, piece.slot),
        )

    def _difference(self, target: Target, usual: Target | None) -> GivesWay:
        aimed_at = next(dict(lease.target.items()) for lease in self._snapshot.leases if _key(lease) == _key(target))
        before = usual.amounts if usual is not None else aimed_at
        part = {name: units - target.amounts.get(name, 0) for name, units in before.items()}
        return GivesWay(
            mesh=target.mesh,
            tenant=target.tenant,
            flavor=target.flavor,
            amounts=ResourceSet({name: units for name, units in part.items() if units > 0}),
            reason=target.reason,
        )


def _names(line: Iterable[Piece]) -> frozenset[str]:
    return frozenset(one.stage for one in line)


def _told_in_line(told: Explanation, line: Sequence[Piece]) -> Explanation:
    """A mesh tries nothing of a tenant that starts in order before the first has started, whatever the quota says; other meshes' stages
    hold up nobody there."""
    if told.gate is not None:
        return told
    if line:
        return replace(told, reason=Reason.BEHIND_HEAD, changes=())
    return _honest(replace(told, reason=None) if told.reason is Reason.BEHIND_HEAD else told)


def _honest(told: Explanation) -> Explanation:
    """What others would have to give way to does not start at once, even where they would do it."""
    waits = told.reason is None and told.assignment is not None and told.assignment.mode is not Mode.FIT
    return replace(told, reason=Reason.WAITING_FOR_VICTIMS) if waits else told


def _as_begun(piece: Piece, now_ms: int) -> BegunStage:
    """One slot of the piece, on its mesh."""
    return BegunStage(
        stage=StageId(piece.stage),
        tenant=piece.tenant,
        mesh=piece.mesh,
        slot=piece.slot,
        slots=1,
        priority=piece.priority,
        started_ms=now_ms,
    )


def _key(one: Target | LeaseView) -> tuple[MeshId, TenantPath, FlavorName]:
    return one.mesh, one.tenant, one.flavor


def _pieces(queues: Mapping[MeshId, Sequence[QueuedStage]]) -> Iterator[Piece]:
    """Queues do not tell times; of equals the one that stands further in front has waited longer."""
    for mesh, queued in queues.items():
        for place, stage in enumerate(queued):
            yield Piece(
                stage=stage.stage,
                tenant=stage.tenant,
                mesh=mesh,
                slot=ResourceSet(stage.slot),
                priority=stage.priority,
                created_ms=place,
            )


def _slots(pool: PoolRecord, slot: ResourceSet, *, used: ResourceSet = NOTHING) -> int:
    """How many fit into what is not used of the pool."""
    return min(max(0, pool.capacity[name] - used[name]) // units for name, units in slot.items())
