"""Backoff before a retry."""

from dag.run.retrying import RETRY_RULES, RetryRules


def test_the_wait_doubles_until_it_is_long_enough():
    bases = [2_000 << failures for failures in range(7)] + [300_000, 300_000]
    waits = [RETRY_RULES.wait_after_ms("r:a", failures) for failures in range(1, 10)]
    assert all(base <= wait < 1.5 * base for base, wait in zip(bases, waits, strict=True))


def test_jitter_is_deterministic_and_differs_by_key():
    waits = {RETRY_RULES.wait_after_ms(f"r:{node}", 1) for node in range(20)}
    assert waits == {RETRY_RULES.wait_after_ms(f"r:{node}", 1) for node in range(20)}
    assert len(waits) > 10


def test_ten_thousand_failures_wait_no_longer_than_the_longest():
    assert RETRY_RULES.wait_after_ms("r:a", 10_000) < 1.5 * RETRY_RULES.wait_max_ms


def test_a_pause_of_zero_is_no_wait():
    assert RetryRules(wait_ms=0).wait_after_ms("r:a", 3) == 0
