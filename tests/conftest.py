"""What holds for all tests."""

import signal

from hypothesis import settings

pytest_plugins = ("faults.table",)

# Shells have what they start in the background ignore SIGINT, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's business: a law says what holds, and not how soon.
settings.register_profile("patient", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("patient")
