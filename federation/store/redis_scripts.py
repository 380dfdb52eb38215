"""The Lua verbs: read from their folder, called by name or by hash, their errors told in this project's words.

A verb is a file `<verb>.lua`. Its first line may say `-- needs: keys, clock`: the pieces `lib_keys.lua` and
`lib_clock.lua` of the same folder, or else of this package's, are put before it, each once, and what they need themselves before them. Of
the functions there only those stay that the verb reaches, and of keys that are named one by one (`local META = KEYS[1]`) a
verb is given those that its whole text names: each costs with every call.

A server whose memory is full refuses every verb but those that say otherwise: `-- on a full server: passes` stands in what keeps
sessions alive, gives back and takes back, `reads only` in what writes nothing.

From Redis 7 on, all verbs of a folder are one library of functions, that the server keeps, replicates, and guards by its
access rules; before that they are scripts, called by their hash. The text is the same, but that a function needs no `lib_full.lua`,
and that one whose verb says `-- remembers its look` finds in `LOOKS` what it has put there in an earlier call: for a script, and
for all other verbs, `LOOKS` is empty each time. A library carries a digest of its
text in its name, so roots of two versions stand side by side; where these differ in what they write, the number of their
schema differs as well, and data of another schema are refused by every verb.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, cast

import redis
import redis.exceptions

from federation.errors import LedgerUninitialised, SchemaMismatch, StoreUnavailable
from federation.store.keys import SCHEMA
from mesh.errors import RuntimeDoorError

_NEEDS = re.compile(r"\A-- needs: (?P<names>[a-z_, ]+)\n")
_ON_FULL = re.compile(r"^-- on a full server: (?P<does>passes|reads only)\n", re.MULTILINE)
#: Of functions; scripts have `lib_full.lua`.
_FLAGS = {"passes": "'allow-oom'", "reads only": "'no-writes'", "": ""}
#: In `lib_keys.lua`: the name of a key and its place among all keys.
_KEY = re.compile(r"^local (?P<name>[A-Z_]+) = KEYS\[(?P<place>\d+)\]\n", re.MULTILINE)
_COMMENT, _QUOTED = re.compile(r"--.*"), re.compile(r"'[^'\n]*'")
_REMEMBERS = re.compile(r"^-- remembers its look$", re.MULTILINE)
#: At the top level: from its first line to the next `end` at the margin.
_FUNCTION = re.compile(r"^local function (?P<name>\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
#: Answers of a server that is there and cannot serve now: loading, a replica, out of memory, disk full, in election; or that
#: does not let us now, for somebody takes our rights away, or changes them, while we run.
_NOT_NOW = re.compile(r"\b(LOADING|BUSY|READONLY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOPERM|ACL failure)\b")
#: The same, where redis-py tells by the class and keeps the word to itself.
_NOT_NOW_KINDS = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.NoPermissionError,
    # Of a cluster: down, in election, a slot on its way from one node to another, or nobody there.
    redis.exceptions.ClusterError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AskError,
    redis.exceptions.RedisClusterException,
)
#: Whatever redis-py raises: what it has to say of a cluster is no `RedisError`.
ANY_ERROR = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException)
#: Where the pieces are that other folders share.
_SHARED = "federation.store.lua"
_NO_FUNCTION = "Function not found"
#: The first version of Redis that has functions.
_FUNCTIONS_SINCE = 7


@contextmanager
def redis_answers(what: str) -> Iterator[None]:
    """Turn redis-py's errors into this project's.

    Raises:
        StoreUnavailable: No answer in the client's time, or the server cannot serve now. The command may have taken effect.
        RuntimeDoorError: The server refused the command itself.
    """
    try:
        yield
    except ANY_ERROR as error:
        raise _told_by(what, error) from error


def _told_by(what: str, error: Exception) -> StoreUnavailable | RuntimeDoorError:
    if isinstance(error, (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)):
        return StoreUnavailable(f"{what}: Redis does not answer: {error}")
    if "NOREPLICAS" in str(error):
        return StoreUnavailable(f"{what}: Redis has too few replicas that keep up, and takes no writes until they are back: {error}")
    if isinstance(error, _NOT_NOW_KINDS) or _NOT_NOW.search(str(error)):
        return StoreUnavailable(f"{what}: Redis cannot serve now: {error}")
    return RuntimeDoorError(f"{what}: Redis refused the command: {error}; is it a server of 6.2 or later?")


@cache
def source(package: str, verb: str) -> str:
    """The verb with the pieces that it needs before it, and the keys that it names under the places that it is given them at."""
    return _placed(package, verb, f"local LOOKS = {{}}\n{_whole(package, verb)}")


def _placed(package: str, verb: str, text: str) -> str:
    """The text, after the schema, with the keys under the places that the verb is given them at."""
    text = f"local SCHEMA = '{SCHEMA}'\n{text}"
    places = key_places(package, verb)
    if places is None:
        return text
    kept = {place: number for number, place in enumerate(places, start=1)}
    return _KEY.sub(lambda key: f"local {key['name']} = KEYS[{kept[int(key['place'])]}]\n" if int(key["place"]) in kept else "", text)


@cache
def key_places(package: str, verb: str) -> tuple[int, ...] | None:
    """Places, from 1, of the keys that the verb names; None: it is given all, as it does not name them one by one."""
    text = _whole(package, verb)
    named = {key["name"]: int(key["place"]) for key in _KEY.finditer(text)}
    used = set(re.findall(r"[A-Z_]+", _QUOTED.sub("", _COMMENT.sub("", _KEY.sub("", text)))))
    return tuple(place for name, place in named.items() if name in used) if named else None


@cache
def _whole(package: str, verb: str, *, without: str = "") -> str:
    return _reached("\n".join(_text(package, name) for name in _in_order(package, verb) if name != without))


def _reached(text: str) -> str:
    """Without the functions that nothing names: a script makes all that it has anew with every call.

    Each piece's words are found once: every process does this before its first word to the server, and a mesh that comes back to
    its work has no second to lose.
    """
    functions = {function.span(): function["name"] for function in _FUNCTION.finditer(text)}
    words = {span: _words(text[slice(*span)]) for span in functions}
    ends, starts = [0, *(end for _, end in functions)], [*(start for start, _ in functions), len(text)]
    between = list(zip(ends, starts, strict=True))
    outside = _words("\n".join(text[slice(*span)] for span in between))
    dropped: set[tuple[int, int]] = set()
    while unnamed := {
        span
        for span, name in functions.items()
        if span not in dropped
        and name not in outside
        and not any(name in words[other] for other in functions if other != span and other not in dropped)
    }:
        dropped |= unnamed
    return "".join(text[slice(*span)] for span in sorted([*(functions.keys() - dropped), *between]))


@cache
def _words(text: str) -> frozenset[str]:
    """All of the code; what only a comment names is not needed. Most verbs share most of their functions."""
    return frozenset(re.findall(r"\w+", _COMMENT.sub("", text)))


def verbs(package: str) -> tuple[str, ...]:
    """The verbs of a folder, in order."""
    names = (file.name for file in files(package).iterdir())
    return tuple(sorted(name.removesuffix(".lua") for name in names if name.endswith(".lua") and not name.startswith("lib_")))


def on_full_server(package: str, verb: str) -> str:
    """What the verb does on a server whose memory is full: `passes`, `reads only`, or is refused: nothing."""
    said = _ON_FULL.search(_text(package, verb))
    return said["does"] if said is not None else ""


@cache
def _text(package: str, name: str) -> str:
    """The file of the folder; a piece that it has none of is this package's."""
    file = files(package) / f"{name}.lua"
    return (file if file.is_file() else files(_SHARED) / f"{name}.lua").read_text(encoding="utf-8")


def _in_order(package: str, name: str) -> list[str]:
    """The file and all that it needs, every file after what it needs itself."""
    order: list[str] = []
    header = _NEEDS.match(_text(package, name))
    needs = header["names"].split(",") if header else []
    for need in ["full", *needs] if on_full_server(package, name) == "passes" else needs:
        order.extend(piece for piece in _in_order(package, f"lib_{need.strip()}") if piece not in order)
    return [*order, name]


@cache
def library(package: str) -> tuple[str, str]:
    """The verbs of a folder as one library of functions: its digest and its text.

    Function names are `<verb>_<digest>`. A function without a flag is refused whole on a server whose memory is full.
    """
    bodies = {verb: _function(package, verb) for verb in verbs(package)}
    digest = hashlib.sha256("\n".join(bodies.values()).encode()).hexdigest()[:12]
    functions = (
        f"redis.register_function{{function_name='{verb}_{digest}', flags={{{_FLAGS[on_full_server(package, verb)]}}},"
        f" callback=function(KEYS, ARGV)\n{body}\nend}}"
        for verb, body in bodies.items()
    )
    name = f"{package.partition('.')[0]}_{digest}"
    return digest, "\n".join([f"#!lua name={name}", "local LOOKS_KEPT = {}", *functions])


def _function(package: str, verb: str) -> str:
    """As `source`, of a function."""
    looks = "LOOKS_KEPT" if _REMEMBERS.search(_text(package, verb)) else "{}"
    return _placed(package, verb, f"local LOOKS = {looks}\n{_whole(package, verb, without='lib_full')}")


class Scripts:
    """The verbs of one folder on one server, each called with those of the same keys that it names.

    Args:
        client: Gives the time in which a call must be answered, and its retries; every verb is safe to repeat.
        keys: `KEYS` of the verbs, in the order of the folder's `lib_keys.lua`.
        package: The package whose folder holds the files.
        functions: Call functions of a library; None: when the server has them.
    """

    def __init__(
        self, client: "redis.Redis", keys: tuple[str, ...], package: str = "federation.store.lua", *, functions: bool | None = None
    ) -> None:
        self._client: Any = client  # redis-py has no types for `execute_command`.
        self._keys = keys
        self._package = package
        self._functions = functions
        self._commands: dict[str, tuple[str | int, ...]] = {}  #: By verb, all but its arguments.

    def call(self, verb: str, *arguments: str | bytes | int) -> Any:
        """The verb's reply, as redis-py gives it: text as bytes.

        Raises:
            StoreUnavailable: Redis does not answer.
            RuntimeDoorError: The script failed.
            LedgerUninitialised: The verb needs a ledger, and the server holds none.
            SchemaMismatch: Another version of this program has written what the server holds.
        """
        try:  # Not by `redis_answers`: a generator for each call would be a tenth of what a heartbeat costs here.
            if self._functions is None:
                self._functions = has_functions_of(self._client)
            reply = self._call_function(verb, arguments) if self._functions else self._call_script(verb, arguments)
        except ANY_ERROR as error:
            raise _told_by(verb, error) from error
        if reply == [b"UNINIT"]:
            raise LedgerUninitialised(f"{verb}: the server holds no ledger; configure the federation on it")
        if type(reply) is list and reply and reply[0] == b"SCHEMA":
            raise SchemaMismatch(f"{verb}: {schema_words(reply[1].decode())}")
        return reply

    def _call_script(self, verb: str, arguments: tuple[str | bytes | int, ...]) -> Any:
        command = self._commands.get(verb) or self._prepare(verb, "EVALSHA", _sha_of(source(self._package, verb)))
        try:
            return self._client.execute_command(*command, *arguments)
        except redis.exceptions.NoScriptError:  # A new server, or one that was restarted: EVAL loads it as well.
            return self._load(verb, lambda: self._client.execute_command("EVAL", source(self._package, verb), *command[2:], *arguments))

    def _call_function(self, verb: str, arguments: tuple[str | bytes | int, ...]) -> Any:
        command = self._commands.get(verb) or self._prepare(verb, "FCALL", f"{verb}_{library(self._package)[0]}")
        try:
            return self._client.execute_command(*command, *arguments)
        except redis.exceptions.ResponseError as refused:
            if _NO_FUNCTION not in str(refused):
                raise
            self._load(verb, lambda: self._client.function_load(library(self._package)[1], replace=True))
            return self._client.execute_command(*command, *arguments)

    def _prepare(self, verb: str, name: str, called: str) -> tuple[str | int, ...]:
        """The command up to the verb's arguments, kept."""
        places = key_places(self._package, verb)
        keys = self._keys if places is None else tuple(self._keys[place - 1] for place in places)
        return self._commands.setdefault(verb, (name, called, len(keys), *keys))

    @staticmethod
    def _load(verb: str, load: Callable[[], Any]) -> Any:
        """Whoever may not bring a verb to the server is told who has to."""
        try:
            return load()
        except redis.exceptions.NoPermissionError as error:
            raise StoreUnavailable(
                f"{verb}: Redis lacks this version's verbs, and this user may not load them ({error});"
                " run `schedulemesh load-verbs` as one who may"
            ) from error


def load_verbs(client: "redis.Redis", packages: tuple[str, ...]) -> int:
    """Bring the verbs of these folders to the server, where users who may only call them find them; how many there are.

    Functions stay, also over restarts, and reach replicas. Scripts are gone when the server restarts or another takes over.

    Raises:
        StoreUnavailable: Redis does not answer, or this user may not load them.
    """
    with redis_answers("load the verbs"):
        has_functions = has_functions_of(client)
        for package in packages:
            if has_functions:
                client.function_load(library(package)[1], replace=True)
            else:
                for verb in verbs(package):
                    client.script_load(source(package, verb))
    return sum(len(verbs(package)) for package in packages)


def has_functions_of(client: "redis.Redis") -> bool:
    """Does the server keep libraries of functions? Raises redis-py's errors."""
    return int(str(client.info("server")["redis_version"]).partition(".")[0]) >= _FUNCTIONS_SINCE


def _sha_of(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def schema_words(found: str) -> str:
    """What is wrong with data of another schema, and what to do."""
    return (
        f"the server holds data of schema {found}, and this program reads and writes schema {SCHEMA}; run the version that wrote them,"
        " or stop all its processes and name a server without them"
    )


def pairs(flat: Any) -> dict[bytes, bytes]:
    """A hash as a script replies it: name, value, name, value, …"""
    items = cast(list[bytes], flat)
    return dict(zip(items[::2], items[1::2], strict=True))
