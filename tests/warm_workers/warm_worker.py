"""Worker processes of Ray, forked from one that has imported Ray: each costs 0.1 s of a core instead of a whole one.

Tests start a thousand workers. The raylet starts each as ever, by a command. The first process of a node imports what workers import,
and stays; it forks one process for every worker that the raylet starts with the same environment. The forked process goes on as
`default_worker.py` with the arguments of the worker, and the process that the raylet has started ends. Ray knows a worker by the process
that registers.

A process that cannot be replaced becomes the worker by itself, as without this module.
"""

from __future__ import annotations

import array
import contextlib
import gc
import hashlib
import importlib
import os
import pickle
import select
import signal
import socket
import sys
from typing import Any

#: Modules that a worker imports before any code of the user's.
_IMPORTED = (
    "ray",
    "ray.actor",
    "ray._private.node",
    "ray._private.workers.default_worker",
    "mesh.ray.local.agent.agent",
    "mesh.ray.stage_runner.runner",
)
_DESCRIPTORS = (0, 1, 2)
_MESSAGE_BYTES_MAX = 200_000


def start() -> None:
    """Return in a process that is to go on as the worker of this one's arguments."""
    raylet = os.getppid()
    # The name vanishes with the process, and says for whom it forks.
    name = f"\0warm-worker-{raylet}-{hashlib.sha256(repr((sys.path, sorted(os.environ.items()))).encode()).hexdigest()}"
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.bind(name)
        except OSError:  # Another one has.
            connection.connect(name)
            _be_replaced(connection)
        else:
            connection.listen(100)
            _fork_others(connection, raylet)


def _be_replaced(connection: socket.socket) -> None:
    """End when a forked process has taken the place of this one."""
    message = pickle.dumps((sys.argv, os.getpgrp()))
    connection.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", _DESCRIPTORS))])
    if connection.recv(1):
        os._exit(0)


def import_all() -> None:
    """Import what workers import, without a random id of Ray's.

    Ray seeds its random ids when a process draws the first. Forked processes would share that seed and give different objects one id, and
    Ray ends the second of two workers that do. `ray.remote(Class)` draws an id at import.
    """
    import ray.actor

    ids = ray.actor.ActorClassID
    ray.actor.ActorClassID = _RandomIds(ids)
    try:
        for module in _IMPORTED:
            importlib.import_module(module)
    finally:
        ray.actor.ActorClassID = ids


class _RandomIds:
    """A kind of Ray's ids that draws from the operating system."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def from_random(self) -> Any:
        """Return a random id."""
        return self._kind(os.urandom(self._kind.size()))


def _fork_others(listener: socket.socket, raylet: int) -> None:
    """Fork until the raylet ends; return in the forked processes."""
    import_all()
    node = os.pidfd_open(raylet)
    gc.freeze()
    if os.fork() == 0:
        os.close(node)
        return
    # The raylet kills the group of each worker's process. The first worker has this one's.
    os.setpgid(0, os.getpgid(raylet))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody else reaps.
    while node not in select.select((listener, node), (), ())[0]:
        connection, _ = listener.accept()
        with connection:
            message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES_MAX, len(_DESCRIPTORS))
            if os.fork() == 0:
                os.close(node)
                _replace(connection, message, descriptors)
                return
            for descriptor in descriptors:
                os.close(descriptor)
    os._exit(0)


def _replace(connection: socket.socket, message: bytes, descriptors: list[int]) -> None:
    """Take the arguments, the group and the open files of the process that the raylet has started."""
    sys.argv[:], group = pickle.loads(message)  # noqa: S301  from the same user and environment
    os.setpgid(0, group)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for own, descriptor in zip(_DESCRIPTORS, descriptors, strict=True):
        os.dup2(descriptor, own)
        os.close(descriptor)
    connection.send(b"x")
