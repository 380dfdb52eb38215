"""Pickled bytes and their names. Only the tenant's client writes them, only the tenant's own workers read them."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle

from dag.client.from_ray import foreign
from dag.errors import GraphTypeError

#: The oldest protocol with out-of-band buffers, because the two sides may run different minor versions of Python.
PROTOCOL = 5
_beside: list[ModuleType] = []  #: Modules of the present block that were registered without being asked for.
#: Lock for registering modules: cloudpickle's registry is global to the process, and many threads compile graphs.
_REGISTRY_LOCK = threading.RLock()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Refuses values of the user's own Ray cluster at any depth: a mesh would read them without an error, and then hang."""

    def reducer_override(self, obj: Any) -> Any:
        if problem := foreign(obj):
            raise GraphTypeError(f"the data to send contains a value that {problem}")
        return super().reducer_override(obj)


def dumps(value: object) -> bytes:
    """Pickle with cloudpickle, protocol 5; raises any error of the object's own pickling.

    A module beside the user's script may hold globals that cannot be pickled. Then the value names its modules, as without `beside`.
    """
    try:
        return _dumped(value)
    except Exception:
        if not _beside:
            raise
        with _by_name(_beside):
            return _dumped(value)


def _dumped(value: object) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, protocol=PROTOCOL).dump(value)
        return file.getvalue()


@contextmanager
def by_value(modules: Iterable[ModuleType], beside: Iterable[ModuleType] = ()) -> Iterator[None]:
    """Pickle functions of these modules whole within the block, instead of by name: workers cannot import the modules.

    A module that was registered before stays registered. Only one thread at a time may be in such a block; others wait.

    Args:
        beside: Modules that workers probably cannot import either, such as those beside the user's script.

    Raises:
        GraphTypeError: The argument is not a list of modules.
    """
    if isinstance(modules, (str, ModuleType)):
        raise GraphTypeError(f"by_value takes a list of modules, not {modules!r} alone; {_remedy(modules)}")
    modules = tuple(modules)
    for module in modules:
        if not isinstance(module, ModuleType):
            raise GraphTypeError(f"by_value takes modules, not {module!r}; {_remedy(module)}")
    with _REGISTRY_LOCK, _registered(modules), _registered(beside) as unasked:
        before = len(_beside)
        _beside.extend(unasked)
        try:
            yield
        finally:
            del _beside[before:]


@contextmanager
def _registered(modules: Iterable[ModuleType]) -> Iterator[tuple[ModuleType, ...]]:
    """Register modules within the block; the value is those that were not registered before."""
    known = cloudpickle.list_registry_pickle_by_value()
    added: list[ModuleType] = []
    try:
        for module in modules:
            if module.__name__ not in known and module not in added:
                cloudpickle.register_pickle_by_value(module)
                added.append(module)
        yield tuple(added)
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


@contextmanager
def _by_name(modules: Iterable[ModuleType]) -> Iterator[None]:
    modules = tuple(modules)
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)


def _remedy(given: object) -> str:
    if isinstance(given, ModuleType):
        return f"write by_value=[{given.__name__.rpartition('.')[2]}]"
    if isinstance(given, str):
        return f"import it and give the module: import {given}, then by_value=[{given}]"
    module = getattr(given, "__module__", None)
    return f"give the module that it is in: by_value=[sys.modules[{module!r}]]" if isinstance(module, str) else "import one and give it"
