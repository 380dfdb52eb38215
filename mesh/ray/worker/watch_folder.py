"""Folder in Ray's session through which a node's watchdog finds a mesh's workers: a file per process.

A worker writes its file before it runs the first line of a tenant's code. The file's name is the process' id, and its content the
process' `start_mark`, so that a later process with the same id is left alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil

from mesh.core.ids import MeshId
from mesh.ray.cluster.process import start_mark

#: Ray's session folder plus this must stay under the 107 bytes that a socket's path may have.
_SOCKET, _WORKERS, _LOCK, _PAGES = "s", "w", "lock", "p"


def watch_folder(mesh: MeshId) -> Path:
    """Return the folder of this mesh on the node of the calling Ray process; several nodes may share a machine."""
    import ray  # noqa: PLC0415  the watchdog does without: it takes half a second of a core, and 60 MB

    node = ray.get_runtime_context().get_node_id()
    session = ray._private.worker._global_node.get_session_dir_path()  # type: ignore[attr-defined]  # noqa: SLF001  Ray has no public name for it
    return Path(session, f"sm-{hashlib.sha256(f'{mesh}|{node}'.encode()).hexdigest()[:10]}")


def socket_of(folder: Path) -> Path:
    """Return the path of the watchdog's socket."""
    return folder / _SOCKET


def lock_of(folder: Path) -> Path:
    """Return the file that the folder's one watchdog has locked."""
    return folder / _LOCK


def workers_of(folder: Path) -> Path:
    """Return the folder of the workers' files."""
    return folder / _WORKERS


def pages_of(folder: Path) -> Path:
    """Return the folder of the workers' pages."""
    return folder / _PAGES


@cache
def register(mesh: MeshId) -> None:
    """Register this process with the watchdog of its node; once for each mesh that it works for."""
    enlist(watch_folder(mesh), os.getpid())


def enlist(folder: Path, pid: int) -> None:
    """Write a worker's file. Raises psutil.NoSuchProcess when the process has ended."""
    workers = workers_of(folder)
    workers.mkdir(parents=True, exist_ok=True)
    pending = workers / f".{pid}"
    pending.write_text(start_mark(pid))
    pending.rename(workers / str(pid))


def registered(folder: Path) -> Iterator[psutil.Process]:
    """Yield the live processes, and remove the files of dead ones. A process that may not be inspected is skipped until it may."""
    workers = workers_of(folder)
    for file in workers.iterdir() if workers.is_dir() else ():
        if not file.name.isdigit():
            continue
        try:
            process = psutil.Process(int(file.name))
            lives = start_mark(process.pid) == file.read_text() and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, FileNotFoundError):
            lives = False
        except (psutil.Error, OSError):
            continue
        if lives:
            yield process
        else:
            file.unlink(missing_ok=True)
