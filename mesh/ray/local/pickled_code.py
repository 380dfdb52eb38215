"""Pickling of a user's class and arguments, so that the supervisor passes them on unread.

ObjectRefs among the arguments are taken out of the pickle and travel beside it: Ray counts references only in values that it
pickles itself.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle
import ray

from mesh.core.saved_state import StateHandlers, plain_class
from mesh.ray.local.agent_messages import PickledArguments

_PROTOCOL = 5


def pickled_class(cls: Any) -> bytes:
    """Pickle the class, plain or with `@ray.remote`, for `HostCommand.code`.

    Raises:
        TypeError: The value is not a class, or cannot be pickled.
    """
    plain = plain_class(cls)
    if not isinstance(plain, type):
        raise TypeError(f"an agent hosts a class, not a {type(cls).__name__}")
    return bytes(cloudpickle.dumps(plain, protocol=_PROTOCOL))


def pickled_handlers(handlers: StateHandlers) -> bytes:
    """Pickle state handlers for `HostCommand.handlers`."""
    return bytes(cloudpickle.dumps(handlers, protocol=_PROTOCOL))


def pickled_arguments(*args: Any, **kwargs: Any) -> PickledArguments:
    """Pickle arguments for an order. As in Ray, an ObjectRef that is an argument itself arrives as its value; a nested one stays."""
    sink = io.BytesIO()
    pickler = _Pickler(sink, protocol=_PROTOCOL)
    pickler.dump((args, kwargs))
    return PickledArguments(pickled=sink.getvalue(), refs=tuple(pickler.refs))


def read_arguments(arguments: PickledArguments, *, timeout_s: float) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Unpickle the arguments; replace ObjectRefs that are arguments themselves by their values.

    Raises:
        ray.exceptions.RayError: A value is lost, failed, or did not come in time.
    """
    args, kwargs = _Unpickler(io.BytesIO(arguments.pickled), arguments.refs).load()
    wanted = [value for value in (*args, *kwargs.values()) if isinstance(value, ray.ObjectRef)]
    values = dict(zip(wanted, ray.get(wanted, timeout=timeout_s), strict=True)) if wanted else {}

    def resolved(value: Any) -> Any:
        return values[value] if isinstance(value, ray.ObjectRef) else value

    return tuple(map(resolved, args)), {name: resolved(value) for name, value in kwargs.items()}


def check_picklable(value: Any, *, what: str) -> None:
    """Check that Ray could send the value. Nothing is stored, and large buffers are not copied.

    Raises:
        TypeError: The value cannot be pickled. The message calls it `what`.
    """
    try:
        _Pickler(_Nowhere(), protocol=_PROTOCOL, buffer_callback=lambda _buffer: None).dump(value)
    except Exception as refused:
        raise TypeError(f"{what} ({type(value).__qualname__}) cannot be pickled: {type(refused).__name__}: {refused}") from refused


class _Nowhere:
    """A sink that discards all bytes."""

    def write(self, piece: Any) -> int:
        return len(piece)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, sink: Any, **options: Any) -> None:
        super().__init__(sink, **options)
        self.refs: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        """Return the index of an ObjectRef among `refs`; None for other objects."""
        if not isinstance(obj, ray.ObjectRef):
            return None
        self.refs.append(obj)
        return len(self.refs) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, refs: tuple[Any, ...]) -> None:
        super().__init__(source)
        self._refs = refs

    def persistent_load(self, pid: Any) -> Any:
        """Return the ObjectRef of an index."""
        return self._refs[pid]
