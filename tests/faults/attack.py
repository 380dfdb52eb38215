"""Attack of a tenant's task on everything else on its machine; sent by value, so it imports only Ray and redis.

`attack` returns what it reached in the words of the table in docs/security.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
import redis

#: Part of the actor's name.
CONTROL_PLANE = {
    "#Gateway#": "gateway",
    "#Coordinator#": "coordinator",
    "SERVE_CONTROLLER": "Serve controller",
}
#: Limit of one try before it counts as not reached; Ray refuses a stranger after 20 s.
TRY_S = 60.0


def attack(victim: str, words: str, settings_file: str, addresses: list[str]) -> list[str]:
    """Return everything that was reached, in order.

    Args:
        victim: Tenant whose work runs meanwhile.
        words: Content of one of its values.
        settings_file: Settings of the root. An attacker reads them and the addresses off the command lines in `/proc`; here they
            are passed in, so that other stacks on the machine are left alone.
        addresses: Addresses of all Ray clusters of the stack.
    """
    actors = dict(_actors())
    reached = {kind for name, actor in actors.items() for mark, kind in CONTROL_PLANE.items() if mark in name and _ask(actor, _pid)}
    if any(_reaches_mesh(actor) for name, actor in actors.items() if "/runner/" in name and _ask(actor, _tenant)):
        reached.add("process of its own mesh")
    runners = [actor for name, actor in actors.items() if "/runner/" in name and _ask(actor, _tenant) == victim]
    if runners:
        reached.add("runner of another tenant")
    if any(_ask(runner, _holds, words) for runner in runners):
        reached.add("value of another tenant in its runner")
    with contextlib.suppress(OSError):
        settings = json.loads(Path(settings_file).read_text())
        reached.add("`settings/root.json`")
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(settings["redis_url"], socket_timeout=TRY_S) as client:
            client.ping()
            reached.add("Redis")
    tokens = Path(settings_file).parents[1] / "tokens"
    if any(_enters(address, tokens) for address in addresses if not _is_own(address)):
        reached.add("another Ray cluster of the machine")
    ended = [_end(runner) for runner in runners]
    if any(ended):
        reached.add("end of another tenant's runner")
    return sorted(reached)


def _actors() -> Iterator[tuple[str, Any]]:
    """Return every named actor of this task's cluster, in any namespace."""
    for actor in ray.util.list_named_actors(all_namespaces=True):
        with contextlib.suppress(ValueError):  # It has ended since.
            yield actor["name"], ray.get_actor(actor["name"], namespace=actor["namespace"])


def _ask(actor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the function's result from inside the actor; None if it did not run."""
    try:
        return ray.get(actor.__ray_call__.remote(function, *arguments), timeout=TRY_S)
    except ray.exceptions.RayError:
        return None


def _pid(_actor: Any) -> int:
    return os.getpid()


def _die(_actor: Any) -> None:
    os._exit(1)


def _tenant(runner: Any) -> str:
    return str(runner._tenant)


class _Answer:
    """Answer whose unpickling runs code: it notes the reader's process id and becomes an empty list."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (f"(__import__('pathlib').Path({self._file!r}).write_text(str(__import__('os').getpid())), [])[1]",)


def _reaches_mesh(runner: Any) -> bool:
    """Return whether the runner's answer runs code in its mesh."""
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder, "pid")
        _ask(runner, _answer_once, str(noted))
        until = time.monotonic() + TRY_S
        while not (noted.exists() and noted.read_text()):
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return "serve_apps.child_process" in Path("/proc", noted.read_text(), "cmdline").read_text()


def _answer_once(runner: Any, file: str) -> None:
    outbox = type(runner._outbox)
    take = outbox.take

    def answer(*_asked: Any, **_more: Any) -> Any:
        outbox.take = take
        return _Answer(file)

    outbox.take = answer


def _holds(runner: Any, words: str) -> bool:
    held = [value for values in runner._engine._values._held.values() for value in values.values()]
    references = [value for value in held if isinstance(value, ray.ObjectRef)]
    small = [value for value in held if not isinstance(value, ray.ObjectRef)]  # Bytes, as the worker serialized them.
    return any(words in repr(value) for value in small) or any(words in repr(value) for value in ray.get(references, timeout=TRY_S))


def _end(runner: Any) -> bool:
    was_there = _ask(runner, _pid) is not None
    _ask(runner, _die)
    return was_there and _ask(runner, _pid) is None


def _is_own(address: str) -> bool:
    """Return whether the address is this cluster's, by its port: Ray may name the host otherwise."""
    return ray.get_runtime_context().gcs_address.rpartition(":")[2] == address.rpartition(":")[2]


def _enters(address: str, tokens: Path) -> bool:
    """Try to enter with everything that this process was given and each token that it can read."""
    script = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); assert ray.nodes()"
    shown = [{}]
    with contextlib.suppress(OSError):
        shown += [{"RAY_AUTH_TOKEN": file.read_text()} for file in tokens.iterdir()]
    for variables in shown:
        with contextlib.suppress(subprocess.TimeoutExpired):
            environment = {**os.environ, **variables}
            entered = subprocess.run(
                [sys.executable, "-c", script, address], env=environment, check=False, capture_output=True, timeout=TRY_S
            )
            if entered.returncode == 0:
                return True
    return False
