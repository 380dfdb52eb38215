"""Writes functions and arguments of a Python client as argument forms and blobs.

Values that JSON restores exactly travel as JSON. Other values are pickled once and named by their hash. Nodes are found in lists,
tuples and dicts. A node inside any other object refuses to be pickled.
"""

from __future__ import annotations

import inspect
import math
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from dag.client.array_source import ArraySource
from dag.client.fingerprints import digest_of, digest_of_function
from dag.client.pickling import dumps
from dag.client.placeholders import CallList, GroupCalls, JobWorkers, Param, Part
from dag.client.programs import Archive
from dag.client.tasks import Node, name_of, plain_of
from dag.errors import SpecError
from dag.spec.array_forms import usual_parts
from dag.spec.checks import LITERAL_BYTES_MAX
from dag.spec.forms import CONTAINER_BYTES, escaped, key_bytes, scalar_bytes, sha256_of
from dag.spec.strict_json import is_writable
from mesh.core.functions import CALLS, GROUP, JOB
from mesh.stages.arrays import EACH, REDUCE, SLICES, STREAM, slices
from mesh.stages.call_shapes import PLAIN
from mesh.stages.spec import ArgumentForm

#: Limit on all pickled bytes of one submission, as base64: the root's limit (16 MiB) less room for the graph itself.
BLOB_BYTES_MAX = 12 * 2**20
#: Limit on the depth of the search for nodes; a tuple counts twice, as in its form.
SEARCH_DEPTH_MAX = 32
#: Limit on the parts of one argument that contains nodes: shared lists are written out at each use.
PARTS_MAX = 300_000
#: Longest list of an array that is written as JSON; a longer one is pickled in pieces.
WRITTEN_MAX = 1_000
_INT_BOUND = 2**63  #: Some readers of JSON cannot hold larger integers.
_LARGEST_SHOWN = 5
_CALL_LEVELS = 3  #: Depth of an argument in the calls of an actor, and in a job.


class FormWriter:
    """Writes the functions and arguments of one graph; collects their `blobs`, and `problems` of values that cannot be written."""

    def __init__(self, place_of: Mapping[Node, int], *, by_name: bool = False) -> None:
        self._by_name = by_name
        self.blobs: dict[str, bytes] = {}
        self.problems: list[tuple[str, str]] = []
        self.params: list[Param] = []  #: Parameters among the arguments, with repeats.
        self.digests: dict[str, str] = {}  #: Digests of functions and pickled arguments of cached nodes, by their names in the graph.
        self.is_cached = False  #: Whether the present node is cached.
        self._place_of = place_of
        self._known: dict[
            int, tuple[object, str]
        ] = {}  #: Hash of each object by its `id`; the object is kept alive, so that no other gets its `id`.
        self._owners: dict[str, str] = {}  #: Description of each blob.
        self._sent_bytes = 0
        self._budget_bytes = 0  #: Remaining bytes for literals of the present argument.
        self._parts = 0

    def function(self, function: Callable[..., Any], place: str) -> str:
        """Return the hash of a function. A problem of it is reported once, at its first node."""
        words = f"the function {name_of(function)}"
        return self._blob(function, place, words, lambda broken: _blame(function, broken))

    def name_of(self, function: Callable[..., Any], place: str) -> str:
        """Return the name by which workers import a function; a problem with it is reported."""
        module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        found: Any = sys.modules.get(str(module))
        for part in str(qualname).split("."):
            found = getattr(found, part, None)
        if found is None or plain_of(found) is not function or module == "__main__":
            where = (
                f"it is no name of the module {module}" if module != "__main__" else "a worker cannot import a script: put it into a module"
            )
            self.problems.append((place, f"the function {name_of(function)} cannot be named: {where}"))
        return f"call:{module}:{qualname}"

    def note_function(self, function: Callable[..., Any], named: str, place: str) -> None:
        """Note what the function of a cached node means.

        Args:
            named: The function as the graph names it.
        """
        if named not in self.digests:
            self._note(named, function, place, digest_of_function)

    def _note(self, named: str, value: Any, place: str, digest: Callable[[Any], str] = digest_of) -> None:
        try:
            self.digests[named] = digest(value)
        except Exception as broken:  # noqa: BLE001  pickling runs the objects' own code, which may raise anything
            self.problems.append((place, f"has no digest, so the node cannot be cached: {broken}"))

    def argument(self, value: Any, place: str, words: str) -> ArgumentForm:
        """Return the form of an argument, with the places of nodes for their ids; `words` describe the argument in messages.

        Raises:
            SpecError: All pickled bytes together exceed the limit.
        """
        self._budget_bytes, self._parts = LITERAL_BYTES_MAX, 0
        if type(value) is CallList:
            return {CALLS: [self._call(*call, f"{place}/{CALLS}/{number}", words) for number, call in enumerate(value.calls)]}
        if type(value) is GroupCalls:
            return {GROUP: self._group(value, f"{place}/{GROUP}", words)}
        if type(value) is JobWorkers:
            return {JOB: self._job(value, f"{place}/{JOB}", words)}
        return self._array(value, place, words) if type(value) is ArraySource else self._form(value, place, words, 0)

    def _array(self, source: ArraySource, place: str, words: str) -> ArgumentForm:
        """Return the form of an array. A long list goes in pieces, one for each part, so that a mesh gets those of its parts only."""
        rest: dict[str, Any] = {} if source.parts is None else {"parts": source.parts}
        if source.arity is None:
            key = EACH
            rest |= {"star": True} if source.is_star else {}
        else:
            key = REDUCE
            rest |= {"arity": source.arity}
        items = source.items
        if isinstance(items, (Node, Part, Param)):
            return {key: self._form(items, place, words, 0), **rest, **({STREAM: True} if source.is_stream else {})}
        if type(items) is list and len(items) <= WRITTEN_MAX and exact_bytes(items, LITERAL_BYTES_MAX) is not None:
            return {key: escaped(items), **rest}
        count = len(items)
        parts = usual_parts({key: None, **rest}, count)
        pieces = [{"$blob": self._piece(piece, place, words)} for piece in slices(items, parts)]
        return {key: {SLICES: pieces, "of": count}, **rest}

    def _call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], place: str, words: str) -> list[ArgumentForm]:
        """Return the form of a call of an actor."""
        whole = f"{words}, in a call of {method}"
        return [
            method,
            [self._form(value, f"{place}/1/{index}", whole, _CALL_LEVELS) for index, value in enumerate(args)],
            {name: self._form(value, f"{place}/2/{name}", whole, _CALL_LEVELS) for name, value in kwargs.items()},
        ]

    def _group(self, group: GroupCalls, place: str, words: str) -> dict[str, ArgumentForm]:
        """Return the form of an actor group: its shape and its calls."""
        calls: list[ArgumentForm] = []
        for number, call in enumerate(group.calls):
            _, args, kwargs = self._call(call.method, call.args, call.kwargs, f"{place}/calls/{number}", words)
            ways = {name: self._form(way, f"{place}/calls/{number}/{name}", words, _CALL_LEVELS) for name, way in call.ways.items()}
            calls.append({call.mode: call.method, **ways, **({"args": args} if args else {}), **({"kwargs": kwargs} if kwargs else {})})
        return {"calls": calls} if group.shape is None else {"shape": dict(group.shape), "calls": calls}

    def _job(self, job: JobWorkers, place: str, words: str) -> dict[str, ArgumentForm]:
        """Return the form of a job: its keys, with the code and the arguments of each worker set."""
        sets: list[dict[str, Any]] = []
        for number, described in enumerate(job.described.get("workerSets", ())):
            name, where = described["name"], f"{place}/workerSets/{number}"
            whole, form = f"{words}, of the workers {name}", dict(described)
            if self._by_name:
                form["call"] = self.name_of(job.code[name], f"{where}/call").removeprefix("call:")
            else:
                form["function"] = {"$blob": self.function(job.code[name], f"{where}/function")}
            args, kwargs = job.args.get(name, ()), job.kwargs.get(name, {})
            if args:
                form["args"] = [self._form(value, f"{where}/args/{index}", whole, _CALL_LEVELS) for index, value in enumerate(args)]
            if kwargs:
                form["kwargs"] = {key: self._form(value, f"{where}/kwargs/{key}", whole, _CALL_LEVELS) for key, value in kwargs.items()}
            sets.append(form)
        return {**job.described, "workerSets": sets} if sets else dict(job.described)

    def _piece(self, piece: Any, place: str, words: str) -> str:
        """Return the hash of a piece of a list. Pickling plain values needs no look at code, and so a tenth of the time."""
        if type(piece) is not range and not PLAIN.issuperset(map(type, piece)):
            return self._blob(piece, place, words, partial(_not_pickled, words))
        data = pickle.dumps(piece, protocol=5)
        sha256 = sha256_of(data)
        self._keep(sha256, data, words)
        return sha256

    def _form(self, value: Any, place: str, words: str, depth: int) -> ArgumentForm:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise SpecError(((place, f"{words} unfolds to more than {PARTS_MAX} parts"),))
        if isinstance(value, Node):
            return {"$ref": self._place_of[value]}
        if isinstance(value, Part):
            return {"$ref": self._place_of[value.node], "path": list(value.path)}
        if isinstance(value, Param):
            self.params.append(value)
            return {"$param": value.name}
        if isinstance(value, Archive):
            return {"$blob": self._raw(value, words)}
        taken = exact_bytes(value, self._budget_bytes)
        if taken is not None:
            self._budget_bytes -= taken
            return escaped(value)
        if depth >= SEARCH_DEPTH_MAX or next(placeholders_in([value], depth), None) is None:
            return {
                "$blob": self._blob(value, place, words, lambda broken: f"{words} ({type(value).__name__}) cannot be pickled: {broken}")
            }
        if type(value) is dict:
            if all(type(key) is str and is_writable(key) for key in value):
                return {_escaped_key(key): self._form(part, place, words, depth + 1) for key, part in value.items()}
            self.problems.append((place, f"{words}: a dict with a node in it must have text keys only; give lists of keys and values"))
            return None
        deeper = depth + _levels_of(value)
        parts = [self._form(part, place, words, deeper) for part in value]
        return {"$tuple": parts} if type(value) is tuple else parts

    def _blob(self, value: object, place: str, words: str, blame: Callable[[Exception], str]) -> str:
        known = self._known.get(id(value))
        if known is None:
            try:
                data = dumps(value)
            except Exception as broken:  # noqa: BLE001  pickling runs the objects' own code, which may raise anything
                self.problems.append((place, blame(broken)))
                data = b""
            known = self._known[id(value)] = (value, sha256_of(data))
            self._keep(known[1], data, words)
        if self.is_cached and known[1] not in self.digests:
            self._note(known[1], value, place)
        return known[1]

    def _raw(self, archive: Archive, words: str) -> str:
        known = self._known.get(id(archive))
        if known is None:
            known = self._known[id(archive)] = (archive, sha256_of(archive.data))
            self._keep(known[1], archive.data, words)
        return known[1]

    def _keep(self, sha256: str, data: bytes, words: str) -> None:
        if sha256 in self.blobs:
            return
        self.blobs[sha256], self._owners[sha256] = data, words
        self._sent_bytes += -(-len(data) // 3) * 4
        if self._sent_bytes > BLOB_BYTES_MAX:
            largest = sorted(self.blobs, key=lambda each: -len(self.blobs[each]))[:_LARGEST_SHOWN]
            described = ", ".join(f"{self._owners[each]} {len(self.blobs[each]) / 2**20:.1f} MiB" for each in largest)
            problem = f"pickled arguments and functions take more than {BLOB_BYTES_MAX >> 20} MiB as base64; the largest: {described}"
            raise SpecError((("/blobs", f"{problem}. Load large data inside a task, or write it to a file and pass its address"),))


def nodes_in(values: list[Any], depth: int = 0) -> Iterator[Node]:
    """Return the nodes that the values name, also inside lists, tuples and dicts, in reading order, with repeats."""
    for value in placeholders_in(values, depth):
        if not isinstance(value, Param):
            yield value.node if isinstance(value, Part) else value


def placeholders_in(values: list[Any], depth: int) -> Iterator[Node | Part | Param]:
    pending: list[tuple[Any, int]] = [(value, depth) for value in reversed(values)]
    seen: set[int] = set()  #: Containers that were searched; each is searched once.
    while pending:
        value, level = pending.pop()
        if isinstance(value, (Node, Part, Param)):
            yield value
        elif type(value) in (list, tuple, dict) and level < SEARCH_DEPTH_MAX and id(value) not in seen:
            seen.add(id(value))
            parts = list(value.values()) if type(value) is dict else value
            deeper = level + _levels_of(value)
            pending.extend((part, deeper) for part in reversed(parts))


def exact_bytes(value: Any, limit_bytes: int) -> int | None:
    """Return the size of the value as JSON; None if JSON does not restore it exactly, or the size exceeds `limit_bytes`."""
    taken = 0
    pending: list[tuple[Any, int]] = [(value, 0)]
    while pending:
        part, depth = pending.pop()
        kind = type(part)
        if kind is dict or kind is list:
            if depth >= SEARCH_DEPTH_MAX or (kind is dict and not all(type(key) is str and is_writable(key) for key in part)):
                return None
            taken += CONTAINER_BYTES + (sum(map(key_bytes, part)) if kind is dict else 0)
            pending.extend((below, depth + 1) for below in (part.values() if kind is dict else part))
        elif is_exact_scalar(part):
            taken += scalar_bytes(part)
        else:
            return None
        if taken > limit_bytes:
            return None
    return taken


def is_exact_scalar(value: Any) -> bool:
    """Return whether the value is a text, number, boolean or None that JSON restores exactly."""
    kind = type(value)
    if kind is int:
        return bool(-_INT_BOUND <= value < _INT_BOUND)
    if kind is float:
        return math.isfinite(value)
    return is_writable(value) if kind is str else value is None or kind is bool


def _not_pickled(words: str, broken: Exception) -> str:
    return f"{words}: an item cannot be pickled: {broken}"


def _levels_of(container: Any) -> int:
    return 2 if type(container) is tuple else 1


def _escaped_key(key: str) -> str:
    return f"${key}" if key.startswith("$") else key


def _blame(function: Callable[..., Any], broken: Exception) -> str:
    """Return why a function cannot be pickled, with the variable that causes it, if one is found."""
    words = f"the function {name_of(function)} cannot be pickled: {broken}"
    try:
        outside = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return words
    for name, value in {**outside.nonlocals, **outside.globals}.items():
        own = _refusal(value)
        if own is not None:
            return f"the function {name_of(function)} cannot be pickled, because it uses {name} ({type(value).__name__}): {own}"
    return words


def _refusal(value: object) -> Exception | None:
    try:
        dumps(value)
    except Exception as refusal:  # noqa: BLE001  whether it can be pickled is the question
        return refusal
    return None
