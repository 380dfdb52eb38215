"""Parsing of users' resources, names, classes and jobs into values; errors name the wrong input."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import yaml
from pydantic import PlainValidator

from mesh.core.counting import counted
from mesh.core.ids import TaskId
from mesh.core.near_names import nearest
from mesh.core.printable import check_printable
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.saved_state import StateHandlers, plain_class
from mesh.errors import AmountError
from mesh.jobs.form import read_job
from mesh.jobs.spec import JobSpec
from mesh.ray.local.agent_messages import PickledArguments
from mesh.ray.local.pickled_code import check_picklable, pickled_arguments, pickled_class, pickled_handlers
from mesh.ray.local.supervision_errors import ArgumentError, SubmissionError

#: Limit of a task's name, which names its folder; file systems allow 255 bytes.
TASK_ID_BYTES_MAX = 200
_PICKLING = "values of a task are sent to another process; create locks, files and connections in the task instead"
#: Names of Ray and others, and the names used here.
_OTHER_WORDS = {"CPU": "cpu", "GPU": "gpu", "num_cpus": "cpu", "num_gpus": "gpu"}


def read_amounts(amounts: Any) -> ResourceSet:
    """Parse a user's resources. Raises `SubmissionError` for invalid ones."""
    if isinstance(amounts, ResourceSet):
        return amounts
    if not isinstance(amounts, Mapping):
        raise SubmissionError(f'{amounts!r} are not amounts; write them by name, like {{"cpu": 1, "memory": "1GiB"}}')
    for name in amounts:
        if not isinstance(name, str) or not name:
            raise SubmissionError(f"{name!r} is not a resource name; write cpu, gpu, memory, or the name of a custom resource")
        if name in _OTHER_WORDS:
            raise SubmissionError(f"there is no resource {name!r}; write {_OTHER_WORDS[name]!r}")
    try:
        return ResourceSet.of(amounts)
    except AmountError as error:
        raise SubmissionError(f"{error}; give amounts of zero or more") from None


def read_bundles(shape: Any) -> tuple[ResourceSet, ...]:
    """Parse one bundle, or several. Raises `SubmissionError` for invalid ones."""
    if isinstance(shape, Mapping):
        return (read_amounts(shape),)
    if not isinstance(shape, (list, tuple)):
        raise SubmissionError(f'{shape!r} is not a shape of a placement group; give its amounts, like {{"cpu": 1}}, or a list of bundles')
    return tuple(map(read_amounts, shape)) or (NOTHING,)


#: Resources as a user writes them, `{"cpu": 1, "memory": "1GiB"}`, or as a value; parsed when a call begins.
Amounts = Annotated[Mapping[str, object] | ResourceSet, PlainValidator(read_amounts)]
#: A placement group as a user writes it: one bundle, or a list of them.
Bundles = Annotated[Mapping[str, object] | ResourceSet | Sequence[Mapping[str, object] | ResourceSet], PlainValidator(read_bundles)]


def required(parameter: str, value: str) -> str:
    """Return the name; raise `SubmissionError` if it is empty, or would move a terminal's cursor."""
    if not isinstance(value, str) or not value:
        raise SubmissionError(f"{parameter} is missing; give a name that is not empty")
    try:
        return check_printable(value)
    except ValueError as error:
        raise SubmissionError(f"{parameter}: {error}") from None


def read_task_id(name: str | None, parameter: str = "task_id") -> TaskId:
    """Return the given name, or a new one. Raises `SubmissionError` for an empty name, or one too long for a folder name."""
    if name is None:
        return TaskId(f"task-{uuid.uuid4().hex[:12]}")
    written = quote(required(parameter, name), safe="", errors="replace")
    if len(written) > TASK_ID_BYTES_MAX:
        raise SubmissionError(
            f"{parameter} {name[:20]!r}… takes {counted(len(written), 'byte')} as a folder name; choose a shorter one, at most "
            f"{TASK_ID_BYTES_MAX} letters, digits, dots, dashes and underscores (any other character takes 3 bytes or more)"
        )
    return TaskId(name)


def read_job_spec(spec: JobSpec | Mapping[str, Any] | str | Path) -> JobSpec:
    """Parse a job from a value, a mapping, YAML text, or the path of a YAML file."""
    if isinstance(spec, JobSpec):
        return spec
    if isinstance(spec, Mapping):
        return read_job(spec)
    try:
        raw = yaml.safe_load(spec.read_text(encoding="utf-8") if isinstance(spec, Path) else spec)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SubmissionError(f"spec: {error}") from None
    if not isinstance(raw, dict):
        what = f"{spec!r} is a file name, give Path({spec!r})" if _is_file(spec) else "it is not a YAML mapping"
        raise SubmissionError(f"spec: {what}; give a JobSpec, a mapping, the text of a YAML document, or the Path of one")
    return read_job(raw)


def _is_file(spec: object) -> bool:
    return isinstance(spec, str) and "\n" not in spec and spec.endswith((".yaml", ".yml", ".json"))


def read_class(actor_class: Any, parameter: str = "actor_class") -> bytes:
    """Pickle the class. Raises `SubmissionError` for a value that is not a class, or cannot be pickled."""
    plain = plain_class(actor_class)
    if not isinstance(plain, type):
        raise SubmissionError(f"{parameter} is {plain!r}, not a class; give the class, and its arguments in `args`")
    try:
        return pickled_class(plain)
    except Exception as error:
        raise SubmissionError(f"{parameter}: {_described(error)}; {_PICKLING}") from error


def read_values(parameter: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PickledArguments:
    """Pickle the arguments of a call; `parameter` is their prefix in messages, as in `method_args` and `method_kwargs`.

    Raises:
        SubmissionError: An argument cannot be pickled; the message names it.
    """
    try:
        return pickled_arguments(*args, **kwargs)
    except Exception as error:
        for place, value in (*enumerate(args), *kwargs.items()):
            _check_travels(f"{parameter}{'kw' if isinstance(place, str) else ''}args[{place!r}]", value)
        raise SubmissionError(f"{parameter}args: {_described(error)}; {_PICKLING}") from error


def unsendable(method: str, args: Sequence[Any], kwargs: Mapping[str, Any], refused: Exception) -> Exception:
    """Return the error for a call that Ray refused to send: one that names the wrong argument, or Ray's own if none is wrong."""
    try:
        read_values(f"{method}(): ", args, kwargs)
    except SubmissionError as wrong:
        return ArgumentError(str(wrong))
    return refused


def read_handlers(handlers: StateHandlers) -> bytes:
    """Pickle state handlers. Raises `SubmissionError` when they cannot be pickled."""
    try:
        return pickled_handlers(handlers)
    except Exception as error:
        raise SubmissionError(f"state_handlers: {_described(error)}; {_PICKLING}") from error


def read_method(actor_class: Any, method: str | None, parameter: str = "method") -> str | None:
    """Return the method's name if objects of the class have it.

    Raises:
        SubmissionError: The class has no such method, and no `__getattr__` that could provide it.
    """
    plain = plain_class(actor_class)
    if method is None or callable(getattr(plain, method, None)) or hasattr(plain, "__getattr__"):
        return method
    known = tuple(name for name in dir(plain) if not name.startswith("_") and callable(getattr(plain, name, None)))
    shown = f"it has {', '.join(known)}" if known else "it has none"
    kind = getattr(plain, "__qualname__", plain)
    raise SubmissionError(f"{parameter} is {method!r}, and {kind} has no such method; {shown}{nearest(method, known)}")


def _check_travels(what: str, value: Any) -> None:
    try:
        check_picklable(value, what=what)
    except TypeError as error:
        raise SubmissionError(f"{error}; {_PICKLING}") from error


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, TypeError) else str(error)
