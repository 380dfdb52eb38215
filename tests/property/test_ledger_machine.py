"""Redis and memory, driven side by side: the same operations give the same replies and leave the same state.

Tokens differ between the two (each follows its own clock), so they are compared by what they must be: rising. After every
step the use of every tenant is counted again from the leases alone, and held against the limits.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from federation.dispatch import STAGE_MESSAGES, Claim, ClaimedStage
from federation.leases import Lease, Session
from federation.snapshot import MeshRecord
from federation.store.keys import Keys
from federation.store.memory import MemoryStore
from federation.store.redis_ledger import RedisLedger
from federation.store.redis_queue import RedisStageQueue
from federation.store.testing import move_time, running_redis
from federation.tenants import Quota, Tenant, TenantTree
from mesh.clock import ManualClock
from mesh.errors import MeshError
from mesh.ids import FlavorName, LeaseId, MeshId, NodeId, RunId, StageId, TenantPath
from mesh.messages import NodeStarted, StageEnded, StageLost
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.stages import StageSpec
from mesh.values import Encoding, StoredValue
from mesh.wire import decode

# No sum of steps comes near a limit, so the real time that Redis adds to them decides nothing.
TTL_MS, GRACE_MS, STEP_MS = 600_000, 300_000, 250_000
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


@st.composite
def trees(draw) -> TenantTree:
    """The five tenants, some left out, with any limits."""
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


def without_tokens(reply):
    """The reply, as far as it must be the same on both sides."""
    if isinstance(reply, Session):
        return replace(reply, incarnation=0)
    if isinstance(reply, Lease):
        return replace(reply, token=0)
    if isinstance(reply, ClaimedStage):
        return replace(reply, claim=replace(reply.claim, token=0, incarnation=0))
    if isinstance(reply, MeshError):
        return type(reply)
    return tuple(map(without_tokens, reply)) if isinstance(reply, tuple) else reply


class LedgerMachine(RuleBasedStateMachine):
    """Both stores, what was said to them, and the sessions and claims that they gave out."""

    client = None

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.clock = ManualClock(now_ms=1_000_000)
        self.memory = MemoryStore(clock=self.clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        self.ledger = RedisLedger(self.client, KEYS, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        self.queue = RedisStageQueue(self.client, KEYS)
        self.sessions: list[tuple[Session, Session]] = []
        self.claims: list[tuple[Claim, Claim]] = []
        self.tokens = ([0], [0])
        self.cut = False  #: The tree was replaced while leases were held, so they may exceed the present limits.

    def both(self, verb, *arguments):
        """Say the same to both; pairs among the arguments are (to memory, to Redis). Returns both replies, that are alike."""
        replies = []
        for side, store in enumerate((self.memory, self.ledger if hasattr(self.ledger, verb) else self.queue)):
            own = [argument[side] if isinstance(argument, tuple) and len(argument) == 2 else argument for argument in arguments]
            try:
                replies.append(getattr(store, verb)(*own))
            except MeshError as told:
                replies.append(told)
        assert without_tokens(replies[0]) == without_tokens(replies[1])
        for side, reply in enumerate(replies):
            self.note_token(side, reply)
        return replies[0], replies[1]

    def note_token(self, side, reply) -> None:
        """A token is new and greater than all before it, or known."""
        token = reply.incarnation if isinstance(reply, Session) else reply.token if isinstance(reply, Lease) else None
        token = reply.claim.token if isinstance(reply, ClaimedStage) else token
        if token is not None and token not in self.tokens[side]:
            assert token > max(self.tokens[side])
            self.tokens[side].append(token)

    def latest(self, mesh) -> tuple[Session, Session]:
        """The mesh's last session; it may have been swept."""
        return next(pair for pair in reversed(self.sessions) if pair[0].mesh == mesh)

    def any_session(self, data) -> tuple[Session, Session]:
        """The latest of a mesh, or one of all there ever were."""
        return data.draw(st.sampled_from([*map(self.latest, MESHES), data.draw(st.sampled_from(self.sessions))]))

    @initialize(tree=trees())
    def begin(self, tree):
        self.both("configure", tree)
        for mesh in MESHES:
            self.sessions.append(self.both("join", record(mesh)))

    # Hypothesis takes every rule about as often, so what happens often in life has more rules here.

    @rule(mesh=meshes, lease=stages, tenant=tenants, slot=slots, want=st.integers(1, 3))
    def acquire(self, mesh, lease, tenant, slot, want):
        """As a mesh in good order does."""
        self.both("acquire", self.latest(mesh), LeaseId(lease), tenant, FLAVORS[0], slot, want)

    @rule(mesh=meshes, lease=st.text("xyz", min_size=2, max_size=2), tenant=tenants, slot=slots)
    def acquire_much(self, mesh, lease, tenant, slot):
        """Under a name of its own, so that leases pile up."""
        self.both("acquire", self.latest(mesh), LeaseId(lease), tenant, FLAVORS[0], slot, 9)

    @rule(data=st.data(), lease=stages, tenant=st.sampled_from([*PARENTS, "x"]), flavor=st.sampled_from(FLAVORS), slot=slots)
    def acquire_oddly(self, data, lease, tenant, flavor, slot):
        """From a session that may have ended, for a tenant that may not exist, of a flavor without quota, none at all."""
        self.both("acquire", self.any_session(data), LeaseId(lease), TenantPath(tenant), flavor, slot, data.draw(st.integers(0, 3)))

    @rule(data=st.data())
    def release(self, data):
        """A lease that is held, or was."""
        held = [(self.latest(view.mesh), LeaseId(view.lease)) for view in self.memory.snapshot().leases]
        self.both("release", *data.draw(st.sampled_from([*held, (self.any_session(data), LeaseId("s0"))])))

    @rule(mesh=meshes, stage=stages, priority=st.integers(-1, 1))
    def submit(self, mesh, stage, priority):
        spec = StageSpec(stage=stage, run=run_of(stage), tenant=TenantPath("a"), tasks=(), slot=ResourceSet(), width=1, priority=priority)
        self.both("submit", mesh, spec)

    @rule(mesh=meshes, stage=stages, slot=st.just(ResourceSet()) | slots)
    def run_stage(self, mesh, stage, slot):
        """Submit, lease and claim in one, so that claims are not rare."""
        self.submit(mesh, stage, 0)
        self.both("acquire", self.latest(mesh), LeaseId(stage), TenantPath("a"), FLAVORS[0], slot, 1)
        self.note_claim(self.both("claim", self.latest(mesh), stage))

    @rule(data=st.data(), stage=stages)
    def claim(self, data, stage):
        self.note_claim(self.both("claim", self.any_session(data), stage))

    def note_claim(self, replies) -> None:
        if isinstance(replies[0], ClaimedStage):
            self.claims.append((replies[0].claim, replies[1].claim))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), batch=st.integers(1, 3), end=st.sampled_from(["", "", StageEnded, StageLost]))
    def report(self, data, batch, end):
        pair = data.draw(st.sampled_from(self.claims))
        stage, mesh = pair[0].stage, pair[0].mesh
        said = [NodeStarted(stage=stage, node=NodeId("n"), attempt=1, started_ms=batch)] * (batch - 1)
        if end is StageEnded:
            said.append(StageEnded(stage=stage))
        elif end is StageLost:
            said.append(StageLost(stage=stage, mesh=mesh, incarnation=1, reason=Reason.WORKER_LOST))
        self.both("report", pair, batch, (tuple(said), tuple(said)))

    @rule(data=st.data(), stage=stages, verb=st.sampled_from(["deliver", "deliver", "cancel", "explain", "explain", "forget"]))
    def say_about_a_stage(self, data, stage, verb):
        if verb == "deliver":
            node, value = data.draw(st.sampled_from("xy")), data.draw(st.sampled_from([VALUE, None]))
            self.both("deliver", stage, NodeId(node), value)
        elif verb == "cancel":
            self.both("cancel", stage)
        elif verb == "explain":
            reason = data.draw(st.sampled_from([Reason.CAPACITY_BUSY, Reason.QUOTA_EXHAUSTED]))
            self.both("explain", self.any_session(data), stage, reason, "why")
        else:
            told = (MESHES[0],)
            self.both("forget", run_of(stage), (told, told))

    @rule(steps=st.integers(1, 4), beats=st.sets(meshes, max_size=1))
    def time_passes(self, steps, beats):
        """For one mesh or for both without a heartbeat; sometimes beyond the grace."""
        for _ in range(steps):
            self.clock.advance(STEP_MS)
            move_time(self.client, KEYS, STEP_MS)
            for mesh in beats:
                self.both("heartbeat", self.latest(mesh), record(mesh))
        self.both("sweep")

    @rule(data=st.data(), verb=st.sampled_from(["heartbeat", "join", "leave"]), tree=trees(), again=st.integers(0, 3))
    def turn_over(self, data, verb, tree, again):
        """What ends sessions, and changes the tree."""
        if again == 0:
            self.cut = self.cut or bool(self.memory.snapshot().leases)
            self.both("configure", tree)
            return
        pair = self.any_session(data)
        mesh = pair[0].mesh
        if verb == "heartbeat":
            self.both("heartbeat", pair, record(mesh))
            return
        if verb == "leave":
            self.both("leave", pair)
        self.sessions.append(self.both("join", record(mesh)))

    @invariant()
    def both_know_the_same(self):
        for mesh in MESHES:
            self.both("waiting", mesh)
            assert self.letters(self.memory, mesh) == self.letters(self.queue, mesh)
        for pair in self.sessions[-4:]:
            self.both("claims_of", pair)
        for stage in STAGES:
            self.both("inputs_of", stage)
        assert self.said(self.memory) == self.said(self.queue)
        one, two = self.memory.snapshot(), self.ledger.snapshot()
        assert (one.tree, one.usage) == (two.tree, two.usage)
        assert [replace(view, token=0) for view in one.leases] == [replace(view, token=0) for view in two.leases]
        assert [replace(view, incarnation=0, heartbeat_age_ms=0) for view in one.meshes] == [
            replace(view, incarnation=0, heartbeat_age_ms=0) for view in two.meshes
        ]

    @invariant()
    def use_is_the_sum_of_the_leases_and_within_the_limits(self):
        snapshot = self.ledger.snapshot()
        tree = snapshot.tree
        assert snapshot.usage == tree.recompute(snapshot.leases)
        for (path, flavor, resource), use in snapshot.usage.items():
            limit = 0 if tree.tenant(path).parent is None else tree.quota(path, (flavor, resource)).borrowing_limit
            if limit is not None and not self.cut:
                assert use <= tree.own_quota(path, (flavor, resource)) + limit

    @staticmethod
    def letters(queue, mesh):
        return queue.mail(mesh, "0-0", 0)[1]

    @staticmethod
    def said(queue):
        """The whole inbox, without incarnations; acknowledged, so that it does not grow."""
        entries = queue.inbox(0)
        queue.acknowledge(tuple(entry.entry for entry in entries))
        return [
            (entry.run, entry.kind, replace(message, incarnation=0) if isinstance(message, StageLost) else message)
            for entry in entries
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
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]),
    )
