"""Laws of the ledger: Redis and memory, driven side by side, give the same replies and keep the same state.

Servers restart and lose writes, clocks leap and are set back, calls come late and twice. Tokens differ between the two,
because each follows its own clock; each token is used for one thing only. After every step the use of every tenant is
counted again from the leases, and the leases that meshes believe in are checked against the quota: a mesh believes its last
reply until its own clock ends its session.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from federation.auditing import mismatches
from federation.dispatch import CONTESTED, STAGE_MESSAGES, Claim, ClaimedStage, HeldClaim, QueuedStage, digest_of
from federation.errors import QuotaExceeded, SessionLost
from federation.leases import HeartbeatReport, LeaseTerms, LeaseUse, QuotaDemand, Session, TargetUpdate
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from federation.store.memory.store import MemoryStore
from federation.store.redis.fixtures import copied, feign_restart, lose_writes, move_time, running_redis
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode
from mesh.errors import MeshError
from mesh.stages.messages import NodeStarted, StageEnded, StageLost
from mesh.stages.spec import StageSpec

# No sum of steps comes near a limit, so the real time in Redis has no effect.
TTL_MS, GRACE_MS, STEP_MS, MAX_STEP_MS, LEAP_MS, BACK_MS = 333_000, 111_000, 60_000, 100_000, 7_200_000, 17_000
KEYS = Keys("machine")
FLAVORS = [FlavorName("red"), FlavorName("blue")]
RESOURCES = ["cpu", "gpu"]
MESHES = [MeshId("west"), MeshId("east")]
PARENTS = {"a": None, "a/b": "a", "a/b/c": "a/b", "a/d": "a", "e": None}
STAGES = [StageId(f"s{number}") for number in range(4)]
VALUE = StoredValue(sha256="00", size_bytes=1, encoding=Encoding.JSON)

small = st.integers(0, 12)  # Units of a quota; a few leases fill it.
stages = st.sampled_from(STAGES)
meshes = st.sampled_from(MESHES)
tenants = st.sampled_from(list(map(TenantPath, PARENTS)))
slots = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 3), min_size=1).map(ResourceSet)
amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 6)).map(ResourceSet)
reported_demands = st.lists(
    st.builds(
        QuotaDemand,
        tenant=tenants,
        flavor=st.just(FLAVORS[0]),
        slot=st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 2), min_size=1).map(ResourceSet),
        slots=st.integers(1, 4),
        priority=st.integers(-1, 2),
        waited_ms=st.none() | st.sampled_from([0, 10 * STEP_MS, 100 * LEAP_MS]),
        beyond=st.integers(0, 1),
        whole=st.just(NOTHING) | slots,
    ),
    max_size=3,
).map(tuple)
reported_uses = st.lists(st.builds(LeaseUse, tenant=tenants, flavor=st.just(FLAVORS[0]), priority=st.integers(-1, 2)), max_size=2).map(
    tuple
)


@st.composite
def trees(draw) -> TenantTree:
    """Return a tree of the five tenants, some left out, with any limits."""
    left_out = draw(st.sets(st.sampled_from(["a/b/c", "a/d", "e"]), max_size=1))
    found = []
    for path, parent in PARENTS.items():
        limits = st.none() if parent is None else st.none() | small
        quotas = st.fixed_dictionaries(
            {
                (FLAVORS[0], resource): st.builds(Quota, nominal=small, borrowing_limit=limits, lending_limit=limits)
                for resource in RESOURCES
            }
        )
        if path not in left_out:
            found.append(Tenant(path=TenantPath(path), parent=parent and TenantPath(parent), quotas=draw(quotas)))
    return TenantTree(found)


def record(mesh: MeshId) -> MeshRecord:
    return MeshRecord(mesh=mesh, labels={}, pools=(), cluster="c")


def run_of(stage: StageId) -> RunId:
    return RunId("run-odd" if int(stage[1:]) % 2 else "run-even")


def patience(lease):
    """Return a lease's time to shrink, longer than any plan but a waiting one leaves; real time is a few seconds at most."""
    return None if lease.shrink_ms is None else lease.shrink_ms > TTL_MS


def comparable(reply):
    """Return the reply without tokens and without what real time adds."""
    if isinstance(reply, MeshError):
        return type(reply)
    if isinstance(reply, ClaimedStage):
        return replace(reply, claim=replace(reply.claim, token=0, incarnation=0))
    if isinstance(reply, QueuedStage):
        return replace(reply, queued_ms=reply.queued_ms > 0)
    if isinstance(reply, tuple):
        return tuple(map(comparable, reply))
    if hasattr(reply, "response"):
        return (comparable(reply.response), getattr(reply, "answers", ()))
    if hasattr(reply, "others_wait"):
        leases = tuple((lease.tenant, lease.flavor, lease.held, lease.target, lease.victims, patience(lease)) for lease in reply.leases)
        return (reply.recovery_ms > 0, reply.others_wait, leases)
    return replace(reply, recovery_ms=reply.recovery_ms > 0) if hasattr(reply, "is_more_due") else reply


@dataclass
class Twins:
    """A mesh at both ledgers, and the end of its session on its own clock."""

    hands: tuple[ManualMesh, ManualMesh]
    good_until_ms: int
    sent: list[tuple[tuple[Session, Session], str, tuple[object, object]]] = field(default_factory=list)  #: Calls that may be repeated.


class LedgerMachine(RuleBasedStateMachine):
    """Both stores, the meshes that use them, and the claims that they granted."""

    client = None

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.clock = ManualClock(now_ms=1_000_000_000)
        self.true_ms = 0  #: The real time, whatever the server's clock says.
        self.memory = MemoryStore(clock=self.clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS, max_step_ms=MAX_STEP_MS)
        terms = LeaseTerms(ttl_ms=TTL_MS, grace_ms=GRACE_MS, max_step_ms=MAX_STEP_MS)
        self.ledger = RedisLedger(self.client, KEYS, terms=terms, founding=True)
        self.queue = RedisStageQueue(self.client, KEYS)
        self.twins: dict[MeshId, Twins] = {}
        self.claims: list[tuple[Claim, Claim]] = []
        self.paid = {}  #: Claim in memory to its lease at both ledgers, the digest of its spec, and its slots.
        self.unpaid: set[int] = set()  #: Tokens of claims that no lease pays for, at both ledgers.
        self.uses: dict[tuple[int, MeshId, int], object] = {}  #: Token or version to its use.
        self.copies = None
        self.cut = False  #: The tree was replaced while leases were held, so they may exceed the present limits.

    # -- saying the same to both ---------------------------------------------------------------------------------------

    def both(self, verb, *arguments, **named):
        """Call both; pairs among the arguments are (memory, Redis). Return both replies, which must be alike."""
        replies = []
        for side, store in enumerate((self.memory, self.ledger if hasattr(self.ledger, verb) else self.queue)):
            own = [argument[side] if isinstance(argument, tuple) and len(argument) == 2 else argument for argument in arguments]
            own_named = {name: pair[side] if isinstance(pair, tuple) and len(pair) == 2 else pair for name, pair in named.items()}
            replies.append(tried(getattr(store, verb), *own, **own_named))
        assert comparable(replies[0]) == comparable(replies[1])
        return replies[0], replies[1]

    def hands(self, mesh, verb, *arguments, **named):
        """Let both hands of a mesh do the same, and record the replies. A lost session ends all that it held."""
        twins = self.twins[mesh]
        before_ms = self.true_ms
        replies = [tried(getattr(hand, verb), *arguments, **named) for hand in twins.hands]
        assert comparable(replies[0]) == comparable(replies[1])
        if isinstance(replies[0], SessionLost):
            self.stop(mesh)
        elif verb in ("heartbeat", "claim_all", "obey") and not isinstance(replies[0], MeshError):
            twins.good_until_ms = before_ms + TTL_MS
        self.note_tokens(mesh)
        return replies

    def stop(self, mesh):
        """Stop all work of the mesh, which then knows that it holds nothing."""
        for hand in self.twins[mesh].hands:
            hand.leases.clear()
        self.twins[mesh].good_until_ms = 0

    def note_tokens(self, mesh):
        """Check that a token belongs to one row, and a version to one state of it."""
        for side, hand in enumerate(self.twins[mesh].hands):
            for key, lease in hand.leases.items():
                state = (key, lease.held, lease.target)
                assert self.uses.setdefault((side, mesh, lease.version), state) == state
                assert self.uses.setdefault((side, mesh, -lease.token), key) == key

    def join(self, mesh, **named):
        seen = [max([hand.session.mark, hand.session.incarnation]) for hand in self.twins[mesh].hands] if mesh in self.twins else [0, 0]
        hands = tuple(
            ManualMesh(ledger, record(mesh), seen=known, **{name: pair[side] for name, pair in named.items()})
            for side, (ledger, known) in enumerate(zip((self.memory, self.ledger), seen, strict=True))
        )
        assert comparable(hands[0].response) == comparable(hands[1].response)
        for side, hand in enumerate(hands):
            assert hand.session.incarnation > seen[side]
        sent = self.twins[mesh].sent if mesh in self.twins else []
        self.twins[mesh] = Twins(hands=hands, good_until_ms=self.true_ms + TTL_MS, sent=sent)
        self.note_tokens(mesh)

    def sessions(self, mesh):
        one, two = self.twins[mesh].hands
        return one.session, two.session

    @initialize(tree=trees())
    def begin(self, tree):
        self.both("configure", tree)
        for mesh in MESHES:
            self.join(mesh)

    # -- leases. Hypothesis takes every rule about as often, so what happens often in life has more rules here. ---------

    @rule(mesh=meshes, tenant=tenants, slot=slots, demand=st.integers(1, 3), priority=st.integers(-1, 2))
    def acquire(self, mesh, tenant, slot, demand, priority):
        """Acquire as a correct mesh does."""
        twins = self.twins[mesh]
        asked = tuple(
            (QuotaDemand(tenant=tenant, flavor=FLAVORS[0], slot=slot, slots=demand, version=hand.lease(tenant, FLAVORS[0]).version),)
            for hand in twins.hands
        )
        twins.sent.append((self.sessions(mesh), "acquire", asked))
        self.hands(mesh, "acquire", tenant, FLAVORS[0], slot, demand, priority)

    @rule(mesh=meshes, tenant=tenants, slot=slots)
    def acquire_much(self, mesh, tenant, slot):
        self.hands(mesh, "acquire", tenant, FLAVORS[0], slot, 9)

    @rule(mesh=meshes, tenant=st.sampled_from([*PARENTS, "x"]), flavor=st.sampled_from(FLAVORS), slot=slots)
    def acquire_oddly(self, mesh, tenant, flavor, slot):
        """Acquire for a tenant that may not exist, of a flavor without quota."""
        self.hands(mesh, "acquire", TenantPath(tenant), flavor, slot, 1)

    @rule(mesh=meshes, data=st.data(), held=amounts)
    def release(self, mesh, data, held):
        keys = sorted(self.twins[mesh].hands[0].leases) or [(TenantPath("a"), FLAVORS[0])]
        tenant, flavor = data.draw(st.sampled_from(keys))
        kept = min_of(held, self.twins[mesh].hands[0].lease(tenant, flavor).held)
        self.hands(mesh, "release", tenant, flavor, kept)

    @rule(mesh=meshes, data=st.data())
    def obey(self, mesh, data):
        keys = sorted(self.twins[mesh].hands[0].leases) or [(TenantPath("a"), FLAVORS[0])]
        self.hands(mesh, "obey", *data.draw(st.sampled_from(keys)))

    @rule(mesh=meshes, demands=st.none() | reported_demands, lease_uses=reported_uses)
    def heartbeat(self, mesh, demands, lease_uses):
        twins = self.twins[mesh]
        reports = tuple(HeartbeatReport(number=hand.number + 1, claims=tuple(hand.leases.values())) for hand in twins.hands)
        twins.sent.append((self.sessions(mesh), "heartbeat", reports))
        self.hands(mesh, "heartbeat", demands=demands, lease_uses=lease_uses)

    @rule(mesh=meshes)
    def report_all(self, mesh):
        """Report all leases, as a mesh does in a new epoch or while the ledger recovers."""
        self.hands(mesh, "claim_all")

    @precondition(lambda self: any(twins.sent for twins in self.twins.values()))
    @rule(data=st.data())
    def something_comes_late_or_twice(self, data):
        """Repeat a call of this or an earlier session or epoch, whose answer nobody awaits any more."""
        mesh = data.draw(st.sampled_from([mesh for mesh in MESHES if self.twins[mesh].sent]))
        sessions, verb, said = data.draw(st.sampled_from(self.twins[mesh].sent[-6:]))
        self.both(verb, sessions, *([record(mesh)] if verb == "heartbeat" else []), Pair(said))

    # -- planning ------------------------------------------------------------------------------------------------------

    @rule(
        target_updates=st.lists(
            st.tuples(meshes, tenants, st.none() | amounts, st.sampled_from([0, 2 * STEP_MS]), st.lists(st.integers(1, 9), max_size=2)),
            min_size=1,
            max_size=3,
            unique_by=lambda target_update: target_update[:2],
        )
    )
    def plan(self, target_updates):
        planners = self.both_differing("elect", "planner", 10**9)
        version = self.memory.snapshot().version
        targets = {(view.mesh, view.tenant): view.target for view in self.memory.snapshot().leases if view.incarnation is None}
        made = tuple(
            TargetUpdate(
                mesh=mesh,
                tenant=tenant,
                flavor=FLAVORS[0],
                target=targets.get((mesh, tenant), NOTHING) if target is None else target,
                wait_ms=wait_ms,
                victims=tuple(victims),
            )
            for mesh, tenant, target, wait_ms, victims in target_updates
        )
        replies = self.both("plan_apply", planners, version, Pair([made] * 2))
        assert isinstance(replies[0], (int, QuotaExceeded, MeshError))

    def both_differing(self, verb, *arguments):
        return getattr(self.memory, verb)(*arguments), getattr(self.ledger, verb)(*arguments)

    @rule(mesh=st.none() | meshes, tenant=st.none() | tenants, hard=st.booleans())
    def revoke(self, mesh, tenant, hard):
        self.both("revoke", mesh=mesh, tenant=tenant, hard=hard)

    # -- time, and what goes wrong -------------------------------------------------------------------------------------

    def move(self, server_ms, true_ms):
        self.clock.advance(server_ms)
        move_time(self.client, KEYS, server_ms)
        self.true_ms += true_ms
        for mesh, twins in self.twins.items():
            if twins.good_until_ms <= self.true_ms:
                self.stop(mesh)

    @rule(steps=st.integers(1, 5), renewing=st.sets(meshes, max_size=1))
    def time_passes(self, steps, renewing):
        """Let time pass for one mesh or both without a heartbeat, sometimes beyond the grace."""
        for _ in range(steps):
            self.move(STEP_MS, STEP_MS)
            for mesh in renewing:
                if self.twins[mesh].good_until_ms:
                    self.hands(mesh, "claim_all")
            self.both("sweep")

    @rule(by_ms=st.sampled_from([LEAP_MS, -BACK_MS]))
    def the_servers_clock_is_set(self, by_ms):
        self.move(by_ms, 0)
        self.both("sweep")

    @rule()
    def the_server_restarts(self):
        self.move(STEP_MS, STEP_MS)
        self.memory.restart()
        feign_restart(self.client, KEYS)
        self.both("sweep")

    @rule()
    def writes_reach_the_disk(self):
        self.copies = (self.memory.copied(), copied(self.client, KEYS))

    @precondition(lambda self: self.copies is not None)
    @rule()
    def writes_are_lost(self):
        """Lose all writes since the last one on disk; the restart takes its time."""
        self.move(STEP_MS, STEP_MS)
        self.memory.lose_writes(self.copies[0])
        lose_writes(self.client, KEYS, self.copies[1])
        self.cut = True  # One of two trees is back.
        self.both("sweep")

    @rule(mesh=meshes, how=st.sampled_from(["run out", "adopt", "leave"]), tree=trees(), again=st.integers(0, 3))
    def turn_over(self, mesh, how, tree, again):
        """End sessions and change the tree."""
        if again == 0:
            self.cut = self.cut or bool(self.memory.snapshot().leases)
            self.both("configure", tree)
            return
        incarnations = tuple(session.incarnation for session in self.sessions(mesh))
        if how == "leave":
            self.hands(mesh, "leave")
        if how == "adopt" and self.twins[mesh].good_until_ms and self.adopt(mesh, incarnations):
            return
        self.stop(mesh)
        self.join(mesh)

    def adopt(self, mesh, incarnations):
        """Recover the work of the present session; return False when both ledgers refuse, without a change."""
        if isinstance(self.both("join", record(mesh), adopt=incarnations)[0], MeshError):
            return False
        self.join(mesh, adopt=incarnations)  # The first answer was lost.
        return True

    # -- stages --------------------------------------------------------------------------------------------------------

    @rule(mesh=meshes, stage=stages, priority=st.integers(-1, 1), slot=st.just(NOTHING) | slots, width=st.integers(1, 2))
    def submit(self, mesh, stage, priority, slot, width):
        spec = StageSpec(stage=stage, run=run_of(stage), tenant=TenantPath("a"), tasks=(), slot=slot, width=width, priority=priority)
        self.both("submit", mesh, spec)

    @rule(mesh=meshes, part=st.booleans())
    def want_slots_for_all_that_is_queued(self, mesh, part):
        """Report a demand of two slots for each queued stage, the first of which lacks only a part."""
        queued = [stage for stage in self.memory.waiting(mesh) if stage.slot]
        slots = {(stage.tenant, stage.slot, stage.priority) for stage in queued}
        demands = [
            QuotaDemand(tenant=tenant, flavor=flavor, slot=slot, slots=2, priority=priority, beyond=1)
            for tenant, slot, priority in sorted(slots, key=repr)
            for flavor in FLAVORS
        ]
        parts = [replace(demand, slot=ResourceSet({"cpu": 1}), whole=demand.slot, slots=1) for demand in demands if part]
        self.hands(mesh, "heartbeat", demands=(*parts, *demands))

    @rule(mesh=meshes, stage=stages, slot=st.just(NOTHING) | slots, width=st.integers(1, 2))
    def run_stage(self, mesh, stage, slot, width):
        """Submit, pay and claim in one step, so that claims are not rare."""
        spec = StageSpec(stage=stage, run=run_of(stage), tenant=TenantPath("a"), tasks=(), slot=slot, width=width)
        self.both("submit", mesh, spec)
        if slot:
            self.hands(mesh, "acquire", TenantPath("a"), FLAVORS[0], slot, width)
        self.claim(mesh, stage, is_paid=bool(slot), slots=width)

    @rule(mesh=meshes, stage=stages, is_paid=st.booleans(), slots=st.integers(1, 3))
    def claim(self, mesh, stage, is_paid, slots):
        leases = tuple(hand.lease(TenantPath("a"), FLAVORS[0]) if is_paid else None for hand in self.twins[mesh].hands)
        leases = tuple(None if lease is None or not lease.token else lease for lease in leases)
        replies = self.both("claim", self.sessions(mesh), stage, leases, slots)
        if isinstance(replies[0], ClaimedStage):
            self.claims.append((replies[0].claim, replies[1].claim))
            self.paid[replies[0].claim] = leases, digest_of(replies[0].spec), slots
            self.unpaid |= {reply.claim.token for reply, lease in zip(replies, leases, strict=True) if lease is None}

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), is_whole=st.sampled_from([True, True, False]), has_ended=st.booleans())
    def resume(self, data, is_whole, has_ended):
        """Resume a claim in a new epoch, be it open, closed, or lost with the last writes."""
        pair = data.draw(st.sampled_from(self.claims))
        leases, spec, slots = self.paid[pair[0]]
        held = tuple(
            (HeldClaim(claim=claim, lease=lease, spec=spec, is_whole=is_whole, has_ended=has_ended, slots=slots),)
            for claim, lease in zip(pair, leases, strict=True)
        )
        before = self.present(pair[0].stage)
        self.both("resume", self.sessions(pair[0].mesh), held)
        self.unpaid |= {claim.token for claim in pair if has_ended}
        after = self.present(pair[0].stage)
        assert before in (after, (None, None))  # The holder of the stage keeps it, under its own token.

    def present(self, stage):
        """Return the present claims on a stage, at both."""
        found = [None, None]
        for side, store in enumerate((self.memory, self.queue)):
            for mesh in self.twins:
                for each in store.claims_of(self.sessions(mesh)[side]):
                    found[side] = each.claim if each.claim.stage == stage else found[side]
        return tuple(found)

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(), batch=st.integers(1, 3), end=st.sampled_from(["", "", StageEnded, StageLost]), after=st.sampled_from([0, 0, 1, 2])
    )
    def report(self, data, batch, end, after):
        pair = data.draw(st.sampled_from(self.claims))
        stage, mesh = pair[0].stage, pair[0].mesh
        said = [NodeStarted(stage=stage, node=NodeId("n"), attempt=1, started_ms=batch)] * (batch - 1)
        if end is StageEnded:
            said.append(StageEnded(stage=stage))
        elif end is StageLost:
            said.append(StageLost(stage=stage, mesh=mesh, incarnation=1, reason=Reason.WORKER_LOST))
        self.both("report", pair, batch, (tuple(said), tuple(said)), after=min(after, batch - 1))

    @rule(
        mesh=meshes, stage=stages, verb=st.sampled_from(["deliver", "deliver", "cancel", "explain", "explain", "forget"]), odd=st.booleans()
    )
    def say_about_a_stage(self, mesh, stage, verb, odd):
        if verb == "deliver":
            self.both("deliver", stage, NodeId("x" if odd else "y"), VALUE if odd else None)
        elif verb == "cancel":
            self.both("cancel", stage)
        elif verb == "explain":
            self.both("explain", self.sessions(mesh), (stage,), Reason.POOL_BUSY if odd else Reason.QUOTA_EXHAUSTED, "why")
        else:
            at_mesh = (MESHES[0],)
            self.both("forget", run_of(stage), (at_mesh, at_mesh))

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def both_know_the_same(self):
        for mesh in MESHES:
            self.both("waiting", mesh)
            self.both("remembered", mesh, STAGES)
            assert notifications(self.memory, mesh) == notifications(self.queue, mesh)
            if mesh in self.twins:
                self.both("claims_of", self.sessions(mesh))
        for stage in STAGES:
            self.both("inputs_of", stage)
        assert said(self.memory) == said(self.queue)
        one, two = self.memory.snapshot(), self.ledger.snapshot()
        assert (one.tree, one.usage, one.version) == (two.tree, two.usage, two.version)
        assert without_tokens(one) == without_tokens(two)
        self.running_stages_are_paid_claims(0, one)
        self.running_stages_are_paid_claims(1, two)

        self.use_is_the_sum_of_the_leases_and_within_the_limits(two)
        for side, snapshot in enumerate((one, two)):
            self.no_mesh_may_use_what_the_ledger_does_not_charge(side, snapshot)

    def running_stages_are_paid_claims(self, side, snapshot):
        incarnations = {view.record.mesh: view.incarnation for view in snapshot.meshes}
        for mesh in self.twins:
            session = self.sessions(mesh)[side]
            if incarnations.get(mesh) == session.incarnation:  # Otherwise the ledger is back at an earlier session of the mesh.
                rows = {(row.stage, row.token, row.is_leaving) for row in snapshot.running if row.mesh == mesh}
                claims = (self.memory, self.queue)[side].claims_of(session)
                open_claims = {(each.claim.stage, each.claim.token, each.cancelled) for each in claims}
                assert rows <= open_claims
                assert all(token in self.unpaid for _, token, _ in open_claims - rows)

    def use_is_the_sum_of_the_leases_and_within_the_limits(self, snapshot):
        tree = snapshot.tree
        assert mismatches(snapshot) == ()
        for (path, flavor, resource), use in snapshot.usage.items():
            limit = 0 if tree.tenant(path).parent is None else tree.quota(path, (flavor, resource)).borrowing_limit
            if limit is not None and not self.cut:
                assert use <= tree.own_quota(path, (flavor, resource)) + limit

    def no_mesh_may_use_what_the_ledger_does_not_charge(self, side, snapshot):
        """Each mesh trusts its last reply until its own clock ends its session."""
        charged: Counter[tuple[MeshId, TenantPath, FlavorName, str]] = Counter()
        for view in snapshot.leases:
            for resource, units in view.amounts.items():
                charged[view.mesh, view.tenant, view.flavor, resource] += units
        believed = Counter(
            {
                (mesh, *key, resource): units
                for mesh, twins in self.twins.items()
                for key, lease in twins.hands[side].leases.items()
                for resource, units in lease.spendable.items()
            }
        )
        assert believed <= charged or snapshot.recovery_ms  # A recovering ledger lacks reports.


class Pair(tuple):
    """Arguments for both sides that are tuples themselves."""

    __slots__ = ()


def tried(call, *arguments, **named):
    """Return the reply, or the error that was raised."""
    try:
        return call(*arguments, **named)
    except MeshError as error:
        return error


def min_of(one, other):
    return ResourceSet({name: min(units, other[name]) for name, units in one.items()})


def without_tokens(snapshot):
    leases = sorted(
        (view.lease, view.amounts, view.target, view.priority, view.victims, view.incarnation is None)
        for view in map(shown, snapshot.leases)
    )
    views = [(view.record, view.alive, view.waiting, view.claimed) for view in snapshot.meshes]
    demands = sorted(
        (demand.mesh, demand.tenant, demand.flavor, repr(demand.slot), repr(demand.whole), demand.slots, demand.priority, demand.beyond)
        for demand in snapshot.demands
    )
    running = [
        (row.stage, row.mesh, row.tenant, row.flavor, repr(row.amounts), row.priority, row.is_leaving)
        for row in sorted(snapshot.running, key=lambda row: row.stage)
    ]
    return leases, views, demands, running, snapshot.recovery_ms > 0


def shown(view):
    return replace(view, amounts=repr(view.amounts), target=repr(view.target))


def notifications(queue, mesh):
    return queue.notifications(mesh, "0-0", 0)[1]


def said(queue):
    """Return the whole inbox without incarnations, and acknowledge it, so that it stays small.

    The time between two notifications of contested quota is real time in Redis, so these are left out.
    """
    entries = queue.inbox(0)
    queue.acknowledge(tuple(entry.entry for entry in entries))
    return [
        (entry.run, entry.kind, replace(message, incarnation=0) if isinstance(message, StageLost) else message)
        for entry in entries
        if entry.kind != CONTESTED
        for message in decode(STAGE_MESSAGES, entry.body)
    ]


@pytest.fixture(scope="module")
def client():
    with running_redis() as client:
        yield client


def test_redis_and_memory_stay_alike_and_within_the_limits(client):
    machine = type("BoundMachine", (LedgerMachine,), {"client": client})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=30, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]),
    )
