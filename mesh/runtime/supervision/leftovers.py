"""What a task's code leaves in its process when it ends: threads and child processes. Such a process hosts nobody else."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Inhabitants:
    """Threads and child processes at one moment."""

    threads: frozenset[int]  #: By Python's identity of the thread object's id.
    children: frozenset[int]  #: Process ids.

    @classmethod
    def look(cls) -> Inhabitants:
        """Those of now."""
        return cls(frozenset(thread.ident or 0 for thread in _threads()), frozenset(child.pid for child in _children()))

    def newcomers(self) -> str:
        """Those who have come since and are still there, in words; empty when there are none."""
        threads = [thread.name for thread in _threads() if (thread.ident or 0) not in self.threads]
        children = [str(child.pid) for child in _children() if child.pid not in self.children]
        told = []
        if threads:
            told.append(f"the task left threads: {', '.join(sorted(threads))}")
        if children:
            told.append(f"the task left child processes: {', '.join(sorted(children))}")
        return "; ".join(told)


def _threads() -> list[threading.Thread]:
    # Threads of Ray that enter Python for a call are dummies, and not the task's.
    return [thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)]  # noqa: SLF001 - the type has no public name


def _children() -> list[psutil.Process]:
    if not _has_children():
        return []  # As a rule. Asking for their names reads the whole process table, milliseconds that a preemptor would wait for.
    return [child for child in psutil.Process().children() if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def _has_children() -> bool:
    """Does any child process exist, ended or not? One system call, which takes nothing away from whoever waits for the child."""
    if not hasattr(os, "waitid"):
        return True  # macOS: somebody has to look.
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
