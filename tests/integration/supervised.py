"""Classes that tasks are made of, shared by tests of the supervisor."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Counter:
    """Counter that knows its process."""

    def __init__(self, start=0):
        self.value = start

    def add(self, amount=1):
        self.value += amount
        return self.value

    def pid(self):
        return os.getpid()


class Gated:
    """Class whose constructor waits for a file."""

    def __init__(self, gate):
        while not Path(gate).exists():
            time.sleep(0.02)

    def pid(self):
        return os.getpid()


class Looper:
    """Loop to `steps` with a checkpoint each. Before the last step it waits for the file `gate`, and stops on request."""

    def run(self, steps, gate=None, pause_s=0.02):
        import mesh

        task = mesh.current_task()
        first = task.last_checkpoint() or 0
        for step in range(first, steps):
            while gate is not None and step == steps - 1 and not Path(gate).exists():
                time.sleep(pause_s)
                task.stop_if_asked()
            time.sleep(pause_s)
            task.save_checkpoint(step + 1)
        return first, steps


class Broken:
    """Class whose constructor raises."""

    def __init__(self):
        raise ValueError("the model file is missing")
