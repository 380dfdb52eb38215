"""What users write for resources, names, classes and jobs, read into values; what cannot be read is named."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import yaml
from pydantic import PlainValidator

from mesh.counting import counted
from mesh.errors import AmountError
from mesh.ids import TaskId
from mesh.jobs.form import read_job
from mesh.jobs.spec import JobSpec
from mesh.near_names import nearest
from mesh.resources import NOTHING, ResourceSet
from mesh.runtime.supervision.agent_orders import PickledArguments
from mesh.runtime.supervision.pickled_code import check_picklable, pickled_arguments, pickled_class, pickled_handlers
from mesh.runtime.supervision.supervision_errors import ArgumentError, SubmissionError
from mesh.saved_state import StateHandlers, plain_class

#: Of a task's name: its folder is called by it, and file systems take 255 bytes.
TASK_ID_BYTES_MAX = 200
_PICKLING = "what a task gets is sent to another process: make there what cannot travel (locks, files, connections)"
#: What Ray and others call what is written otherwise here.
_OTHER_WORDS = {"CPU": "cpu", "GPU": "gpu", "num_cpus": "cpu", "num_gpus": "gpu"}


def read_amounts(amounts: Any) -> ResourceSet:
    """Resources as a user writes them. Raises `SubmissionError` when they are none."""
    if isinstance(amounts, ResourceSet):
        return amounts
    if not isinstance(amounts, Mapping):
        raise SubmissionError(f'{amounts!r} are no amounts; write them by name, like {{"cpu": 1, "memory": "1GiB"}}')
    for name in amounts:
        if not isinstance(name, str) or not name:
            raise SubmissionError(f"{name!r} is no name of a resource; write cpu, gpu, memory, or the name of one of your own")
        if name in _OTHER_WORDS:
            raise SubmissionError(f"there is no resource {name!r} here; write {_OTHER_WORDS[name]!r}")
    try:
        return ResourceSet.of(amounts)
    except AmountError as error:
        raise SubmissionError(f"{error}; give amounts of zero or more") from None


def read_bundles(shape: Any) -> tuple[ResourceSet, ...]:
    """One bundle, or several. Raises `SubmissionError` when they are none."""
    if isinstance(shape, Mapping):
        return (read_amounts(shape),)
    if not isinstance(shape, (list, tuple)):
        raise SubmissionError(f'{shape!r} is no shape of a placement group; give its amounts, like {{"cpu": 1}}, or a list of bundles')
    return tuple(map(read_amounts, shape)) or (NOTHING,)


#: What a user writes for resources: `{"cpu": 1, "memory": "1GiB"}`, or the value itself; read where a call begins.
Amounts = Annotated[Mapping[str, object] | ResourceSet, PlainValidator(read_amounts)]
#: The same for a placement group: one bundle, or a list of them.
Bundles = Annotated[Mapping[str, object] | ResourceSet | Sequence[Mapping[str, object] | ResourceSet], PlainValidator(read_bundles)]


def required(parameter: str, value: str) -> str:
    """A name that must not be empty."""
    if not isinstance(value, str) or not value:
        raise SubmissionError(f"{parameter} is missing: give a name that is not empty")
    return value


def read_task_id(name: str | None, parameter: str = "task_id") -> TaskId:
    """The name given, or a new one. Raises `SubmissionError` for one that is empty, or too long for a folder to be called by it."""
    if name is None:
        return TaskId(f"task-{uuid.uuid4().hex[:12]}")
    written = quote(required(parameter, name), safe="", errors="replace")
    if len(written) > TASK_ID_BYTES_MAX:
        raise SubmissionError(
            f"{parameter} {name[:20]!r}… takes {counted(len(written), 'byte')} as the name of a folder; choose a shorter one, at most "
            f"{TASK_ID_BYTES_MAX} letters, digits, dots, dashes and underscores (any other sign takes 3 bytes or more)"
        )
    return TaskId(name)


def read_job_spec(spec: JobSpec | Mapping[str, Any] | str | Path) -> JobSpec:
    """A job as a value, a mapping, YAML text, or the path of a YAML file."""
    if isinstance(spec, JobSpec):
        return spec
    if isinstance(spec, Mapping):
        return read_job(spec)
    try:
        raw = yaml.safe_load(spec.read_text(encoding="utf-8") if isinstance(spec, Path) else spec)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SubmissionError(f"spec: {error}") from None
    if not isinstance(raw, dict):
        what = f"{spec!r} is the name of a file: give Path({spec!r})" if _is_file(spec) else "it is no YAML mapping"
        raise SubmissionError(f"spec: {what}; a JobSpec, a mapping, the text of a YAML document, or the Path of one is wanted")
    return read_job(raw)


def _is_file(spec: object) -> bool:
    return isinstance(spec, str) and "\n" not in spec and spec.endswith((".yaml", ".yml", ".json"))


def read_class(actor_class: Any, parameter: str = "actor_class") -> bytes:
    """The class as it travels. Raises `SubmissionError` when it is none, or cannot travel."""
    plain = plain_class(actor_class)
    if not isinstance(plain, type):
        raise SubmissionError(f"{parameter} is {plain!r}, which is no class; give the class, and its arguments in `args`")
    try:
        return pickled_class(plain)
    except Exception as error:
        raise SubmissionError(f"{parameter}: {_told(error)}; {_PICKLING}") from error


def read_values(parameter: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PickledArguments:
    """Arguments of a call as they travel; `parameter` is what both are called, as `method_args` and `method_kwargs`.

    Raises:
        SubmissionError: One of them cannot be pickled; it is named.
    """
    try:
        return pickled_arguments(*args, **kwargs)
    except Exception as error:
        for place, value in (*enumerate(args), *kwargs.items()):
            _check_travels(f"{parameter}{'kw' if isinstance(place, str) else ''}args[{place!r}]", value)
        raise SubmissionError(f"{parameter}args: {_told(error)}; {_PICKLING}") from error


def unsendable(method: str, args: Sequence[Any], kwargs: Mapping[str, Any], refused: Exception) -> Exception:
    """What to raise when Ray refused to send a call: an error that names the argument, or Ray's own where none is to blame."""
    try:
        read_values(f"{method}(): ", args, kwargs)
    except SubmissionError as wrong:
        return ArgumentError(str(wrong))
    return refused


def read_handlers(handlers: StateHandlers) -> bytes:
    """State handlers as they travel. Raises `SubmissionError` when they cannot."""
    try:
        return pickled_handlers(handlers)
    except Exception as error:
        raise SubmissionError(f"state_handlers: {_told(error)}; {_PICKLING}") from error


def read_method(actor_class: Any, method: str | None, parameter: str = "method") -> str | None:
    """The name of a method that objects of the class have.

    Raises:
        SubmissionError: They have none of this name, and nothing that would stand in for it.
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


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if not isinstance(error, TypeError) else str(error)
