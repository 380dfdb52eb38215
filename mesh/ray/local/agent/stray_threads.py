"""Stray threads and child processes that a task's code leaves behind. A process with any hosts no further task."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class StrayThreads:
    """Threads and child processes at one moment."""

    threads: frozenset[int]  #: The `id` of each thread object.
    children: frozenset[int]  #: Process ids.

    @classmethod
    def look(cls) -> StrayThreads:
        return cls(frozenset(thread.ident or 0 for thread in _threads()), frozenset(child.pid for child in _children()))

    def newcomers(self) -> str:
        """Return text about those started since and still alive; empty when there are none."""
        threads = [thread.name for thread in _threads() if (thread.ident or 0) not in self.threads]
        children = [str(child.pid) for child in _children() if child.pid not in self.children]
        problems = []
        if threads:
            problems.append(f"the task left threads: {', '.join(sorted(threads))}")
        if children:
            problems.append(f"the task left child processes: {', '.join(sorted(children))}")
        return "; ".join(problems)


def _threads() -> list[threading.Thread]:
    # Ray's threads that enter Python for a call are dummies, and not the task's.
    return [thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)]  # noqa: SLF001 - the type has no public name


def _children() -> list[psutil.Process]:
    if not _has_children():
        return []  # The usual case. Names require reading the whole process table, milliseconds that a preemptor would wait for.
    return [child for child in psutil.Process().children() if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def _has_children() -> bool:
    """Return whether a child process exists, ended or not. One system call, which leaves the child to its waiter."""
    if not hasattr(os, "waitid"):
        return True  # macOS has no such call; look for children instead.
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
