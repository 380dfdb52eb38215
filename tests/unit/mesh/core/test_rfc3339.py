"""Times as RFC 3339 text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.core.clock import LAST_MS, clock_time, moment, ms_of, rfc3339


@given(st.integers(0, LAST_MS))
def test_a_time_comes_back_from_its_text(at_ms):
    text = rfc3339(at_ms)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert ms_of(text) == at_ms


@given(st.lists(st.integers(0, LAST_MS), min_size=2))
def test_texts_sort_as_their_times(times):
    assert sorted(map(rfc3339, times)) == [rfc3339(at_ms) for at_ms in sorted(times)]


def test_a_time_after_all_texts_is_the_last():
    assert rfc3339(1 << 60) == rfc3339(LAST_MS) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00Z", 0),
        ("1970-01-01t00:00:00.0015z", 1),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T01:00:00.123456789+01:00", 123),
    ],
)
def test_other_forms_are_read(text, at_ms):
    assert ms_of(text) == at_ms


def test_people_read_days_and_times_in_utc():
    assert (moment(3_661_999), clock_time(3_661_999)) == ("1970-01-01 01:01:01Z", "01:01:01Z")


@pytest.mark.parametrize("text", ["1970-01-01T00:00:00", "yesterday", ""])
def test_what_names_no_moment_is_refused(text):
    with pytest.raises(ValueError, match=r"UTC|is no time"):
        ms_of(text)
