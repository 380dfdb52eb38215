"""The Lua verbs: read from their folder, called by hash, their errors told in this project's words.

A verb is a file `<verb>.lua`. Its first line may say `-- needs: keys, clock`: the pieces `lib_keys.lua` and
`lib_clock.lua` of the same folder are put before it, each once, and what they need themselves before them.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, cast

import redis
import redis.exceptions

from federation.errors import StoreUnavailable
from mesh.errors import RuntimeDoorError

_NEEDS = re.compile(r"\A-- needs: (?P<names>[a-z_, ]+)\n")
#: Answers of a server that is there and cannot serve now: loading, a replica, out of memory, disk full, in election.
_NOT_NOW = re.compile(r"\b(LOADING|BUSY|READONLY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN)\b")


@contextmanager
def redis_answers(what: str) -> Iterator[None]:
    """Turn redis-py's errors into this project's.

    Raises:
        StoreUnavailable: No answer in the client's time, or the server cannot serve now. The command may have taken effect.
        RuntimeDoorError: The server refused the command itself.
    """
    try:
        yield
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as gone:
        raise StoreUnavailable(f"{what}: Redis does not answer: {gone}") from gone
    except redis.exceptions.RedisError as refused:
        if _NOT_NOW.search(str(refused)):
            raise StoreUnavailable(f"{what}: Redis cannot serve now: {refused}") from refused
        raise RuntimeDoorError(f"{what}: Redis refused the command: {refused}; is it a server of 6.2 or later?") from refused


@cache
def source(package: str, verb: str) -> str:
    """The verb with the pieces that it needs before it."""
    return "\n".join((files(package) / f"{name}.lua").read_text(encoding="utf-8") for name in _in_order(package, verb))


def _in_order(package: str, name: str) -> list[str]:
    """The file and all that it needs, every file after what it needs itself."""
    order: list[str] = []
    header = _NEEDS.match((files(package) / f"{name}.lua").read_text(encoding="utf-8"))
    for need in header["names"].split(",") if header else ():
        order.extend(piece for piece in _in_order(package, f"lib_{need.strip()}") if piece not in order)
    return [*order, name]


class Scripts:
    """The verbs of one folder on one server, each called with the same keys.

    Args:
        client: Gives the time in which a call must be answered, and its retries; every verb is safe to repeat.
        keys: `KEYS` of every verb.
        package: The package whose folder holds the files.
    """

    def __init__(self, client: "redis.Redis", keys: tuple[str, ...], package: str = "federation.store.lua") -> None:
        self._client = client
        self._keys = keys
        self._package = package
        self._hashes: dict[str, str] = {}

    def call(self, verb: str, *arguments: str | bytes | int) -> Any:
        """The verb's reply, as redis-py gives it: text as bytes.

        Raises:
            StoreUnavailable: Redis does not answer.
            RuntimeDoorError: The script failed.
        """
        text = source(self._package, verb)
        sha = self._hashes.get(verb) or self._hashes.setdefault(verb, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
        with redis_answers(verb):
            try:
                return self._client.evalsha(sha, len(self._keys), *self._keys, *arguments)
            except redis.exceptions.NoScriptError:  # A new server, or one that was restarted: EVAL loads it as well.
                return self._client.eval(text, len(self._keys), *self._keys, *arguments)


def pairs(flat: Any) -> dict[bytes, bytes]:
    """A hash as a script replies it: name, value, name, value, …"""
    items = cast(list[bytes], flat)
    return dict(zip(items[::2], items[1::2], strict=True))
