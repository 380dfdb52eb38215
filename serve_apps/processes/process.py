"""What every process of the stack has in common: settings by file, readiness by one line, an orderly end on SIGTERM."""

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

#: The line by which a process tells its parent that it is ready; a JSON object follows.
READY = "READY "
_GARBAGE_LOOK = 100_000


def configure_logging(stream: TextIO | None = None) -> None:
    """One line per event to stderr, which the parent keeps in a file; or to the stream."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
    )


def collect_seldom() -> None:
    """Look for circular garbage once in a hundred thousand new objects.

    A round of the planner makes as many, and hardly a circle; to walk all that lives after every few hundred of them was up to
    half of its time. What lives now is not looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_LOOK, *gc.get_threshold()[1:])


def stop_on_signals(wake: Callable[[], None] | None = None) -> threading.Event:
    """An event that SIGTERM and SIGINT set; `wake` is called then, for whoever waits for something else.

    Call it after `ray.init`, which takes SIGTERM for itself.
    """
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        if wake is not None:
            wake()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def tell_ready(**facts: object) -> None:
    """Tell the parent."""
    sys.stdout.write(READY + json.dumps(facts) + "\n")
    sys.stdout.flush()
