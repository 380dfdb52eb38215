"""Calls of the Lua verbs: loading, by name or by hash, with errors converted to this project's.

A verb is a file `<verb>.lua`. Its first line may say `-- needs: keys, clock`: the pieces `lib_keys.lua` and `lib_clock.lua`, from the
same folder or else from this package, are put before the verb, each once, after the pieces that they need themselves. Functions that the
verb does not reach are removed. If keys are named one by one (`local META = KEYS[1]`), a verb gets only the keys that its text names,
because each key costs time in every call.

A server with full memory refuses every verb without a permission: `-- on a full server: passes` marks verbs that keep sessions alive,
return or reclaim quota; `reads only` marks verbs that write nothing.

From Redis 7 on, all verbs of a folder form one library of functions, which the server stores, replicates and protects by its access
rules. Before that they are scripts, called by their hash. The text is the same with two exceptions. A function needs no `lib_full.lua`. A
function whose verb says `-- remembers its look` finds in `LOOKS` what an earlier call stored there; for scripts and all other verbs
`LOOKS` is empty in each call. A library has a digest of its text in its name, so roots of two versions can share a server. If their
stored data differ, their schema numbers differ too, and every verb refuses data of another schema.
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
from federation.store.redis.keys import SCHEMA
from mesh.errors import RuntimeAdapterError

_NEEDS = re.compile(r"\A-- needs: (?P<names>[a-z_, ]+)\n")
_ON_FULL = re.compile(r"^-- on a full server: (?P<does>passes|reads only)\n", re.MULTILINE)
#: For functions; scripts have `lib_full.lua`.
_FLAGS = {"passes": "'allow-oom'", "reads only": "'no-writes'", "": ""}
#: In `lib_keys.lua`: the name of a key and its index among all keys.
_KEY = re.compile(r"^local (?P<name>[A-Z_]+) = KEYS\[(?P<place>\d+)\]\n", re.MULTILINE)
_COMMENT, _QUOTED = re.compile(r"--.*"), re.compile(r"'[^'\n]*'")
_REMEMBERS = re.compile(r"^-- remembers its look$", re.MULTILINE)
#: A top-level function: from its first line to the next `end` at the margin.
_FUNCTION = re.compile(r"^local function (?P<name>\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
#: Errors of a server that responds but cannot serve now: loading, a replica, out of memory, disk full, in election; or a server whose
#: operator changes this user's rights meanwhile.
_NOT_NOW = re.compile(r"\b(LOADING|BUSY|READONLY|OOM|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOPERM|ACL failure)\b")
#: The same, where redis-py shows the kind only by the class.
_NOT_NOW_KINDS = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.NoPermissionError,
    # On a cluster: down, in election, a slot that moves between nodes, or an unreachable node.
    redis.exceptions.ClusterError,
    redis.exceptions.TryAgainError,
    redis.exceptions.AskError,
    redis.exceptions.RedisClusterException,
)
#: All errors of redis-py: its cluster errors are not `RedisError`s.
ANY_ERROR = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException)
#: Package with the pieces that other folders share.
_SHARED = "federation.store.lua"
_NO_FUNCTION = "Function not found"
#: The first version of Redis with functions.
_FUNCTIONS_SINCE = 7


@contextmanager
def redis_responses(what: str) -> Iterator[None]:
    """Convert redis-py's errors to this project's.

    Raises:
        StoreUnavailable: No response in the client's time, or the server cannot serve now. The command may have taken effect.
        RuntimeAdapterError: The server refused the command itself.
    """
    try:
        yield
    except ANY_ERROR as error:
        raise _converted(what, error) from error


def _converted(what: str, error: Exception) -> StoreUnavailable | RuntimeAdapterError:
    if isinstance(error, (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)):
        return StoreUnavailable(f"{what}: Redis does not respond: {error}")
    if "NOREPLICAS" in str(error):
        return StoreUnavailable(f"{what}: Redis has too few replicas that keep up, and refuses writes until they are back: {error}")
    if isinstance(error, _NOT_NOW_KINDS) or _NOT_NOW.search(str(error)):
        return StoreUnavailable(f"{what}: Redis cannot serve now: {error}")
    return RuntimeAdapterError(f"{what}: Redis refused the command: {error}; check that the server is 6.2 or later")


@cache
def source(package: str, verb: str) -> str:
    """Return the verb's text after the pieces that it needs, with the keys that it names at the indexes of its call."""
    return _placed(package, verb, f"local LOOKS = {{}}\n{_whole(package, verb)}")


def _placed(package: str, verb: str, text: str) -> str:
    """Return the text after the schema, with the keys at the indexes of the verb's call."""
    text = f"local SCHEMA = '{SCHEMA}'\n{text}"
    places = key_places(package, verb)
    if places is None:
        return text
    kept = {place: number for number, place in enumerate(places, start=1)}
    return _KEY.sub(lambda key: f"local {key['name']} = KEYS[{kept[int(key['place'])]}]\n" if int(key["place"]) in kept else "", text)


@cache
def key_places(package: str, verb: str) -> tuple[int, ...] | None:
    """Return the indexes, from 1, of the keys that the verb names; None: it gets all, because it does not name them one by one."""
    text = _whole(package, verb)
    named = {key["name"]: int(key["place"]) for key in _KEY.finditer(text)}
    used = set(re.findall(r"[A-Z_]+", _QUOTED.sub("", _COMMENT.sub("", _KEY.sub("", text)))))
    return tuple(place for name, place in named.items() if name in used) if named else None


@cache
def _whole(package: str, verb: str, *, without: str = "") -> str:
    return _reached("\n".join(_text(package, name) for name in _in_order(package, verb) if name != without))


def _reached(text: str) -> str:
    """Remove functions that nothing names: a script creates all its functions anew in every call.

    The words of each piece are cached. Every process does this before its first call, and a mesh that recovers its work must be quick.
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
    """Return all words of the code without comments. Cached, because most verbs share most functions."""
    return frozenset(re.findall(r"\w+", _COMMENT.sub("", text)))


def verbs(package: str) -> tuple[str, ...]:
    """Return the verbs of a folder, in order."""
    names = (file.name for file in files(package).iterdir())
    return tuple(sorted(name.removesuffix(".lua") for name in names if name.endswith(".lua") and not name.startswith("lib_")))


def on_full_server(package: str, verb: str) -> str:
    """Return the verb's behavior on a server with full memory: `passes`, `reads only`, or "" (refused)."""
    found = _ON_FULL.search(_text(package, verb))
    return found["does"] if found is not None else ""


@cache
def _text(package: str, name: str) -> str:
    """Return the text of a file of the folder, or of this package's piece of that name."""
    file = files(package) / f"{name}.lua"
    return (file if file.is_file() else files(_SHARED) / f"{name}.lua").read_text(encoding="utf-8")


def _in_order(package: str, name: str) -> list[str]:
    """Return the file and all that it needs, every file after its own needs."""
    order: list[str] = []
    header = _NEEDS.match(_text(package, name))
    needs = header["names"].split(",") if header else []
    for need in ["full", *needs] if on_full_server(package, name) == "passes" else needs:
        order.extend(piece for piece in _in_order(package, f"lib_{need.strip()}") if piece not in order)
    return [*order, name]


@cache
def library(package: str) -> tuple[str, str]:
    """Return the verbs of a folder as one library of functions: its digest and its text.

    Function names are `<verb>_<digest>`. A server with full memory refuses a function without a flag.
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
    """Return the verb's text as `source`, for a function."""
    looks = "LOOKS_KEPT" if _REMEMBERS.search(_text(package, verb)) else "{}"
    return _placed(package, verb, f"local LOOKS = {looks}\n{_whole(package, verb, without='lib_full')}")


class Scripts:
    """The verbs of one folder on one server, each called with those of the given keys that it names.

    Args:
        client: Its timeouts and retries apply; every verb is safe to repeat.
        keys: `KEYS` of the verbs, in the order of the folder's `lib_keys.lua`.
        package: The package whose folder holds the files.
        functions: Call functions of a library; None: if the server has them.
    """

    def __init__(
        self, client: "redis.Redis", keys: tuple[str, ...], package: str = "federation.store.lua", *, functions: bool | None = None
    ) -> None:
        self._client: Any = client  # redis-py has no types for `execute_command`.
        self._keys = keys
        self._package = package
        self._functions = functions
        self._commands: dict[str, tuple[str | int, ...]] = {}  #: By verb, the command without its arguments.

    def call(self, verb: str, *arguments: str | bytes | int) -> Any:
        """Call the verb and return its reply, as redis-py gives it: text as bytes.

        Raises:
            StoreUnavailable: Redis does not respond.
            RuntimeAdapterError: The script failed.
            LedgerUninitialised: The verb needs a ledger, and the server holds none.
            SchemaMismatch: Another version of this program has written the server's data.
        """
        try:  # Not with `redis_responses`: a generator per call would be a tenth of the cost of a heartbeat.
            if self._functions is None:
                self._functions = has_functions_of(self._client)
            reply = self._call_function(verb, arguments) if self._functions else self._call_script(verb, arguments)
        except ANY_ERROR as error:
            raise _converted(verb, error) from error
        if reply == [b"UNINIT"]:
            raise LedgerUninitialised(f"{verb}: the server holds no ledger; configure the federation on it")
        if type(reply) is list and reply and reply[0] == b"SCHEMA":
            raise SchemaMismatch(f"{verb}: {schema_words(reply[1].decode())}")
        return reply

    def _call_script(self, verb: str, arguments: tuple[str | bytes | int, ...]) -> Any:
        command = self._commands.get(verb) or self._prepare(verb, "EVALSHA", _sha_of(source(self._package, verb)))
        try:
            return self._client.execute_command(*command, *arguments)
        except redis.exceptions.NoScriptError:  # A new or restarted server: EVAL also loads the script.
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
        """Return the command up to the verb's arguments, cached."""
        places = key_places(self._package, verb)
        keys = self._keys if places is None else tuple(self._keys[place - 1] for place in places)
        return self._commands.setdefault(verb, (name, called, len(keys), *keys))

    @staticmethod
    def _load(verb: str, load: Callable[[], Any]) -> Any:
        """Load the verb; a user without the right gets a message that says who must load it."""
        try:
            return load()
        except redis.exceptions.NoPermissionError as error:
            raise StoreUnavailable(
                f"{verb}: Redis lacks this version's verbs, and this user may not load them ({error});"
                " run `schedulemesh load-scripts` as a user who may"
            ) from error


def load_scripts(client: "redis.Redis", packages: tuple[str, ...]) -> int:
    """Load the verbs of these folders for users who may only call them, and return the number of verbs.

    Functions persist over restarts and reach replicas. Scripts are lost when the server restarts or another takes over.

    Raises:
        StoreUnavailable: Redis does not respond, or this user may not load them.
    """
    with redis_responses("load the verbs"):
        has_functions = has_functions_of(client)
        for package in packages:
            if has_functions:
                client.function_load(library(package)[1], replace=True)
            else:
                for verb in verbs(package):
                    client.script_load(source(package, verb))
    return sum(len(verbs(package)) for package in packages)


def has_functions_of(client: "redis.Redis") -> bool:
    """Return whether the server has libraries of functions. Raises redis-py's errors."""
    return int(str(client.info("server")["redis_version"]).partition(".")[0]) >= _FUNCTIONS_SINCE


def _sha_of(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def schema_words(found: str) -> str:
    """Return the message about data of another schema, with the remedy."""
    return (
        f"the server holds data of schema {found}, but this program uses schema {SCHEMA}; run the version that wrote the data,"
        " or stop all its processes and name a server without such data"
    )


def pairs(flat: Any) -> dict[bytes, bytes]:
    """Convert a hash in a script's reply (name, value, name, value, …) to a dict."""
    items = cast(list[bytes], flat)
    return dict(zip(items[::2], items[1::2], strict=True))


def entries_in(read: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Return the entries in redis-py's reply to XREAD of one stream: pairs of stream and entries, or with RESP3 a dict of lists of them."""
    if not read:
        return []
    found = next(iter(read.values())) if isinstance(read, dict) else read[0][1]
    return cast("list[tuple[bytes, dict[bytes, bytes]]]", found if isinstance(found[0][0], bytes) else found[0])
