"""A program as a node: the worker's part. The program itself is a process group under a guard, see `mesh.ray.programs.guard`.

Its output goes to the worker's own files, so it is part of the run's log like all other output of a node.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray._private.ray_constants import RAY_INTERNAL_FLAGS
from ray.util.placement_group import PlacementGroup

from mesh.core.counting import counted
from mesh.core.functions import ARCHIVE_BYTES_MAX, FILES_MAX, described
from mesh.errors import ProgramFailed
from mesh.ray.programs import driver, guard
from mesh.ray.user_code.ownership import note_program

#: Time from the request to stop until the program is killed; seconds. Less than the grace period of nodes, after which the worker is.
GRACE_S = 1.5
_SHELL = ("/bin/sh", "-c")
_MODE = 16  #: Place of the file mode among the attributes of a file in an archive.


def run_program(command: str | Sequence[Any], *, working_dir: bytes | None = None, env_vars: Mapping[str, str] | None = None) -> int:
    """Run a command to its end; what it has started ends with it.

    Args:
        command: A line for the shell, or the command and its arguments.
        working_dir: Zip archive of the folder in which the command runs; None: an empty folder.
        env_vars: Further variables of its environment.

    Returns:
        0, its exit code.

    Raises:
        ProgramFailed: The exit code is not 0.
        ValueError: The archive is damaged or too large, or an argument is no text or number.
        KeyboardInterrupt: The node is cancelled or preempted; the program has been stopped.
    """
    words = [*_SHELL, command] if isinstance(command, str) else [_word(part) for part in command]
    folder = Path(tempfile.mkdtemp(prefix="schedulemesh-program-"))
    try:
        home = folder / "working_dir"
        home.mkdir()
        if working_dir is not None:
            unpack(working_dir, home)
        env = _environment(env_vars or {}, home, has_files=working_dir is not None)
        code = _run({"command": words, "cwd": str(home), "env": env, "folder": str(folder)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if code:
        raise ProgramFailed(code, f"{described(command)} {_end_in_words(code)}")
    return 0


def unpack(archive: bytes, home: Path) -> None:
    """Unpack a working directory. Raises ValueError if it is damaged, or larger than `ARCHIVE_BYTES_MAX` or `FILES_MAX`."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            infos = files.infolist()
            size = sum(info.file_size for info in infos)
            if size > ARCHIVE_BYTES_MAX or len(infos) > FILES_MAX:
                most = f"{ARCHIVE_BYTES_MAX >> 20} MiB in {FILES_MAX} files at most"
                raise ValueError(f"the working directory has {size >> 20} MiB in {counted(len(infos), 'file')}; {most}")
            for info in infos:
                path = files.extract(info, home)
                mode = info.external_attr >> _MODE & 0o777
                if mode and not info.is_dir():
                    os.chmod(path, mode | 0o600)  # noqa: PTH101  `extract` returns text
    except (zipfile.BadZipFile, EOFError, OSError) as damaged:
        raise ValueError(f"the working directory cannot be unpacked: {damaged}") from None


def _run(order: Mapping[str, Any]) -> int:
    """Run the guard with this order; return the program's exit code."""
    watched = subprocess.Popen([sys.executable, "-I", "-S", guard.__file__], stdin=subprocess.PIPE)
    assert watched.stdin is not None  # noqa: S101  it is a pipe
    try:
        with _dying(watched):
            watched.stdin.write(json.dumps(order).encode() + b"\n")
            watched.stdin.flush()
            return watched.wait()
    finally:
        watched.stdin.close()  # The guard kills what is left, if it has not ended.
        watched.wait()


@contextlib.contextmanager
def _dying(watched: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop the program when the block is left by an interrupt or by Ray's end of the worker: by SIGTERM, with `GRACE_S` for its end."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            assert watched.stdin is not None  # noqa: S101  it is a pipe
            watched.stdin.write(b"stop\n")
            watched.stdin.flush()
            watched.wait(GRACE_S)
        raise


def _word(part: Any) -> str:
    if isinstance(part, (str, int, float)) and not isinstance(part, bool):
        return str(part)
    raise ValueError(f"an argument of a program must be text or a number, not {part!r:.200} ({type(part).__name__})")


def _environment(env_vars: Mapping[str, str], home: Path, *, has_files: bool) -> dict[str, str]:
    """Return the program's environment: the worker's, with Ray's own settings of a driver as in a job of Ray."""
    env = {name: value for name, value in os.environ.items() if name not in RAY_INTERNAL_FLAGS}
    group = ray.util.get_current_placement_group()
    bundle = group.bundle_specs[0] if group is not None else {}
    env |= {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), env.get("PATH", os.defpath))),
        "PWD": str(home),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(max(1, int(bundle.get("CPU", 1)))),
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
    }
    if group is not None:
        env |= _devices(group, bundle)
        env |= driver.variables(group.id.hex(), note_program(), working_dir=str(home) if has_files else None)
    return {**env, **env_vars}


def _devices(group: PlacementGroup, bundle: Mapping[str, float]) -> dict[str, str]:
    """Return the variables that show the GPUs of the program's only bundle. Those of several bundles are for what the program starts."""
    if bundle.get("GPU", 0) < 1 or group.bundle_count > 1:
        return {}
    look = ray.remote(_visible_devices).options(num_cpus=0, num_gpus=bundle["GPU"], max_retries=0)
    found: dict[str, str] = ray.get(look.remote())
    return found


def _visible_devices() -> dict[str, str]:
    """Ray task: return the variables by which Ray shows this task its devices."""
    return {name: value for name, value in os.environ.items() if name.endswith("_VISIBLE_DEVICES")}


def _end_in_words(code: int) -> str:
    if code <= guard.SIGNALLED:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(code - guard.SIGNALLED).name
    except ValueError:
        return f"ended with exit code {code}"
    hint = "; the system may have had no memory left" if name == "SIGKILL" else ""
    return f"ended with exit code {code}, as by {name}{hint}"
