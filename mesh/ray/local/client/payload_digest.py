"""Digest of a task's code and arguments: two submissions of one name are the same task only if their digests are equal.

The bytes of a pickle are not comparable: they hold ids that each process draws for itself, sets in hash order, and the line and
file of a class, so a repeated program would send another class. The digest covers behaviour and content, part by part:

- of a class and its bases: the names, the code of the functions with its constants, and the values, if they are plain,
  containers, functions, nested classes, or objects of a class of the same module;
- of a function: also its defaults, closure and wrapped function, and the functions, classes, numbers and texts of its module
  that it reads by name;
- of arguments: their content, as pickle would take it apart; ObjectRefs by their ids, because equal values are unknown without
  reading them.

Covered by name only: imports from other modules, Python's own classes, and lists, dicts and objects of a module (usually caches,
which fill up between two submissions of the same work).
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dis import get_instructions
from operator import itemgetter
from typing import Any

import cloudpickle
import ray

from mesh.core.saved_state import plain_class
from mesh.ray.local.pickled_code import pickled_arguments

_DIGEST_BYTES = 16
_PLAIN = frozenset({int, float, complex, bool, str, type(None), type(...)})
_CONTAINERS = frozenset({list, tuple, set, frozenset, dict})
_WRAPPING = ("__wrapped__", "func", "args", "keywords")  #: Attributes in which decorators and the like hold the wrapped function.
_NAMED = (types.BuiltinFunctionType, types.ModuleType)
#: Types of module values that stay the same until the module is edited.
_LASTING = (*_PLAIN, bytes, tuple, frozenset)
_PROTOCOL = 5

#: A piece to hash; a `memoryview` is not copied.
HashedPart = str | bytes | bytearray | memoryview
#: Positional and keyword arguments of a call.
Arguments = tuple[Sequence[Any], Mapping[str, Any]]


def payload_digest(
    actor_class: Any, arguments: Arguments | None, entry: str | None, entry_arguments: Arguments | None, environment: Mapping[str, str]
) -> str:
    """Return a digest that is equal in every process for equal class, arguments, method and environment variables."""
    plain = plain_class(actor_class)
    parts = _Parts(_own_modules(plain))
    called = (_called(parts, each) for each in (arguments, entry_arguments))
    return _hashed(parts.digest(plain), repr(entry), repr(sorted(environment.items())), *called).hex()


def _called(parts: _Parts, arguments: Arguments | None) -> bytes:
    if arguments is None:
        return b"none"
    args, kwargs = arguments
    try:
        return parts.digest((tuple(args), dict(kwargs)), deep=True)
    except RecursionError:  # For example a long linked list; pickle can go deeper.
        return _pickled((args, kwargs))


def _own_modules(cls: Any) -> frozenset[str]:
    """Return the modules that may be edited between two submissions: those of the class and its bases, except Python's own."""
    bases = {kind.__module__ for kind in getattr(cls, "__mro__", ())}
    own = {module for module in bases if module.partition(".")[0] not in sys.stdlib_module_names}
    return frozenset(own | {"__main__"} | set(cloudpickle.list_registry_pickle_by_value()))


class _Parts:
    """Computes digests of values from the digests of their parts, each value once.

    Args:
        own: The modules whose classes and functions are examined.
    """

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._known: dict[tuple[int, bool], bytes] = {}
        self._above: dict[tuple[int, bool], int] = {}  #: Values in progress, with their depth; a cycle ends there.
        self._alive: list[Any] = []  #: References: an id is unique only while its value is alive.

    def digest(self, value: Any, *, deep: bool = False) -> bytes:
        """Return the digest of any value; of a flat one, its text.

        Args:
            deep: Examine objects of foreign classes too; else only the names of their classes count.
        """
        flat = _flat(value)
        if flat is not None:
            return flat.encode("utf-8", "backslashreplace")
        key = (id(value), deep)
        if key in self._known:
            return self._known[key]
        if key in self._above:
            return _hashed("circle", str(self._above[key]))
        self._above[key] = len(self._above)
        found = _hashed(*self._parts(value, deep=deep))
        del self._above[key]
        self._known[key] = found
        self._alive.append(value)
        return found

    def _parts(self, value: Any, *, deep: bool) -> Iterator[HashedPart]:
        kind = type(value)
        if kind in _CONTAINERS:
            yield kind.__name__
            yield from self._of_container(value, deep=deep)
        elif kind in (bytes, bytearray, pickle.PickleBuffer):
            yield kind.__name__
            yield value.raw() if kind is pickle.PickleBuffer else value
        elif isinstance(value, type):
            yield from self._of_class(value)
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(value, deep=deep)
        elif isinstance(value, types.CodeType):
            yield from self._of_code(value)
        elif isinstance(value, _NAMED):
            yield _name(value)
        elif isinstance(value, ray.ObjectRef):
            yield value.binary()
        elif (deep or kind.__module__ in self._own) and not isinstance(value, (staticmethod, classmethod, property)):
            yield from self._of_object(value, deep=deep)
        else:
            yield _name(kind)
            yield from (self.digest(each, deep=deep) for each in _wrapped(value))

    def _of_container(self, value: Any, *, deep: bool) -> Iterator[HashedPart]:
        if isinstance(value, dict):
            for key, inner in sorted(((self.digest(key, deep=deep), inner) for key, inner in value.items()), key=itemgetter(0)):
                yield key
                yield self.digest(inner, deep=deep)
        else:
            digests = (self.digest(each, deep=deep) for each in value)
            yield from sorted(digests) if isinstance(value, (set, frozenset)) else digests

    def _of_class(self, cls: type) -> Iterator[HashedPart]:
        yield _name(cls)
        if cls.__module__ not in self._own:
            return
        yield from map(self.digest, cls.__bases__)
        for name, member in sorted(vars(cls).items()):
            # Python keeps lines, documentation and the like under such names; only functions run.
            if not name.startswith("__") or isinstance(member, (types.FunctionType, staticmethod, classmethod, property)):
                yield name
                yield self.digest(member)

    def _of_function(self, function: types.FunctionType, *, deep: bool) -> Iterator[HashedPart]:
        yield self.digest(function.__code__)
        inner = (function.__defaults__, function.__kwdefaults__, *_cells(function), vars(function).get("__wrapped__"))
        yield from (self.digest(each, deep=deep) for each in inner)
        scope = function.__globals__
        if scope.get("__name__") in self._own:
            for name in _names_read(function.__code__):
                if name in scope and self._is_lasting(scope[name]):
                    yield name
                    yield self.digest(scope[name])

    def _is_lasting(self, value: Any) -> bool:
        """Return whether a module's value stays the same until the module is edited."""
        if isinstance(value, (type, types.FunctionType)) or hasattr(type(value), "cache_info"):
            return value.__module__ in self._own
        return type(value) in _LASTING

    def _of_code(self, code: types.CodeType) -> Iterator[HashedPart]:
        """Yield the code without its file and lines, which move when something above is edited."""
        yield code.co_code
        yield getattr(code, "co_exceptiontable", b"")  # In Python 3.10 it is part of the code.
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_flags))
        yield self.digest(code.co_consts)

    def _of_object(self, value: Any, *, deep: bool) -> Iterator[HashedPart]:
        """Yield the parts that pickle would send: the object's class, its maker, and its state."""
        yield self.digest(type(value))
        reduce = cloudpickle.CloudPickler.dispatch_table.get(type(value))
        try:
            reduced = reduce(value) if reduce is not None else value.__reduce_ex__(_PROTOCOL)
        except Exception:  # noqa: BLE001 - any class may raise its own error; cloudpickle handles more classes
            yield _pickled(value)
            return
        if isinstance(reduced, str):
            yield reduced
            yield from (self.digest(each, deep=deep) for each in _wrapped(value))
            return
        maker, parts, state, items, entries = (*reduced, None, None, None)[:5]
        yield _name(maker)
        for each in (parts, state, tuple(items or ()), tuple(entries or ())):
            yield self.digest(each, deep=deep)


def _flat(value: Any) -> str | None:
    """Return a plain value, or a flat container, as text. Sets are sorted because their order differs by process; dicts are too."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if kind not in _CONTAINERS or not _PLAIN.issuperset(map(type, value)):
        return None
    if kind is dict:
        return f"dict{sorted(map(repr, value.items()))}" if _PLAIN.issuperset(map(type, value.values())) else None
    return f"{kind.__name__}{value if kind in (list, tuple) else sorted(map(repr, value))}"


def _wrapped(value: Any) -> Iterator[Any]:
    """Yield the functions and values that a wrapper holds."""
    if isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    else:
        inner = getattr(value, "__dict__", None) or {}
        yield from (inner[name] for name in _WRAPPING if name in inner)


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # The cell is not bound yet.
            continue


@functools.lru_cache(maxsize=4096)
def _names_read(code: types.CodeType) -> tuple[str, ...]:
    """Return the module names that a function and its inner functions read, from instructions: `co_names` has attributes too."""
    read = {each.argval for each in get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (_names_read(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return tuple(sorted(read.union(*inner)))


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', None) or getattr(thing, '__name__', type(thing).__name__)}"


def _pickled(value: Any) -> bytes:
    try:
        pickled = pickled_arguments(value)
    except Exception:  # noqa: BLE001 - as above; then only the class's name counts
        return _name(type(value)).encode()
    return _hashed(pickled.pickled, *(ref.binary() for ref in pickled.refs))


def _hashed(*parts: HashedPart) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        piece = part.encode("utf-8", "backslashreplace") if isinstance(part, str) else part
        digest.update(b"%d:" % (piece.nbytes if isinstance(piece, memoryview) else len(piece)))
        digest.update(piece)
    return digest.digest()
