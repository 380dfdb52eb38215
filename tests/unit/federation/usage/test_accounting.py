"""Sums of use over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.usage.accounting import DAY_MS, UsageTotals, as_of, by_days, shared_out
from federation.usage.records import Account, RowKey, Sums, UsageEntry, UsageState
from federation.usage.report import UsageBy, grouped
from mesh.core.ids import FlavorName, StageId, TenantPath

LAB, CPU = TenantPath("acme/lab"), FlavorName("cpu")
NOON = 20_000 * DAY_MS + DAY_MS // 2
HOUR = 3_600_000
NOTHING = UsageState()


def entry(stage, at_ms, units=None, *, user="ann", lost=0, tenant=LAB) -> UsageEntry:
    held = None if units is None else {"cpu": units} if units else {}
    lost_work = {"cpu": lost} if lost else {}
    return UsageEntry(
        entry="1-0", at_ms=at_ms, stage=StageId(stage), tenant=TenantPath(tenant), flavor=CPU, user=user, held=held, lost=lost_work
    )


def own(units):
    return lambda _: {"cpu": units} if units else {}


def sums_by(rows, by) -> dict[str, Sums]:
    return {str(getattr(row, by.value)): row.sums for row in grouped(rows, [by])}


def _added(sums) -> Sums:
    whole = Sums()
    for each in sums:
        whole = whole.plus(each)
    return whole


def totalled(*entries, quota=10, state=NOTHING) -> UsageTotals:
    totals = UsageTotals(state, own(quota))
    totals.take(entries)
    return totals


# ---- intervals


def test_an_interval_is_split_at_midnight_in_utc():
    assert list(by_days(NOON, NOON + DAY_MS)) == [(20_000, DAY_MS // 2), (20_001, DAY_MS // 2)]


def test_an_interval_until_midnight_has_no_next_day():
    assert list(by_days(NOON, 20_001 * DAY_MS)) == [(20_000, DAY_MS // 2)]


def test_time_that_goes_back_counts_nothing():
    assert list(by_days(NOON, NOON - 1)) == []


@given(st.integers(0, 10**14), st.integers(0, 400 * DAY_MS))
def test_days_of_an_interval_add_up_to_it(since_ms, took_ms):
    parts = list(by_days(since_ms, since_ms + took_ms))
    assert sum(ms for _, ms in parts) == took_ms
    assert [day for day, _ in parts] == sorted({day for day, _ in parts})
    assert all(0 < ms <= DAY_MS for _, ms in parts)


@given(st.integers(0, 10**20), st.dictionaries(st.text(max_size=3), st.integers(1, 10**12), min_size=1))
def test_shares_add_up_to_the_whole(whole, weights):
    parts = shared_out(whole, weights)
    assert sum(parts.values()) == whole
    assert all(abs(parts[name] * sum(weights.values()) - whole * weight) < sum(weights.values()) for name, weight in weights.items())


# ---- claims


def test_a_claim_counts_from_its_start_to_its_end():
    totals = totalled(entry("a", NOON, 2), entry("a", NOON + HOUR, 0))
    assert totals.sums == {RowKey(20_000, LAB, "ann", CPU, "cpu"): Sums(used=2 * HOUR)}
    assert totals.state(version=1, cursor="1-0").holdings == {}


def test_a_resized_claim_counts_each_part_with_its_size():
    totals = totalled(entry("a", NOON, 2), entry("a", NOON + HOUR, 5), entry("a", NOON + 3 * HOUR, 0))
    assert _added(totals.sums.values()).used == 2 * HOUR + 5 * 2 * HOUR


def test_a_repeated_report_changes_nothing():
    once = totalled(entry("a", NOON, 2), entry("a", NOON + HOUR, 0))
    again = totalled(entry("a", NOON, 2), entry("a", NOON, 2), entry("a", NOON + HOUR, 0), entry("a", NOON + HOUR, 0))
    assert again.sums == once.sums


def test_the_end_of_an_unknown_claim_counts_nothing():
    totals = totalled(entry("a", NOON, 0))
    assert (totals.sums, totals.changed_holdings(), totals.changed_reckonings()) == ({}, {}, {})


def test_lost_work_counts_on_the_day_of_its_end():
    totals = totalled(entry("a", NOON, lost=7))
    assert totals.sums == {RowKey(20_000, LAB, "ann", CPU, "cpu"): Sums(lost=7)}


# ---- beyond the own quota


def test_use_within_the_own_quota_is_not_borrowed():
    assert _added(totalled(entry("a", NOON, 10), entry("a", NOON + HOUR, 0)).sums.values()).borrowed == 0


def test_only_what_is_beyond_the_quota_is_borrowed():
    totals = totalled(entry("a", NOON, 8), entry("b", NOON + HOUR, 6), entry("b", NOON + 3 * HOUR, 0), entry("a", NOON + 9 * HOUR, 0))
    assert _added(totals.sums.values()) == Sums(used=8 * 9 * HOUR + 6 * 2 * HOUR, borrowed=4 * 2 * HOUR)


def test_borrowed_use_is_shared_by_what_each_user_holds():
    totals = totalled(entry("a", NOON, 15, user="ann"), entry("b", NOON, 5, user="bob"), entry("a", NOON + HOUR, 0))
    assert {user: sums.borrowed for user, sums in sums_by(totals.sums, UsageBy.USER).items()} == {
        "ann": 10 * HOUR * 3 // 4,
        "bob": 10 * HOUR // 4,
    }


def test_a_new_quota_counts_from_its_time_on():
    totals = totalled(entry("a", NOON, 10))
    totals.adopt(own(4), NOON + HOUR)
    totals.settle(NOON + 2 * HOUR)
    assert _added(totals.sums.values()) == Sums(used=20 * HOUR, borrowed=6 * HOUR)


# ---- what holds for all reports

REPORTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 3 * DAY_MS), st.integers(0, 9)),
    max_size=25,
)
USERS = {"a": "ann", "b": "ann", "c": "bob", "d": "eve"}
TENANTS = {"a": "acme/lab", "b": "acme/lab", "c": "acme/lab", "d": "acme/shop"}


def entries_of(reports) -> list[UsageEntry]:
    """Return reports with growing times, and an end of all claims."""
    at_ms, entries = NOON, []
    for stage, wait_ms, units in reports:
        at_ms += wait_ms
        entries.append(entry(stage, at_ms, units, user=USERS[stage], tenant=TENANTS[stage]))
    return entries


@given(REPORTS)
def test_use_is_amount_times_time(reports):
    entries = entries_of(reports)
    end_ms = max((each.at_ms for each in entries), default=NOON) + HOUR
    expected = 0
    for stage in {each.stage for each in entries}:
        of_stage = [each for each in entries if each.stage == stage]
        ends_ms = [*(later.at_ms for later in of_stage), end_ms][1:]
        expected += sum((each.held or {}).get("cpu", 0) * (until_ms - each.at_ms) for each, until_ms in zip(of_stage, ends_ms, strict=True))
    totals = totalled(*entries)
    totals.settle(end_ms)
    assert _added(totals.sums.values()).used == expected


@given(REPORTS, st.integers(0, 12))
def test_days_users_and_tenants_add_up_alike(reports, quota):
    totals = totalled(*entries_of(reports), quota=quota)
    whole = _added(totals.sums.values())
    assert all(_added(sums_by(totals.sums, by).values()) == whole for by in UsageBy)
    assert all(0 <= each.borrowed <= each.used for each in totals.sums.values())


@given(REPORTS)
def test_a_subtree_uses_no_less_than_a_tenant_in_it(reports):
    totals = totalled(*entries_of(reports))
    by_tenant = sums_by(totals.sums, UsageBy.TENANT)
    subtree = _added(sums for tenant, sums in by_tenant.items() if tenant.startswith("acme/"))
    assert all(subtree.used >= sums.used and subtree.borrowed >= sums.borrowed for sums in by_tenant.values())


@given(REPORTS, st.integers(0, 25), st.integers(0, 12))
def test_totals_that_go_on_from_a_state_end_alike(reports, cut, quota):
    entries = entries_of(reports)
    whole = totalled(*entries, quota=quota)
    first = totalled(*entries[:cut], quota=quota)
    second = totalled(*entries[cut:], quota=quota, state=first.state(version=1, cursor="1-0"))
    rows = dict(first.sums)
    for key, more in second.sums.items():
        rows[key] = rows.get(key, Sums()).plus(more)
    assert rows == dict(whole.sums)
    assert second.state(version=2, cursor="2-0").reckonings == whole.state(version=2, cursor="2-0").reckonings


def test_a_reading_has_what_open_claims_used_so_far():
    first = totalled(entry("a", NOON, 12))
    rows = as_of(first.state(version=1, cursor="1-0"), {}, NOON + HOUR)
    assert list(rows.values()) == [Sums(used=12 * HOUR, borrowed=2 * HOUR)]


def test_an_account_without_claims_is_gone():
    totals = totalled(entry("a", NOON, 1), entry("a", NOON + 1, 0))
    assert totals.changed_reckonings() == {Account(LAB, CPU): None}


@pytest.mark.parametrize("at_ms", [NOON - HOUR, NOON])
def test_a_clock_set_back_takes_nothing_away(at_ms):
    totals = totalled(entry("a", NOON, 3), entry("b", at_ms, 1), entry("a", NOON + HOUR, 0), entry("b", NOON + HOUR, 0))
    assert _added(totals.sums.values()).used == 4 * HOUR
