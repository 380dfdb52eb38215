"""Common parts of the stack's processes: logs, the ready line, an orderly end on SIGTERM."""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TextIO

import structlog

from mesh.observability.trace_context import TRACES

#: First line of output when a process is ready; a JSON object follows.
READY = "READY "
_GARBAGE_LOOK = 100_000


def configure_logging(stream: TextIO | None = None) -> None:
    """Log one line per event to stderr, which the parent writes to a file, or to the stream."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            TRACES.add_trace_id,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
    )


def collect_seldom() -> None:
    """Run the cyclic garbage collector only after a hundred thousand new objects, and never over the objects that exist now.

    A planner round makes that many objects and hardly a cycle. Walking all live objects after every few hundred took up to half of
    the round's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_LOOK, *gc.get_threshold()[1:])


class Stop(threading.Event):
    """Event that SIGTERM and SIGINT set."""

    by: int | None = None  #: The first signal; None: none has come.

    @property
    def is_interrupt(self) -> bool:
        """Whether Ctrl-C set it."""
        return self.by == signal.SIGINT


def stop_on_signals(wake: Callable[[], None] | None = None) -> Stop:
    """Return an event that SIGTERM and SIGINT set; `wake` is also called then, for threads that wait for something else.

    Call this after `ray.init`, which installs its own SIGTERM handler.
    """
    stop = Stop()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.by = stop.by or number
        stop.set()
        if wake is not None:
            wake()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def report_ready(**facts: object) -> None:
    """Print the ready line for the parent."""
    sys.stdout.write(READY + json.dumps(facts) + "\n")
    sys.stdout.flush()
