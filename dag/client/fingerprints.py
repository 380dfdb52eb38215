"""Digests of what functions and values mean, equal in every process, for the keys of cached nodes.

Pickles of equal things differ: sets have another order in each process, code has the lines and the path of its file. A digest takes:

- of a function that is sent along: its code as compiled, its defaults, the values of its closure, and each global that it names, the
  functions and classes of the user's own modules among them;
- of a function or class that workers import: its name; of the function of a node its code too;
- of a container: its items. Dicts and sets have no order. 1, 1.0 and True differ, NaN equals NaN;
- of an array: type, shape and bytes; of a dataclass: class and fields; of all else its pickle. If that differs each time, the node is
  computed each time.

The code as compiled knows no comments and no line numbers. It differs between versions of Python, as a pickled function does.

Source: ADR 0065.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import math
import types
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import cloudpickle

from dag.client.pickling import dumps

#: Levels of containers and functions below the value; below that, pickles count.
DEPTH_MAX = 200
_CONTAINERS = (list, tuple, set, frozenset, dict)
_MAKES_A_NAME = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"})
#: Attributes of a class that say nothing of what it does, or differ between processes.
_NOT_MEANT = frozenset(
    {"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__", "__annotations__", "_abc_impl"}
)


def digest_of(value: object) -> str:
    """Return the digest of a value, as SHA-256. Raises any error of pickling."""
    return _Digests().of(value, 0).hex()


def digest_of_function(function: Callable[..., Any]) -> str:
    """Return the digest of the function of a node, with its code even if workers import it. Raises any error of pickling."""
    digests = _Digests()
    if isinstance(function, types.FunctionType) and not is_sent_along(function):
        return _hashed(b"function of a node", [_named(function), digests.own(function)]).hex()
    return digests.of(function, 0).hex()


class _Digests:
    def __init__(self) -> None:
        self._open: dict[int, int] = {}  #: Numbers of the objects that are being read.
        self._known: dict[int, tuple[object, bytes]] = {}  #: Objects that lead back into none of these; kept alive with their digests.
        self._back_to = 0  #: Least number of an open object that the present one has led back to.

    def own(self, function: types.FunctionType) -> bytes:
        """Return the digest of a function with its code, however workers get it."""
        self._open[id(function)] = len(self._open)
        return self._function(function, 1)

    def of(self, value: Any, depth: int) -> bytes:
        scalar = _scalar(value)
        if scalar is not None:
            return scalar
        if id(value) in self._known:
            return self._known[id(value)][1]
        if id(value) in self._open:
            self._back_to = min(self._back_to, self._open[id(value)])
            return _hashed(b"circle", [str(len(self._open) - self._open[id(value)]).encode()])
        if depth > DEPTH_MAX:
            return _hashed(b"pickle", [dumps(value)])
        number = self._open[id(value)] = len(self._open)
        before, self._back_to = self._back_to, number
        try:
            found = self._compound(value, depth + 1)
        finally:
            del self._open[id(value)]
        if self._back_to >= number:
            self._known[id(value)] = value, found
        self._back_to = min(before, self._back_to)
        return found

    def _compound(self, value: Any, depth: int) -> bytes:
        kind = type(value)
        if kind in _CONTAINERS:
            return self._container(value, depth)
        if isinstance(value, types.ModuleType):
            return _hashed(b"module", [value.__name__.encode()])
        if isinstance(value, functools.partial) and kind is functools.partial:
            return _hashed(b"partial", [self.of(part, depth) for part in (value.func, value.args, value.keywords)])
        if isinstance(value, types.MethodType):
            return _hashed(b"method", [self.of(value.__func__, depth), self.of(value.__self__, depth)])
        if isinstance(value, types.FunctionType):
            return self._function(value, depth) if is_sent_along(value) else _named(value)
        if isinstance(value, (staticmethod, classmethod)):
            return _hashed(kind.__name__.encode(), [self.of(value.__func__, depth)])
        if isinstance(value, property):
            return _hashed(b"property", [self.of(part, depth) for part in (value.fget, value.fset, value.fdel)])
        if isinstance(value, type):
            return self._class(value, depth)
        return self._object(value, depth)

    def _container(self, value: Any, depth: int) -> bytes:
        name = type(value).__name__.encode()
        if isinstance(value, dict):
            return _hashed(name, sorted(self.of(key, depth) + self.of(part, depth) for key, part in value.items()))
        parts = [self.of(part, depth) for part in value]
        return _hashed(name, parts if isinstance(value, (list, tuple)) else sorted(parts))

    def _function(self, function: types.FunctionType, depth: int) -> bytes:
        closure = [_content_of(cell) for cell in function.__closure__ or ()]
        world, names, attributes = function.__globals__, *_names_in(function.__code__)
        used = [(name, world[name]) for name in sorted(names) if name in world]
        for name, module in used[:]:
            if isinstance(module, types.ModuleType) and is_sent_along(module):
                used += [(f"{name}.{each}", vars(module)[each]) for each in sorted(attributes) if each in vars(module)]
        parts = [
            function.__qualname__.rpartition(".")[2].encode(),
            self._code(function.__code__, depth),
            self.of(function.__defaults__, depth),
            self.of(function.__kwdefaults__, depth),
            *(self.of(part, depth) for part in closure),
            *(_hashed(name.encode(), [self.of(part, depth)]) for name, part in used),
        ]
        return _hashed(b"function", parts)

    def _code(self, code: types.CodeType, depth: int) -> bytes:
        constants = [self._code(each, depth) if isinstance(each, types.CodeType) else self.of(each, depth) for each in code.co_consts]
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _hashed(
            b"code", [code.co_code, repr(shape).encode(), repr(names).encode(), getattr(code, "co_exceptiontable", b""), *constants]
        )

    def _class(self, kind: type, depth: int) -> bytes:
        if not is_sent_along(kind):
            return _named(kind)
        own = sorted((name, part) for name, part in vars(kind).items() if name not in _NOT_MEANT and not _is_slot(part))
        bases = [self.of(base, depth) for base in kind.__bases__]
        return _hashed(b"class", [kind.__name__.encode(), *bases, *(_hashed(name.encode(), [self.of(part, depth)]) for name, part in own)])

    def _object(self, value: Any, depth: int) -> bytes:
        kind = type(value)
        if isinstance(value, Enum):
            return _hashed(b"enum", [self.of(kind, depth), value.name.encode()])
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray" and not value.dtype.hasobject:
            return _hashed(b"ndarray", [repr((value.dtype, value.shape)).encode(), value.tobytes()])
        if is_dataclass(value) and "__reduce__" not in vars(kind) and "__getstate__" not in vars(kind):
            named = [(each.name, getattr(value, each.name, None)) for each in fields(value)]
            extra = sorted(getattr(value, "__dict__", {}).keys() - {name for name, _ in named})
            held = [*named, *((name, value.__dict__[name]) for name in extra)]
            return _hashed(b"dataclass", [self.of(kind, depth), *(_hashed(name.encode(), [self.of(part, depth)]) for name, part in held)])
        return _hashed(b"pickle", [dumps(value)])


def is_sent_along(defined: Any) -> bool:
    """Return whether a function, class or module is pickled whole: no worker can import it by its name, or its module is sent along."""
    if isinstance(defined, types.ModuleType):
        return defined.__name__ in cloudpickle.list_registry_pickle_by_value()
    module = getattr(defined, "__module__", None)
    if module is None or module == "__main__" or module in cloudpickle.list_registry_pickle_by_value():
        return True
    return bool(cloudpickle.cloudpickle._should_pickle_by_reference(defined) is False)  # noqa: SLF001  the one place that decides it


def _scalar(value: Any) -> bytes | None:
    """Return the digest of a plain value; None: it is none."""
    kind = type(value)
    if value is None or value is Ellipsis or value is NotImplemented or kind in (bool, int, str, complex):
        return _hashed(kind.__name__.encode(), [repr(value).encode("utf-8", "surrogatepass")])
    if kind is float:
        return _hashed(b"float", [b"nan" if math.isnan(value) else value.hex().encode()])
    if kind in (bytes, bytearray):
        return _hashed(kind.__name__.encode(), [bytes(value)])
    if isinstance(value, (types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType)):
        owner = getattr(value, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType):
            return _named(value)
    return None


def _named(defined: Any) -> bytes:
    module, name = getattr(defined, "__module__", None), getattr(defined, "__qualname__", getattr(defined, "__name__", ""))
    return _hashed(b"name", [f"{module}:{name}".encode()])


def _hashed(kind: bytes, parts: Iterable[bytes]) -> bytes:
    hashed = hashlib.sha256(kind)
    for part in parts:
        hashed.update(f"|{len(part)}|".encode())
        hashed.update(part)
    return hashed.digest()


def _names_in(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Return the globals that code names, and all its names; those of its inner functions too."""
    names, others = {str(step.argval) for step in dis.get_instructions(code) if step.opname in _MAKES_A_NAME}, set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, inner_others = _names_in(constant)
            names |= inner
            others |= inner_others
    return names, others


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # An empty cell: the variable is set later.
        return Ellipsis


def _is_slot(part: Callable[..., Any]) -> bool:
    return isinstance(part, (types.MemberDescriptorType, types.GetSetDescriptorType))
