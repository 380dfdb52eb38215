from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace

import pytest

from federation.child import BEATS_PER_COMPARISON, IDLE_BEATS, ChildMesh
from federation.dispatch import STAGE_MESSAGES, Mail, MailKind
from federation.errors import BatchTooLarge, CallRejected, SessionLost, StoreUnavailable, TooManyClaims
from federation.leases import Aim, Granted, LeaseRefused, Want
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from federation.testing import HandMesh
from mesh.admission_invariants import violations
from mesh.clock import ManualClock
from mesh.giving_way import NEVER_TAKES, YieldRules
from mesh.hosting import HostReport
from mesh.messages import StageEnded, StageLost
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.stages import StageSpec, TaskSpec
from mesh.testing import SimulatedHost
from mesh.values import Encoding, StoredValue
from mesh.wire import decode

CPU = ResourceSet.of({"cpu": 1})
IN_ORDER = YieldRules(in_order=True)
TTL_MS, GRACE_MS, HEARTBEAT_MS = 3_000, 1_000, 700
DURATION_MS = 100


class Flaky:
    """A store that does not answer where it is told so: before doing what was asked, or after."""

    def __init__(self, store):
        self._store = store
        self.down = set()  #: Methods that do nothing and raise.
        self.mute = set()  #: Methods that do their work and raise.
        self.before = {}  #: Method to what happens just before it, once.

    def __getattr__(self, name):
        method = getattr(self._store, name)

        def call(*args, **named):
            if name in self.before:
                self.before.pop(name)()
            if name in self.down:
                raise StoreUnavailable(f"{name} was not answered")
            answer = method(*args, **named)
            if name in self.mute:
                raise StoreUnavailable(f"{name} was not answered")
            return answer

        return call


class Federation:
    """A store, one child mesh, and what the root would see."""

    def __init__(self, *pools, quota=4):
        self.clock = ManualClock(1_000_000)
        self.store = MemoryStore(clock=self.clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        flavors = {"standard", *(pool.flavor for pool in pools)}
        limits = {(flavor, "cpu"): Quota(nominal=quota * 10_000) for flavor in flavors}
        self.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas=limits)]))
        self.flaky = Flaky(self.store)
        self.reports = []
        self.host = SimulatedHost(self.reports.append, self.clock, lambda _task: (DURATION_MS, False))
        self.record = MeshRecord(mesh="east", labels={}, pools=pools or (pool("general", 4),), cluster="c1")
        self.cursor, _ = self.store.mail("east", "", 0)
        self.child = ChildMesh(
            record=self.record,
            ledger=self.flaky,
            queue=self.flaky,
            blobs=self.flaky,
            host=self.host,
            clock=self.clock,
            heartbeat_ms=HEARTBEAT_MS,
        )
        self.told = []

    def submit(self, name, *tasks, tenant="acme", width=1, slot=CPU, priority=0, yielding=NEVER_TAKES):
        """A task: `name: needs`."""
        made = []
        for text in tasks or ("a:",):
            node, _, needs = text.partition(":")
            made.append(TaskSpec(node=node, attempt=1, function="call:m:f", inputs=tuple(needs.split()), resources=slot))
        spec = StageSpec(
            stage=name, run="r", tenant=tenant, tasks=tuple(made), slot=slot, width=width, priority=priority, yielding=yielding
        )
        self.store.submit("east", spec)

    def beat(self, times=1):
        """What the loop does: time passes, mail and reports come in, and the child beats when it is due."""
        for _ in range(times):
            self.clock.advance(self.child.due_in_ms())
            self.child.beat()
            assert violations(self.child._scheduler) == []

    def mail(self):
        self.cursor, letters = self.store.mail("east", self.cursor, 0)
        self.child.take_mail(letters)
        assert violations(self.child._scheduler) == []

    def work(self, by_ms=DURATION_MS):
        """The host starts what it can, time passes, and it ends what is due; the child is told."""
        for pause_ms in (0, by_ms):
            self.clock.advance(pause_ms)
            self.host.advance()
            while self.reports:
                self.child.take_report(self.reports.pop(0))
                assert violations(self.child._scheduler) == []

    def words(self):
        """The kinds of messages that the root has got since it was last asked, each with its stage."""
        entries = self.store.inbox(0)
        self.store.acknowledge(tuple(entry.entry for entry in entries))
        self.told = [message for entry in entries for message in decode(STAGE_MESSAGES, entry.body)]
        return [(message.stage, message.kind) for message in self.told]

    def held(self):
        """Whole CPUs that the ledger charges."""
        return sum(lease.amounts["cpu"] for lease in self.store.snapshot().leases) // 10_000

    def paid(self):
        """Stages that a lease pays for, in the mesh's own book."""
        return set(self.child._balance._payers)

    def running(self):
        return set(self.child._running)

    def view(self):
        (view,) = self.store.snapshot().meshes
        return view


def pool(name, cpus, flavor="standard"):
    return PoolRecord(pool=name, flavor=flavor, capacity=ResourceSet.of({"cpu": cpus}))


def stored(store, value):
    data = json.dumps(value).encode()
    sha256 = hashlib.sha256(data).hexdigest()
    store.put("r", sha256, data)
    return StoredValue(sha256=sha256, size_bytes=len(data), encoding=Encoding.JSON)


@pytest.fixture
def joined():
    federation = Federation()
    federation.beat()
    return federation


@pytest.fixture
def busy():
    """Stage `s` runs."""
    federation = Federation()
    federation.submit("s", "a:", "b: a")
    federation.beat()
    federation.words()
    return federation


def all_is_free(federation):
    """Nothing runs, is paid for, or is known of; and what lies idle is given back after a while."""
    child = federation.child
    is_free = not federation.running() and not federation.paid() and not child._scheduler.workloads and not child._untold
    federation.beat(IDLE_BEATS + 1)
    return is_free and federation.held() == 0 and federation.store.audit() == ()


# -- the straight way ------------------------------------------------------------------------------------------------------


def test_the_first_beat_joins_and_the_next_is_due_a_heartbeat_later(joined):
    assert joined.view().alive
    assert joined.child.due_in_ms() == HEARTBEAT_MS
    joined.clock.advance(HEARTBEAT_MS + 5)
    assert joined.child.due_in_ms() == 0


def test_a_queued_stage_is_claimed_run_reported_and_its_lease_given_back(joined):
    joined.submit("s", "a:", "b: a")
    joined.mail()
    assert joined.words() == [("s", "stage_started")]
    assert (joined.running(), joined.paid(), joined.held(), joined.view().claimed) == ({"s"}, {"s"}, 1, 1)
    joined.work()
    joined.work()
    assert [kind for _, kind in joined.words()] == ["node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert all_is_free(joined)


def test_a_heartbeat_tells_what_is_in_use(busy):
    busy.beat()
    assert busy.view().record.pools[0].used == CPU


def test_an_end_lets_the_next_stage_in_at_once():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.beat()
    assert federation.running() == {"s"}
    federation.words()
    federation.work()
    federation.mail()
    assert federation.running() == {"t"}
    assert ("t", "stage_started") in federation.words()


def test_a_stage_that_waits_for_quota_says_so_once_and_starts_when_quota_comes():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.beat(3)
    assert federation.words() == [("s", "stage_started"), ("t", "stage_waiting")]
    assert (federation.told[1].reason, federation.told[1].detail) == (
        Reason.QUOTA_EXHAUSTED,
        "acme may take 0 cpu of standard now, one slot takes 1",
    )


def test_in_strict_order_a_stage_says_that_it_stands_behind_and_starts_after_the_first():
    federation = Federation(pool("general", 3))
    federation.submit("runs", slot=ResourceSet.of({"cpu": 2}), yielding=IN_ORDER)
    federation.beat()
    federation.submit("large", slot=ResourceSet.of({"cpu": 3}), yielding=IN_ORDER)
    federation.submit("small", yielding=IN_ORDER)
    federation.mail()
    assert federation.running() == {"runs"}
    assert {stage.stage: stage.reason for stage in federation.store.waiting("east")} == {
        "large": Reason.CAPACITY_BUSY,
        "small": Reason.BEHIND_HEAD,
    }
    federation.work()
    assert federation.running() == {"large"}
    federation.work()
    assert federation.running() == {"small"}


def test_a_stage_of_a_tenant_that_is_gone_waits_and_says_so(joined):
    joined.submit("s", tenant="ghost")
    joined.beat()
    assert joined.words() == [("s", "stage_waiting")]
    assert joined.told[0].reason is Reason.TENANT_UNKNOWN
    assert joined.held() == 0


def test_an_input_is_brought_when_its_letter_comes_and_once(joined):
    joined.submit("s", "a: x")
    joined.mail()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.mail()
    joined.mail()
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_an_input_whose_letter_went_astray_is_found_by_comparing(joined):
    joined.submit("s", "a: x")
    joined.mail()
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.beat(BEATS_PER_COMPARISON)
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_a_withheld_input_drops_what_waits_for_it(joined):
    joined.submit("s", "a: x", "b:")
    joined.mail()
    joined.store.deliver("s", "x", None)
    joined.mail()
    joined.work()
    kinds = [kind for _, kind in joined.words()]
    assert (kinds.count("node_succeeded"), kinds[-1]) == (1, "stage_ended")


def test_inputs_that_came_before_the_claim_are_handed_over_with_the_start(joined):
    joined.submit("s", "a: x")
    joined.store.deliver("s", "x", stored(joined.store, "seven"))
    joined.beat()
    joined.work()
    assert ("s", "node_succeeded") in joined.words()


def test_a_forgotten_run_is_forgotten_by_the_host(busy):
    busy.work()
    busy.work()
    busy.mail()
    busy.words()
    assert not busy.host.is_empty
    busy.store.forget("r", ("east",))
    busy.mail()
    assert busy.host.is_empty


def test_letters_are_read_whatever_they_come_in(busy):
    busy.submit("t")
    busy.child.take_mail(letter for letter in [Mail(kind=MailKind.CANCEL, subject="s"), Mail(kind=MailKind.STAGE, subject="t")])
    assert busy.running() == {"s", "t"}


@pytest.mark.parametrize("kind", list(MailKind), ids=[f"a letter of kind {kind.value}" for kind in MailKind])
def test_letters_about_what_is_not_here_are_harmless(busy, kind):
    busy.child.take_mail((Mail(kind=kind, subject="nothing"),))
    assert busy.running() == {"s"}


# -- cancelling ------------------------------------------------------------------------------------------------------------


def test_a_running_stage_that_is_cancelled_stops_and_ends(busy):
    busy.store.cancel("s")
    busy.mail()
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")
    assert all_is_free(busy)


def test_a_cancel_whose_letter_went_astray_is_found_by_comparing(busy):
    busy.store.cancel("s")
    busy.beat(BEATS_PER_COMPARISON)
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")


def test_a_stage_that_was_cancelled_while_it_waited_is_dropped():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.beat()
    federation.store.cancel("t")
    federation.beat()
    assert set(federation.child._scheduler.workloads) == {"s"}


def test_a_stage_that_was_cancelled_between_lease_and_claim_gives_the_lease_back(joined):
    joined.submit("s")
    joined.flaky.before["claim"] = lambda: joined.store.cancel("s")
    joined.beat()
    assert joined.words() == [("s", "stage_ended")]
    assert all_is_free(joined)


def test_a_stage_that_was_cancelled_between_claim_and_start_is_stopped(joined):
    joined.submit("s")
    joined.flaky.before["get"] = lambda: joined.store.cancel("s")
    joined.beat()
    joined.mail()
    joined.work()
    assert [kind for _, kind in joined.words()][-1] == "stage_ended"
    assert all_is_free(joined)


# -- a store that does not answer ------------------------------------------------------------------------------------------


def test_what_cannot_be_told_is_kept_and_told_later_in_order(busy):
    busy.flaky.down = {"report"}
    busy.work()
    busy.work()
    assert busy.words() == []
    busy.beat()
    assert busy.held() == 1
    busy.flaky.down = set()
    busy.beat()
    assert [kind for _, kind in busy.words()] == ["node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]
    assert all_is_free(busy)


def test_a_report_that_was_taken_in_without_an_answer_is_not_taken_in_twice(busy):
    busy.flaky.mute = {"report"}
    busy.work()
    busy.flaky.mute = set()
    busy.beat()
    busy.work()
    assert [kind for _, kind in busy.words()] == ["node_started", "node_succeeded", "node_started", "node_succeeded", "stage_ended"]


@pytest.mark.parametrize("mute", [pytest.param(False, id="was not taken in"), pytest.param(True, id="was taken in")])
def test_a_release_that_was_not_answered_is_made_again_and_what_was_offered_is_not_spent_meanwhile(busy, mute):
    busy.work()
    busy.work()
    (busy.flaky.mute if mute else busy.flaky.down).add("release")
    busy.beat(IDLE_BEATS + 1)
    busy.flaky.down.add("acquire")
    busy.submit("t")
    busy.mail()
    assert (busy.running(), busy.paid()) == (set(), set())
    busy.flaky.mute, busy.flaky.down = set(), set()
    busy.beat()
    assert (busy.running(), busy.held()) == ({"t"}, 1)


@pytest.mark.parametrize("refusal", [CallRejected("larger than 1 MiB"), BatchTooLarge("too many")], ids=["the call", "what is in it"])
def test_what_the_root_never_takes_ends_its_stage_as_lost_and_holds_up_nobody_else(busy, refusal):
    def refuse():
        raise refusal

    busy.submit("t")
    busy.beat()
    busy.words()
    busy.clock.advance(0)
    busy.host.advance()
    busy.clock.advance(DURATION_MS)
    busy.host.advance()
    reports, busy.reports[:] = list(busy.reports), []
    busy.flaky.before["report"] = refuse
    for report in sorted(reports, key=lambda report: (report.stage, report.number)):
        busy.child.take_report(report)
    assert ("s", "stage_lost") in busy.words()
    (lost,) = [message for message in busy.told if message.kind == "stage_lost"]
    assert (lost.reason, busy.host._stages["s"].cancelled) == (Reason.REPORT_REFUSED, True)
    assert [message.kind for message in busy.told if message.stage == "t"] == ["node_started", "node_succeeded", "stage_ended"]
    busy.work()
    assert all_is_free(busy)


def test_a_value_that_the_root_never_takes_ends_its_stage_as_lost(joined):
    def refuse():
        raise BatchTooLarge("a blob of 9 MiB")

    task = TaskSpec(node="c", attempt=1, function="call:m:f", export=True)
    joined.store.submit("east", StageSpec(stage="t", run="r", tenant="acme", tasks=(task,), slot=CPU, width=1))
    joined.flaky.before["put"] = refuse
    joined.beat()
    joined.work()
    assert joined.words()[-1] == ("t", "stage_lost")
    assert all_is_free(joined)


def test_a_stage_whose_loss_cannot_be_told_now_is_lost_later(busy):
    def refuse():
        raise CallRejected("larger than 1 MiB")

    busy.flaky.before["report"] = refuse
    busy.flaky.down = {"report"}
    busy.work()
    busy.flaky.before["report"] = refuse
    busy.flaky.down = set()
    busy.beat()
    assert busy.words() == [("s", "stage_lost")]


def test_blobs_are_kept_before_the_words_that_name_them_are_passed_on(busy):
    busy.flaky.down = {"put"}
    task = TaskSpec(node="c", attempt=1, function="call:m:f", export=True)
    busy.store.submit("east", StageSpec(stage="t", run="r", tenant="acme", tasks=(task,), slot=CPU, width=1))
    busy.beat()
    busy.work()
    assert ("t", "node_succeeded") not in busy.words()
    busy.flaky.down = set()
    busy.beat()
    assert ("t", "node_succeeded") in busy.words()
    (value,) = [message.stored for message in busy.told if message.stage == "t" and message.kind == "node_succeeded"]
    assert busy.store.get("r", (value.sha256,))


@pytest.mark.parametrize("method", ["waiting", "claims_of", "inputs_of", "explain"])
def test_the_mesh_goes_on_when_a_question_is_not_answered(method):
    federation = Federation(quota=1)
    federation.beat()
    federation.flaky.down = {method}
    federation.submit("s", "a: x")
    federation.submit("t")
    federation.mail()
    federation.store.deliver("s", "x", stored(federation.store, "seven"))
    federation.mail()
    federation.beat(BEATS_PER_COMPARISON)
    federation.flaky.down = set()
    federation.beat(BEATS_PER_COMPARISON)
    federation.work()
    federation.mail()
    federation.work()
    kinds = federation.words()
    assert ("s", "stage_ended") in kinds
    assert ("t", "stage_ended") in kinds
    assert all_is_free(federation)


def test_an_explanation_that_is_not_taken_in_holds_up_nobody_else_and_comes_later():
    federation = Federation()
    federation.flaky.down = {"explain"}
    federation.submit("huge", slot=ResourceSet.of({"cpu": 9}))
    federation.submit("s")
    federation.beat()
    assert federation.running() == {"s"}
    federation.flaky.down = set()
    federation.beat()
    assert ("huge", "stage_waiting") in federation.words()


@pytest.mark.parametrize("mute", [pytest.param(False, id="was not taken in"), pytest.param(True, id="was taken in")])
def test_a_lease_that_was_not_answered_is_asked_for_again(joined, mute):
    (joined.flaky.mute if mute else joined.flaky.down).add("acquire")
    joined.submit("s")
    joined.mail()
    joined.flaky.mute, joined.flaky.down = set(), set()
    assert joined.running() == set()
    assert joined.words() == [("s", "stage_waiting")]
    assert joined.told[0].reason is Reason.LEDGER_UNREACHABLE
    joined.beat()
    assert joined.running() == {"s"}


def test_a_lease_that_was_granted_without_an_answer_is_given_back_when_its_stage_is_gone(joined):
    joined.flaky.mute = {"acquire"}
    joined.submit("s")
    joined.mail()
    assert joined.held() == 1
    joined.flaky.mute = set()
    joined.store.cancel("s")
    joined.beat()
    assert all_is_free(joined)


def test_a_lease_that_was_granted_without_an_answer_never_pays_for_another_flavor():
    federation = Federation(pool("general", 1), pool("spot", 1, flavor="cheap"))
    federation.submit("s")
    federation.flaky.mute = {"acquire"}
    federation.beat()
    federation.flaky.mute = set()
    federation.beat()
    (payer,) = [federation.child._balance.payer(stage) for stage in federation.paid()]
    used = {kept.spec.flavor for kept in federation.child._scheduler.ledger.pools.values() if kept.used}
    assert used == {payer.flavor}


def test_a_lease_that_was_granted_without_an_answer_does_not_take_more_room_than_is_left():
    federation = Federation()
    federation.submit("wide", "a:", "b:", "c:", width=3)
    federation.flaky.mute = {"acquire"}
    federation.beat()
    federation.submit("first", slot=ResourceSet.of({"cpu": 2}), priority=1)
    federation.flaky.mute = set()
    federation.beat()
    (account,) = federation.child._balance._accounts.values()
    assert account.spent == {"first": ResourceSet.of({"cpu": 2}), "wide": ResourceSet.of({"cpu": 2})}
    assert federation.held() == 4


@pytest.mark.parametrize(
    "method",
    [pytest.param("claim", id="the answer to the claim is lost"), pytest.param("get", id="the code for it cannot be had")],
)
def test_a_claim_of_which_nothing_runs_is_given_back(joined, method):
    joined.flaky.mute = {method}
    joined.submit("s")
    joined.mail()
    assert (joined.running(), joined.view().claimed) == (set(), 1)
    joined.flaky.mute = set()
    joined.beat(BEATS_PER_COMPARISON)
    assert joined.view().claimed == 0
    assert joined.words()[-1] == ("s", "stage_lost")
    assert joined.told[-1].reason is Reason.LEDGER_UNREACHABLE
    assert all_is_free(joined)


def test_a_claim_that_was_not_taken_in_is_made_again(joined):
    joined.flaky.down = {"claim"}
    joined.submit("s")
    joined.mail()
    assert joined.paid() == set()
    joined.flaky.down = set()
    joined.beat()
    assert joined.running() == {"s"}


def test_a_claim_that_is_refused_because_too_much_is_claimed_is_made_again(joined):
    def refuse():
        raise TooManyClaims("end something")

    joined.flaky.before = {"claim": refuse}
    joined.submit("s")
    joined.mail()
    assert (joined.running(), joined.paid()) == (set(), set())
    joined.beat()
    assert joined.running() == {"s"}


def test_a_claim_whose_run_was_forgotten_while_it_is_given_back_is_let_go(joined):
    joined.flaky.mute = {"claim"}
    joined.submit("s")
    joined.mail()
    joined.flaky.mute = set()
    joined.flaky.before["report"] = lambda: joined.store.forget("r", ())
    joined.beat(BEATS_PER_COMPARISON)
    assert all_is_free(joined)
    assert joined.view().alive


def test_a_start_that_could_not_be_told_keeps_nobody_else_from_starting(joined):
    joined.submit("s")
    joined.submit("t")
    joined.flaky.down = {"report"}
    joined.mail()
    assert joined.running() == {"s", "t"}
    joined.flaky.down = set()
    joined.beat()
    assert joined.words() == [("s", "stage_started"), ("t", "stage_started")]


# -- the session -----------------------------------------------------------------------------------------------------------


def test_without_an_answer_the_session_lasts_99_hundredths_of_its_time_on_the_own_clock(busy):
    busy.flaky.down = {"heartbeat"}
    renewed_ms = busy.clock.now_ms
    while busy.running():
        assert busy.clock.now_ms - renewed_ms < 0.99 * TTL_MS
        busy.beat()
    assert busy.clock.now_ms - renewed_ms == 0.99 * TTL_MS
    assert busy.host.is_empty
    assert (busy.paid(), busy.held()) == (set(), 1)  # The ledger outlasts the holder.


def test_after_the_loss_the_mesh_joins_again_as_soon_as_the_ledger_answers(busy):
    busy.flaky.down = {"heartbeat", "join"}
    busy.beat(20)
    assert busy.running() == set()
    busy.flaky.down = set()
    busy.submit("t")
    busy.beat()
    assert busy.running() == {"t"}
    assert ("s", "stage_lost") in busy.words()
    assert busy.paid() == {"t"}
    assert busy.held() == 2  # What the earlier session held stays charged until its own time is over.
    busy.clock.advance(TTL_MS)
    busy.beat()
    busy.clock.advance(GRACE_MS)
    busy.beat()
    busy.store.sweep()
    assert busy.held() == 1


def test_a_session_that_the_ledger_has_ended_stops_all_work_and_begins_another(busy):
    earlier = busy.view().incarnation
    busy.store.join(busy.view().record)  # Somebody else speaks for the mesh now.
    busy.child.beat()
    assert (busy.running(), busy.host.is_empty, busy.child.due_in_ms()) == (set(), True, 0)
    busy.beat()
    assert busy.view().alive
    assert busy.view().incarnation > earlier


def test_a_child_that_slept_longer_than_its_session_lives_stops_all_work_before_it_asks_anybody(busy):
    earlier = busy.view().incarnation
    busy.clock.advance(TTL_MS)
    busy.flaky.down = {"heartbeat", "join"}
    busy.child.beat()
    assert (busy.running(), busy.host.is_empty) == (set(), True)
    busy.flaky.down = set()
    busy.beat()
    assert busy.view().incarnation > earlier


def test_a_heartbeat_in_time_after_a_silence_keeps_the_session(busy):
    busy.flaky.down = {"heartbeat"}
    busy.beat(2)
    busy.flaky.down = set()
    busy.beat()
    busy.work()
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")


def test_a_heartbeat_that_has_more_to_tell_than_the_ledger_hears_is_one_without_an_answer(busy):
    def too_large():
        raise BatchTooLarge("1001 rows in one call; send at most 1000")

    busy.flaky.before["heartbeat"] = too_large
    busy.beat()
    assert (busy.running(), busy.child._tenure.session is not None) == ({"s"}, True)
    busy.beat()
    busy.work()
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")


def test_a_ledger_that_does_not_answer_the_first_join_is_asked_again():
    federation = Federation()
    federation.flaky.down = {"join"}
    federation.beat(9)
    federation.flaky.down = set()
    federation.beat()
    assert federation.view().alive


def test_a_session_that_is_lost_in_the_middle_of_the_work_stops_everything(busy):
    busy.submit("t")
    busy.flaky.before["acquire"] = lambda: busy.store.join(busy.record)
    busy.mail()
    assert (busy.running(), busy.host.is_empty, busy.child.due_in_ms()) == (set(), True, 0)
    busy.beat()
    assert busy.running() == {"t"}


def test_what_there_was_to_tell_under_a_lost_session_is_not_told_under_the_next(busy):
    busy.flaky.down = {"report"}
    busy.work()
    busy.clock.advance(TTL_MS + GRACE_MS + 1)
    busy.store.sweep()
    busy.flaky.down = set()
    busy.beat(2)
    assert busy.words() == [("s", "stage_lost")]
    assert all_is_free(busy)


def test_a_stage_that_is_no_longer_ours_is_stopped_and_its_room_given_back(busy):
    busy.store.forget("r", ())
    busy.work()
    assert all_is_free(busy)
    busy.work()
    assert busy.words() == []


def test_what_a_stage_that_is_no_longer_ours_took_is_free_when_it_has_stopped_and_not_before():
    federation = Federation(pool("general", 1), quota=1)
    west = HandMesh(federation.store, MeshRecord(mesh="west", labels={}, pools=(), cluster="c2"))
    federation.submit("s", "a:", "b: a")
    federation.beat()
    federation.clock.advance(0)
    federation.host.advance()
    federation.store.revoke(mesh="east", hard=True)
    federation.clock.advance(DURATION_MS)
    federation.host.advance()  # The first task has ended and the second has begun.
    while federation.reports:
        federation.child.take_report(federation.reports.pop(0))  # Is refused: the claim is void.
    federation.beat(2)
    west.beat()
    assert federation.host._stages["s"].cancelled
    assert (federation.held(), type(west.acquire("acme", "standard", CPU))) == (1, LeaseRefused)
    federation.work()
    assert (federation.running(), federation.paid()) == (set(), set())
    federation.beat()
    assert isinstance(west.acquire("acme", "standard", CPU), Granted)


def test_of_a_stage_whose_run_was_forgotten_nothing_is_told_and_nobody_starts_in_its_place_before_it_has_stopped():
    federation = Federation(pool("general", 1), quota=1)
    federation.submit("s")
    federation.beat()
    federation.words()
    federation.store.forget("r", ())
    federation.store.release_id("r")
    federation.submit("t")
    federation.beat(BEATS_PER_COMPARISON)
    assert (federation.running(), set(federation.host._stages)) == ({"s"}, {"s"})
    federation.work(by_ms=0)
    assert federation.running() == {"t"}
    assert [word for word in federation.words() if word[0] == "s"] == []


def test_reports_about_stages_that_are_over_are_dropped(busy):
    busy.work()
    last = StageEnded(stage="s")
    busy.work()
    busy.words()
    busy.child.take_report(HostReport(stage="s", number=9, messages=(last,)))
    assert busy.words() == []


def test_a_runner_that_died_ends_the_stage_as_lost(busy):
    lost = StageLost(stage="s", mesh="east", incarnation=1, reason=Reason.WORKER_LOST)
    busy.child.take_report(HostReport(stage="s", number=9, messages=(lost,)))
    assert busy.words() == [("s", "stage_lost")]
    assert all_is_free(busy)


def test_leaving_stops_all_work_and_frees_the_quota_at_once(busy):
    busy.child.leave()
    assert busy.host.is_empty
    assert (busy.held(), busy.store.snapshot().meshes) == (0, ())
    assert busy.words() == [("s", "stage_lost")]


def test_leaving_before_joining_is_harmless():
    federation = Federation()
    federation.child.leave()
    assert federation.store.snapshot().meshes == ()


# -- a store that has lost its last second -----------------------------------------------------------------------------


def test_a_claim_whose_end_the_store_has_lost_is_given_back():
    federation = Federation()
    federation.beat()
    federation.submit("s")
    federation.beat()
    before = federation.store.copied()
    federation.work()
    assert (federation.running(), federation.paid()) == (set(), set())
    federation.store.lose_writes(before)
    federation.words()
    federation.beat(BEATS_PER_COMPARISON + 1)
    assert ("s", "stage_lost") in federation.words()
    assert federation.held() == 0


def test_a_stage_whose_claim_and_lease_the_store_has_lost_does_not_run_on_unclaimed():
    federation = Federation()
    federation.beat()
    federation.submit("s")
    before = federation.store.copied()
    federation.beat()
    assert federation.running() == {"s"}
    federation.store.lose_writes(before)
    assert federation.held() == 0
    federation.beat(BEATS_PER_COMPARISON)
    federation.work()
    assert federation.view().claimed == len(federation.running()) == 0  # Nothing new begins while the ledger learns.
    federation.beat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS))
    assert federation.running() == federation.paid() == {"s"}
    assert federation.view().claimed == 1


def test_a_ledger_that_has_lost_a_lease_is_told_of_it_and_the_work_goes_on(busy):
    for lost in (busy.store._rows, busy.store._usage, busy.store._aims, busy.store._marks):
        lost.clear()
    busy.store.restart()
    busy.beat()
    assert (busy.running(), busy.held(), busy.store.audit()) == ({"s"}, 1, ())
    busy.work()
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")


def test_work_goes_on_when_the_store_has_lost_the_plan_that_was_just_obeyed():
    federation = Federation()
    federation.beat()
    federation.submit("s", priority=1)
    federation.submit("t")
    federation.beat(2)
    before = federation.store.copied()
    aim = Aim(mesh="east", tenant="acme", flavor="standard", target=CPU)
    federation.store.plan_apply(federation.store.elect("p", 60_000), federation.store.snapshot().version, (aim,))
    federation.beat()  # `t` is asked to stop.
    federation.clock.advance(0)
    federation.host.advance()
    while federation.reports:
        federation.child.take_report(federation.reports.pop(0))
    assert federation.running() == {"s"}
    federation.store.lose_writes(before)
    federation.beat(2 * BEATS_PER_COMPARISON)
    assert not federation.child._gives_way("s")
    assert (federation.running(), federation.paid(), federation.host._stages["s"].cancelled) == ({"s"}, {"s"}, False)


def test_nothing_new_is_asked_of_a_ledger_that_learns_and_its_stages_say_so(joined):
    joined.store.restart()
    joined.submit("s")
    joined.beat()
    assert joined.words() == [("s", "stage_waiting")]
    assert joined.told[0].reason is Reason.LEDGER_LEARNING
    joined.beat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS) + 1)
    assert joined.running() == {"s"}


# -- leases that shrink ------------------------------------------------------------------------------------------------


def test_a_revoked_lease_is_given_up_its_stage_stops_and_waits_for_quota_again(busy):
    busy.store.revoke(tenant="acme")
    busy.beat()
    assert busy.held() == 1  # Still charged: it is being stopped.
    busy.work()
    assert busy.words()[-1] == ("s", "stage_lost")
    assert busy.told[-1].reason is Reason.QUOTA_RECLAIMED
    assert not [message for message in busy.told if message.kind == "node_failed"]
    busy.beat(2)
    assert (busy.running(), busy.held(), busy.store.audit()) == (set(), 0, ())


def test_the_least_urgent_and_last_started_stage_gives_way_and_no_more_than_has_to():
    federation = Federation()
    federation.beat()
    for name, priority in (("early", 0), ("late", 0), ("urgent", 5)):
        federation.submit(name, priority=priority)
        federation.mail()
    planner = federation.store.elect("me", 60_000)
    aim = Aim(mesh="east", tenant="acme", flavor="standard", target=ResourceSet.of({"cpu": 2}))
    federation.store.plan_apply(planner, federation.store.snapshot().version, (aim,))
    federation.beat()
    federation.work(0)
    assert federation.running() == {"early", "urgent"}
    federation.beat()
    assert federation.held() == 2


def test_what_is_taken_by_plan_is_heard_of_at_once_and_told_as_soon_as_it_has_stopped(busy):
    busy.mail()
    planner = busy.store.elect("me", 60_000)
    aim = Aim(mesh="east", tenant="acme", flavor="standard", target=ResourceSet())
    busy.store.plan_apply(planner, busy.store.snapshot().version, (aim,))
    before_ms = busy.clock.monotonic_ms()
    busy.mail()
    busy.beat()
    busy.work(0)
    busy.beat()
    assert (busy.held(), busy.clock.monotonic_ms() - before_ms) == (0, 0)


def test_a_user_who_cancels_what_gives_way_gets_the_end_and_not_another_try(busy):
    busy.store.revoke(tenant="acme")
    busy.beat()
    busy.store.cancel("s")
    busy.mail()
    busy.work()
    assert busy.words()[-1] == ("s", "stage_ended")


def test_what_was_granted_in_part_is_not_wanted_for_ever():
    federation = Federation(quota=2)
    federation.submit("s", "a:", "b:", "c:", width=3)
    federation.beat()
    assert federation.held() == 2
    federation.beat()
    assert federation.store.snapshot().wants == ()


# -- spending without asking -------------------------------------------------------------------------------------------


def test_a_stage_that_the_idle_lease_covers_asks_nobody(busy):
    busy.work()
    busy.work()
    busy.flaky.down = {"acquire"}
    busy.submit("t")
    busy.mail()
    assert busy.running() == {"t"}


def test_what_lies_idle_goes_back_at_once_when_another_mesh_wants_it():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.beat()
    federation.work()
    west = federation.store.join(MeshRecord(mesh="west", labels={}, pools=(), cluster="c2"))
    want = Want(tenant="acme", flavor="standard", slot=CPU)
    (refused,) = federation.store.acquire(west, (want,)).answers
    assert refused.reason is Reason.QUOTA_EXHAUSTED
    federation.mail()
    (granted,) = federation.store.acquire(west, (want,)).answers
    assert granted.slots == 1


def test_a_target_that_nobody_waits_for_any_more_falls_with_what_lies_idle(busy):
    store = busy.store
    store.plan_apply(
        store.elect("p", 60_000), store.snapshot().version, (Aim(mesh="east", tenant="acme", flavor="standard", target=CPU.times(4)),)
    )
    tree = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=20_000)})])
    store.configure(tree)  # Four are out of reach now.
    busy.beat()
    busy.work()
    busy.work()
    assert all_is_free(busy)
    assert store.snapshot().leases == ()


def test_what_another_tenant_left_idle_here_is_given_back_to_make_room():
    federation = Federation()
    both = {("standard", "cpu"): Quota(nominal=10_000)}
    lent = [Tenant(path=path, parent="acme") for path in ("acme/a", "acme/b")]
    federation.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas=both), *lent]))
    federation.submit("s", tenant="acme/a")
    federation.beat()
    federation.work()
    federation.submit("t", tenant="acme/b")
    federation.mail()
    assert federation.running() == {"t"}
    assert [lease.tenant for lease in federation.store.snapshot().leases] == ["acme/b"]


def test_wants_are_withdrawn_when_nothing_waits_any_more():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.beat()
    assert [want.mesh for want in federation.store.snapshot().wants] == ["east"]
    federation.store.cancel("t")
    federation.mail()
    federation.beat(2)
    assert federation.store.snapshot().wants == ()


# -- asking ------------------------------------------------------------------------------------------------------------


def test_a_ledger_that_does_not_answer_is_asked_once_and_not_for_every_queued_stage():
    federation = Federation()
    federation.beat()
    asked = []

    def away(*args, **_named):
        asked.append(args)
        raise StoreUnavailable("gone")

    federation.store.acquire = away
    for name in "abcde":
        federation.submit(name)
    federation.mail()
    assert len(asked) == 1


def slow(federation, method, by_ms):
    """The method takes so long; how often it was called."""
    calls, plain = [], getattr(federation.store, method)

    def call(*args, **named):
        calls.append(args)
        federation.clock.advance(by_ms)
        return plain(*args, **named)

    setattr(federation.store, method, call)
    return calls


def test_a_heartbeat_goes_before_the_rest_of_a_look_that_takes_long():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.beat()
    questions = slow(federation, "acquire", 50)
    for number in range(60):  # Sixty kinds: each has to be asked for.
        federation.submit(f"t{number}", slot=ResourceSet({"cpu": 1_000 + number}))
    federation.beat()
    assert 0 < len(questions) < 30
    assert federation.child.due_in_ms() == 0
    federation.beat(6)
    assert {stage for stage in federation.child._scheduler.workloads if federation.child._scheduler.workloads[stage].told} >= {"t59"}
    assert federation.running() == {"s"}


def test_a_heartbeat_goes_before_what_is_told_to_those_who_wait():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.beat()
    words = slow(federation, "explain", 50)
    for number in range(60):
        federation.submit(f"t{number}")
    federation.beat()
    assert 0 < len(words) < 30
    federation.beat(6)
    assert len(words) == 60


def test_equal_stages_that_wait_for_quota_cost_one_question_at_a_look():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.beat()
    questions = slow(federation, "acquire", 0)
    for number in range(60):
        federation.submit(f"t{number}")
    federation.beat()
    federation.store.cancel("t0")
    federation.beat()
    assert len(questions) == 2
    assert [want.tenant for want in federation.store.snapshot().wants] == ["acme"]


def test_a_lease_is_as_urgent_as_the_most_urgent_stage_that_it_pays_for_and_a_want_as_its_own_stage():
    federation = Federation(quota=2)
    federation.submit("urgent", priority=7)
    federation.beat()
    federation.submit("small", priority=-3)
    federation.beat()
    federation.submit("late", priority=2)
    federation.beat(2)
    assert federation.running() == {"urgent", "small"}
    assert [lease.priority for lease in federation.store.snapshot().leases] == [7]
    assert [want.priority for want in federation.store.snapshot().wants] == [2]


def test_only_what_is_missing_is_asked_for_on_top_of_what_lies_idle():
    federation = Federation(quota=4)
    federation.host._behaviour = lambda task: (DURATION_MS if task.node == "short" else 10**9, False)
    federation.submit("long", "long:")
    federation.submit("short", "short:")
    federation.beat()
    federation.submit("large", slot=ResourceSet.of({"cpu": 3}))  # Of four, the long one has one; the short one's is idle soon.
    federation.mail()
    assert federation.running() == {"long", "short"}
    federation.work()
    assert federation.running() == {"long", "large"}
    assert federation.held() == 4


def test_work_stops_only_for_what_the_ledger_does_not_add():
    federation = full_house(pool("general", 9), quota=4)
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 3}), yielding=TAKES)
    federation.mail()
    assert len(stopping(federation)) == 1
    federation.work(0)
    assert "urgent" in federation.running()
    assert len(federation.running()) == 2


def test_what_was_decided_under_a_session_that_is_lost_meanwhile_is_void(joined):
    def lose(*_args):
        raise SessionLost("swept")

    joined.submit("s")
    joined.submit("t")
    joined.store.report = lose  # The first start is told, and the answer is that there is no session.
    joined.mail()
    assert joined.running() == set()
    assert joined.child._scheduler.workloads == {}
    assert joined.child._tenure.session is None


# -- the urgent before the less urgent of one tenant -----------------------------------------------------------------------

TAKES = YieldRules(takes=True, min_run_ms=0, hold_ms=10 * HEARTBEAT_MS)


def full_house(*pools, quota=2, ages_ms=(0, 0), **told):
    """Two stages of priority 0, `a` and `b`, run."""
    federation = Federation(*(pools or (pool("general", 2),)), quota=quota)
    for name, age_ms in zip("ab", ages_ms, strict=True):
        federation.submit(name, **told)
        federation.beat()
        federation.clock.advance(age_ms)
    assert federation.running() == {"a", "b"}
    federation.words()
    return federation


def stopping(federation):
    return {stage for stage, record in federation.child._running.items() if record.gives_way}


@pytest.mark.parametrize(
    ("pools", "quota"),
    [
        pytest.param([pool("general", 2)], 9, id="the pool is full"),
        pytest.param([pool("general", 9)], 2, id="the lease is full, and the ledger grants no more"),
        pytest.param([pool("general", 2)], 2, id="both are full"),
    ],
)
def test_an_urgent_stage_stops_a_less_urgent_one_of_its_tenant_and_starts_in_its_place(pools, quota):
    federation = full_house(*pools, quota=quota)
    federation.submit("urgent", priority=5, yielding=TAKES)
    federation.mail()
    assert stopping(federation) == {"b"}  # It has run for the shorter time.
    assert federation.words()[-1] == ("urgent", "stage_waiting")
    assert (federation.told[-1].reason, federation.told[-1].detail) == (
        Reason.WAITING_FOR_VICTIMS,
        "less urgent work of its own tenant stops for it: b",
    )
    federation.work(0)
    assert federation.running() == {"a", "urgent"}
    lost = [message for message in (federation.words(), federation.told)[1] if isinstance(message, StageLost)]
    assert [(message.stage, message.reason) for message in lost] == [("b", Reason.LOWER_IN_QUEUE)]


@pytest.mark.parametrize(
    ("told", "yielding"),
    [
        pytest.param({"priority": 0}, TAKES, id="an equal one"),
        pytest.param({"priority": 5}, NEVER_TAKES, id="one whose tenant wants no stops"),
        pytest.param({"priority": 5}, YieldRules(takes=True, min_run_ms=60_000), id="one that comes too soon"),
        pytest.param({"priority": 5, "slot": ResourceSet.of({"cpu": 3})}, TAKES, id="one for which all of them are not enough"),
        pytest.param({"priority": 5, "tenant": "other"}, TAKES, id="one of another tenant"),
    ],
)
def test_nobody_is_stopped_for(told, yielding):
    federation = full_house()
    federation.submit("urgent", yielding=yielding, **told)
    federation.beat(2)
    assert stopping(federation) == set()


def test_a_stage_that_was_too_young_is_stopped_when_it_has_run_long_enough():
    federation = full_house()
    federation.submit("urgent", priority=5, yielding=YieldRules(takes=True, min_run_ms=3 * HEARTBEAT_MS))
    federation.beat()
    assert stopping(federation) == set()
    federation.beat(2)
    assert len(stopping(federation)) == 1


def test_the_ledger_is_asked_before_a_second_stage_stops_for_want_of_quota_alone():
    federation = full_house(pool("general", 3), quota=9, slot=ResourceSet.of({"cpu": 1}))
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), yielding=TAKES)
    federation.mail()
    assert len(stopping(federation)) == 1
    assert federation.held() == 4


def test_more_stop_where_the_ledger_has_no_more():
    federation = full_house(pool("general", 3), quota=2)
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), yielding=TAKES)
    federation.mail()
    assert stopping(federation) == {"a", "b"}
    federation.work()
    assert federation.running() == {"urgent"}


def test_what_is_freed_is_neither_given_back_nor_taken_by_others_of_the_tenant():
    federation = full_house(pool("general", 9), quota=2)
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), yielding=TAKES)
    federation.mail()
    federation.host.advance()  # Both stop; one is told, and the other is not yet.
    federation.child.take_report(federation.reports.pop(0))
    federation.submit("small", priority=9)
    federation.mail()
    federation.beat(IDLE_BEATS + 1)
    assert ("small", Reason.ROOM_RESERVED) in [
        (message.stage, message.reason) for message in (federation.words(), federation.told)[1] if message.kind == "stage_waiting"
    ]
    assert federation.held() == 2
    federation.work()
    assert federation.running() == {"urgent"}


def test_a_claim_that_ends_lets_go_at_once_of_what_was_held_for_it():
    federation = full_house(pool("general", 9), quota=2)
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), yielding=TAKES)
    federation.mail()
    federation.host.advance()
    federation.child.take_report(federation.reports.pop(0))  # One has stopped; the other stops still.
    federation.submit("small")
    federation.mail()
    assert "small" not in federation.running()
    federation.store.cancel("urgent")
    federation.child.take_mail((Mail(kind=MailKind.STAGE, subject="small"),))
    assert "small" in federation.running()


def test_room_that_is_not_free_in_time_is_anybodys_again():
    federation = full_house(pool("general", 2))
    federation.submit("urgent", priority=5, slot=ResourceSet.of({"cpu": 2}), yielding=replace(TAKES, hold_ms=HEARTBEAT_MS))
    federation.mail()
    federation.host.advance()
    federation.child.take_report(federation.reports.pop(0))
    federation.submit("small", priority=1)
    federation.mail()
    assert "small" not in federation.running()
    federation.beat(2)
    assert "small" in federation.running()


def test_what_gave_way_runs_later_and_stops_nobody():
    federation = full_house()
    federation.submit("urgent", priority=5, yielding=TAKES)
    federation.mail()
    federation.work(0)
    federation.submit("b again", yielding=TAKES)
    federation.beat()
    assert federation.running() == {"a", "urgent"}
    assert stopping(federation) == set()
    federation.work()
    federation.beat()
    assert federation.running() == {"b again"}


def test_two_urgent_stages_do_not_count_on_the_same_victim():
    federation = full_house()
    federation.submit("first", priority=5, yielding=TAKES)
    federation.submit("second", priority=4, yielding=TAKES)
    federation.mail()
    assert stopping(federation) == {"a", "b"}
    federation.work(0)
    assert federation.running() == {"first", "second"}
