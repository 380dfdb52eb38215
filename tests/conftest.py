"""What holds for all tests."""

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ("faults.table",)

# Shells have what they start in the background ignore SIGINT, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes to make or to look at is the machine's business: a law says what holds, and not how soon.
settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# What a change is refused for is what it did, so the same code gets the same examples each time. `make fresh` looks for others.
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("same")
