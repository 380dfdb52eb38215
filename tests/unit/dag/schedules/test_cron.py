"""Times of cron expressions: names of fields, changes of clocks, wrong input."""

from datetime import datetime

import pytest

from dag.schedules.cron import last_time_ms, next_time_ms, problem_of_cron, problem_of_timezone

BERLIN, UTC = "Europe/Berlin", "UTC"


def ms(text):
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000)


def times(cron, zone, after, count):
    found = [ms(after)]
    while len(found) <= count:
        found.append(next_time_ms(cron, zone, found[-1]))
    return found[1:]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        pytest.param("0 3 * * 1-5", UTC, "2026-11-27T03:00", ["2026-11-30T03:00"], id="over the weekend"),
        pytest.param("0 3 * * MON", UTC, "2026-11-27T03:00", ["2026-11-30T03:00"], id="a day by name"),
        pytest.param("0 0 1,15 * *", UTC, "2026-11-02T00:00", ["2026-11-15T00:00", "2026-12-01T00:00"], id="days of a month"),
        pytest.param("0 0 29 2 *", UTC, "2026-01-01T00:00", ["2028-02-29T00:00"], id="a leap day"),
        pytest.param("0 0 L * *", UTC, "2026-02-01T00:00", ["2026-02-28T00:00", "2026-03-31T00:00"], id="the last day"),
        pytest.param("*/20 * * * *", UTC, "2026-01-01T00:41", ["2026-01-01T01:00", "2026-01-01T01:20"], id="steps"),
        # Clocks in Berlin go from 02:00 to 03:00 on 2026-03-29 at 01:00 UTC.
        pytest.param("30 2 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"], id="a skipped time comes late"),
        pytest.param("15,45 2 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:15"], id="two skipped are one"),
        pytest.param("30 * * * *", BERLIN, "2026-03-29T00:00", ["2026-03-29T00:30", "2026-03-29T01:30"], id="each hour in a gap"),
        # Clocks in Berlin go from 03:00 back to 02:00 on 2026-10-25 at 01:00 UTC.
        pytest.param("30 2 * * *", BERLIN, "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"], id="a repeated time comes once"),
        pytest.param("30 2 * * *", BERLIN, "2026-10-25T01:15", ["2026-10-26T01:30"], id="asked in the second pass"),
        pytest.param(
            "30 * * * *", BERLIN, "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"], id="each hour in a fold"
        ),
    ],
)
def test_the_next_times_are(cron, zone, after, expected):
    assert times(cron, zone, after, len(expected)) == [ms(time) for time in expected]


def test_a_time_that_never_comes_again_is_none():
    assert next_time_ms("0 0 30 2 *".replace("30", "29"), UTC, ms("2026-01-01T00:00")) is not None
    assert last_time_ms("0 0 29 2 *", UTC, ms("2026-01-01T00:00"), ms("2027-01-01T00:00")) is None


def test_the_last_time_is_found_after_years():
    assert last_time_ms("* * * * *", BERLIN, 0, ms("2026-11-28T12:00:59")) == ms("2026-11-28T12:00")
    assert last_time_ms("0 0 1 1 *", UTC, 0, ms("2026-11-28T12:00")) == ms("2026-01-01T00:00")


@pytest.mark.parametrize("until", ["2026-11-28T02:59", "2026-11-27T03:00", "2026-11-20T00:00"])
def test_no_time_comes_before_the_next_one(until):
    assert last_time_ms("0 3 * * *", UTC, ms("2026-11-27T03:00"), ms(until)) is None


@pytest.mark.parametrize(
    "cron", ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "a b c d e", "*/0 * * * *", "5-1 * * * *", "0 0 31 2 *", "* " * 99]
)
def test_wrong_expressions_have_a_problem(cron):
    assert "cron expression" in (problem_of_cron(cron) or "") or "never comes" in (problem_of_cron(cron) or "")


@pytest.mark.parametrize("zone", ["", "Mars", "Europe", "../UTC", "/etc/localtime", "UTC\0", "x" * 300])
def test_wrong_zones_have_a_problem(zone):
    assert "time zone" in (problem_of_timezone(zone) or "")


def test_right_input_has_no_problem():
    assert (problem_of_cron("0 3 * * 1-5"), problem_of_timezone(BERLIN), problem_of_timezone(UTC)) == (None, None, None)
