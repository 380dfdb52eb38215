"""The waits before what failed is tried again."""

from dag.run.retrying import RETRY_RULES, RetryRules


def test_the_wait_doubles_until_it_is_long_enough():
    bases = [2_000 << failures for failures in range(7)] + [300_000, 300_000]
    waits = [RETRY_RULES.wait_after_ms("r:a", failures) for failures in range(1, 10)]
    assert all(base <= wait < 1.5 * base for base, wait in zip(bases, waits, strict=True))


def test_the_jitter_is_the_same_each_time_and_not_the_same_for_everybody():
    waits = {RETRY_RULES.wait_after_ms(f"r:{node}", 1) for node in range(20)}
    assert waits == {RETRY_RULES.wait_after_ms(f"r:{node}", 1) for node in range(20)}
    assert len(waits) > 10


def test_ten_thousand_failures_wait_no_longer_than_the_longest():
    assert RETRY_RULES.wait_after_ms("r:a", 10_000) < 1.5 * RETRY_RULES.wait_max_ms


def test_who_is_told_not_to_wait_does_not():
    assert RetryRules(wait_ms=0).wait_after_ms("r:a", 3) == 0
