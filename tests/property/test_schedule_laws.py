"""Laws of schedules: each time fires once at most, whatever the clock does and wherever the controller crashes."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from dag.schedules.controller import ScheduleController
from dag.schedules.cron import last_time_ms, next_time_ms
from dag.schedules.schedule import Overlap, Rules, Schedule, Template
from dag.spec.spec import kept_form, parse
from dag.store.memory import MemoryRunStore
from dag.store.memory_schedules import MemoryScheduleStore
from federation.errors import StoreUnavailable
from federation.quota.tenant_policies import PoliciesInForce
from federation.store.memory.store import MemoryStore
from federation.tenants import Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import TenantPath

LAB = TenantPath("lab")
BEGIN_MS, MINUTE_MS = 1_700_000_000_000, 60_000
TREE = TenantTree([Tenant(path=LAB, parent=None)])
SPEC = parse(b'{"spec": "dag/1", "nodes": {"a": {"call": "m:f"}}, "outputs": {"a": {"$ref": "a"}}}')
TEMPLATE = Template(spec=kept_form(SPEC), blobs={})
CRONS = st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "15 1-3 * * *", "0 3 * * 1-5", "0 0 L * *", "5 */2 * 3,10 *"])
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata"])
TIMES_MS = st.integers(0, 2_000_000_000_000)


@given(CRONS, ZONES, TIMES_MS, st.integers(0, 40 * 86_400_000))
def test_the_last_time_is_one_that_comes_next(cron, zone, after_ms, width_ms):
    last_ms = last_time_ms(cron, zone, after_ms, after_ms + width_ms)
    following_ms = next_time_ms(cron, zone, after_ms if last_ms is None else last_ms)
    assert following_ms > after_ms + width_ms
    assert last_ms is None or after_ms < last_ms <= after_ms + width_ms


class Leaping:
    """A clock that may go back, as no `ManualClock` does."""

    def __init__(self):
        self.now_ms = BEGIN_MS

    def wall_ms(self):
        return self.now_ms

    def monotonic_ms(self):
        return 0


class Dying:
    """A store that fails before or after one of its writes."""

    def __init__(self, of, verb):
        self._of = of
        self._verb = verb
        self.fails = ""

    def __getattr__(self, name):
        if name != self._verb:
            return getattr(self._of, name)

        def write(*arguments):
            fails, self.fails = self.fails, ""
            if fails == "before":
                raise StoreUnavailable("away")
            answer = getattr(self._of, name)(*arguments)
            if fails == "after":
                raise StoreUnavailable("away")
            return answer

        return write


STEPS = st.lists(
    st.tuples(st.integers(-5, 20), st.sampled_from(["", "before", "after"]), st.sampled_from(["put", "create"])), min_size=1, max_size=12
)


@given(STEPS, st.sampled_from([Overlap.ALLOW, Overlap.REPLACE]))
def test_each_time_starts_one_run_at_most(steps, overlap):
    clock = Leaping()
    kept_runs = MemoryRunStore(MemoryStore(clock=ManualClock(), ttl_ms=10_000, grace_ms=3_000))
    schedules, runs = Dying(MemoryScheduleStore(runs=kept_runs), "put"), Dying(kept_runs, "create")
    rules = Rules(cron="* * * * *", overlap=overlap, digest="d")
    made = Schedule(tenant=LAB, name="s", uid="u", rules=rules, created_ms=BEGIN_MS, cursor_ms=BEGIN_MS, next_ms=BEGIN_MS)
    schedules.put(made, TEMPLATE)
    decided = set()
    for minutes, fails, verb in [*steps, (0, "", ""), (0, "", ""), (1, "", "")]:
        clock.now_ms += minutes * MINUTE_MS
        (schedules if verb == "put" else runs).fails = fails
        controller = ScheduleController(schedules=schedules, runs=runs, clock=clock)
        with contextlib.suppress(StoreUnavailable):
            controller.tick(TREE, PoliciesInForce)
        kept = schedules.load(LAB, "s")
        decided |= {kept.start.run} if kept.start is not None else set()
        decided |= {firing.run for firing in kept.firings}
    started = {summary.run for summary in runs.list(LAB, 1_000)}
    assert started == decided - {None}
    assert len({firing.due_ms for firing in kept.firings}) == len(kept.firings)
