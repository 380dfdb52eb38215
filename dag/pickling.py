"""Pickled bytes and their names. Only the tenant's client writes them, only the tenant's own workers read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType

import cloudpickle

#: The oldest protocol with out-of-band buffers: the two sides may run different minor versions of Python.
PROTOCOL = 5


def dumps(value: object) -> bytes:
    """cloudpickle, protocol 5; raises whatever the object raises when it cannot be pickled."""
    data: bytes = cloudpickle.dumps(value, protocol=PROTOCOL)
    return data


def sha256_of(data: bytes) -> str:
    """The name of the bytes: their hex digest."""
    return hashlib.sha256(data).hexdigest()


@contextmanager
def by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Within the block, functions of these modules are pickled whole instead of being named: workers cannot import them.

    A module that was registered before stays so afterwards. The registry is the process's own: not for two threads at once.
    """
    known = cloudpickle.list_registry_pickle_by_value()
    added: list[ModuleType] = []
    try:
        for module in modules:
            if module.__name__ not in known:
                cloudpickle.register_pickle_by_value(module)
                added.append(module)
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)
