"""Leaders and workers for the tests of jobs. They wait for files, so tests control their progress."""

from __future__ import annotations

import os
import time
from pathlib import Path

import mesh


def wait_for(file):
    """Wait for the file, and stop on request: nothing waits for the end of a grace period."""
    task = mesh.current_task()
    while not Path(file).exists():
        time.sleep(0.02)
        task.stop_if_asked()


class Leader:
    """Leader that runs until the file exists, and records each start."""

    def __init__(self, folder):
        self.folder = Path(folder)
        note(self.folder, "leader")

    def address(self):
        return f"leader-of-{os.getpid()}:1"

    def run(self):
        wait_for(self.folder / "enough")
        return {"rank": os.environ["SCHEDULEMESH_RANK"], "size": os.environ["SCHEDULEMESH_WORLD_SIZE"]}


class PlainLeader(Leader):
    """Leader without an address of its own."""

    address = None

    def run(self):
        wait_for(self.folder / "enough")
        return os.environ["SCHEDULEMESH_LEADER_ADDRESS"]


class LeaderThatFails(Leader):
    def run(self):
        raise RuntimeError("the model is not to be found")


class Worker:
    """Worker that records its start and the leader's address, and runs until the file exists."""

    def __init__(self, folder):
        self.folder = Path(folder)
        note(self.folder, os.environ["SCHEDULEMESH_ROLE"])

    def run(self):
        wait_for(self.folder / "workers may end")
        return os.getpid()


def note(folder, role):
    """Append a line for this start: rank, process, and the leader's address."""
    line = f"{os.environ['SCHEDULEMESH_RANK']} {os.getpid()} {os.environ.get('SCHEDULEMESH_LEADER_ADDRESS', '')}\n"
    with (Path(folder) / f"{role}.started").open("a") as notes:
        notes.write(line)


def starts(folder, role):
    """Return the recorded starts: (rank, pid, address), oldest first."""
    notes = Path(folder) / f"{role}.started"
    if not notes.exists():
        return []
    return [(int(rank), int(pid), address) for rank, pid, address in (line.split(" ") for line in notes.read_text().splitlines())]
