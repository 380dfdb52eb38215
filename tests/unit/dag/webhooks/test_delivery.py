"""Outcome of attempts, and the waits between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dag.webhooks.delivery import WAIT_MS, WAIT_MS_MAX, Attempt, Verdict, verdict_of, wait_ms, words_of

NEW_LIMIT = 10


@pytest.mark.parametrize(
    ("status", "attempts", "verdict"),
    [
        pytest.param(200, 1, Verdict.DELIVERED, id="OK"),
        pytest.param(204, NEW_LIMIT, Verdict.DELIVERED, id="no content, at the last attempt"),
        pytest.param(301, 1, Verdict.RETRY, id="a redirect, which is not followed"),
        pytest.param(400, 1, Verdict.RETRY, id="a refusal, which the receiver may correct"),
        pytest.param(410, 1, Verdict.DEAD, id="gone for good"),
        pytest.param(503, NEW_LIMIT - 1, Verdict.RETRY, id="away, with an attempt left"),
        pytest.param(503, NEW_LIMIT, Verdict.DEAD, id="away at the last attempt"),
        pytest.param(None, 1, Verdict.RETRY, id="no response"),
        pytest.param(None, NEW_LIMIT, Verdict.DEAD, id="no response at the last attempt"),
    ],
)
def test_outcome_of_an_attempt(status, attempts, verdict):
    assert verdict_of(Attempt(status=status), attempts, NEW_LIMIT) is verdict


@given(st.text(max_size=40), st.integers(1, 100), st.integers(0, 10 * WAIT_MS_MAX))
def test_wait_is_bounded_and_not_shorter_than_the_receiver_asks(message, attempts, asked_ms):
    waited_ms = wait_ms(message, attempts, asked_ms)
    assert min(asked_ms, WAIT_MS_MAX) <= waited_ms <= WAIT_MS_MAX
    assert waited_ms >= WAIT_MS // 2


@given(st.text(max_size=40), st.integers(1, 100))
def test_waits_grow_and_are_the_same_after_a_restart(message, attempts):
    assert wait_ms(message, attempts) == wait_ms(message, attempts)
    assert wait_ms(message, attempts) <= wait_ms(message, attempts + 1) or wait_ms(message, attempts) >= WAIT_MS_MAX * 4 // 5


def test_failure_is_described():
    assert words_of(Attempt(status=503)) == "HTTP 503"
    assert words_of(Attempt(status=302)) == "HTTP 302; redirects are not followed"
    assert words_of(Attempt(failure="no status within 10 s")) == "no status within 10 s"
