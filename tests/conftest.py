"""What holds for all tests."""

import signal

pytest_plugins = ("faults.table",)

# Shells have what they start in the background ignore SIGINT, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
