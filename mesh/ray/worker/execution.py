"""Execution of a task on a worker: build the arguments, call the tenant's function, report the outcome.

Each task returns two objects: the value, which stays in Ray's object store, and a report of a few bytes, which is all that the runner
reads. A failed task raises an error that carries the report, so Ray itself stops every dependent task. Only this module reads the
tenant's code: neither the control plane nor the runner imports or unpickles it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import re
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import CodeType
from typing import Any, NamedTuple, TypeVar

import cloudpickle
import ray
from ray.exceptions import LocalRayletDiedError, NodeDiedError, OutOfMemoryError, TaskPlacementGroupRemoved, WorkerCrashedError

from mesh.core.counting import counted
from mesh.core.functions import PROGRAM, ActorCalls, GroupArgument, JobArgument, check_outputs, returned_graph
from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.errors import OutsideGroup
from mesh.ray.connection import keep_connected
from mesh.ray.programs.program import run_program
from mesh.ray.user_code.bounded_pickle import pickled_if_small
from mesh.ray.user_code.gang_room import note_group
from mesh.ray.user_code.interrupts import listen_for_cancel
from mesh.ray.user_code.node_output import OutputCapture
from mesh.ray.user_code.ownership import attribute_to
from mesh.ray.user_code.task_context import TaskPreempted, make_current
from mesh.ray.user_code.trace_scope import trace_scope
from mesh.ray.worker.elements import ElementsFailed, Rules, Unpicklable, run_elements, with_argument
from mesh.ray.worker.exporting import ValueUnreadable, ValueUnwritable, export, export_encoded, import_value, unpack
from mesh.ray.worker.group_host import has_lost_members, run_group
from mesh.ray.worker.job_host import is_lost, run_job
from mesh.ray.worker.job_member import OutputTarget
from mesh.ray.worker.plain_calls import as_plain, make_calls
from mesh.ray.worker.present_task import AttemptLost, PresentTask, Pulse
from mesh.ray.worker.streaming import check_repeated, handed_out
from mesh.ray.worker.watch_folder import register, watch_folder
from mesh.stages.arguments import resolve
from mesh.stages.arrays import UNKNOWN, ArrayArgument, Partial, Piece, Span, reduced
from mesh.stages.messages import FailedElement
from mesh.stages.spec import ArgumentForm

#: Largest pickled value that outlives the runner without being stored.
KEPT_BYTES_MAX = 64 * 1024
PICKLED_ERROR_BYTES_MAX = 64 * 1024
TEXT_CHARS_MAX = 32 * 1024
#: Longest name of an exception's class that is reported; the link to the root accepts no more.
CLASS_NAME_CHARS_MAX = 1_024
#: Largest number of base classes of an exception that are reported.
_BASES_MAX = 50
#: Depth to which a result is searched for values that must not leave a task; pickling finds the rest.
_SEARCH_DEPTH = 3
_SEARCH_PARTS_MAX = 1000
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


#: Remedy for nodes in a place where they do not make the graph grow.
_NODES_WITHIN = "return a node, or dag.continuation([…]) for several; elements of arrays and calls of actors cannot return nodes"

_REPEAT = re.compile(r"-\d+$")


class TaskCall(NamedTuple):
    """One call of a function; positional values travel beside it, in the order of `values`.

    The call travels as bytes: Ray takes about 0.2 ms more for an object of a class. It is a named tuple, like the report: each task pickles
    and unpickles it once, and a frozen dataclass with slots takes three times as long.
    """

    run: RunId
    stage: StageId
    node: NodeId
    attempt: int
    args: tuple[ArgumentForm, ...]
    kwargs: dict[str, ArgumentForm]
    values: tuple[str, ...]  #: Meaning of each positional value: a node whose value it is, or the hash of a pickled argument.
    blobs: dict[str, bytes]  #: Small pickled arguments.
    export: bool  #: Whether the value is written to the storage; else it stays on the mesh.
    storage_url: str
    inline_limit_bytes: int
    num_returns: int = 1  #: Number of outputs that the value must have; 1: it is one.
    spans: tuple[Span, ...] = ()  #: Elements of its value that are handed out while it runs.
    read: tuple[tuple[Span, bytes], ...] = ()  #: Elements of earlier attempts that were read, with their digests.
    traceparent: str = ""  #: Context of the span of the run; empty: nobody traces it.


@dataclass(frozen=True, slots=True)
class EncodedValue:
    """Bytes of a value from another mesh: the runner has verified them, the worker decodes them."""

    data: bytes
    encoding: Encoding


class TaskReport(NamedTuple):
    """Times and result of a task. Times in milliseconds since the epoch."""

    started_ms: int
    finished_ms: int
    worker: str  #: `host:pid`.
    stored: StoredValue | None = None
    data: bytes | None = None  #: Bytes of `stored`, when they go through the control store.
    kept: bytes | None = None  #: The value as a pickle, when it is small and was not stored: it outlives the runner.
    elements: int | None = None  #: Number of elements of the array that the task is the first part of.


@dataclass(frozen=True, slots=True)
class TaskFault:
    """Error of a failed task."""

    node: NodeId
    reason: Reason
    type_name: str
    message: str
    traceback: str
    pickled: bytes | None  #: The exception itself, when it is small and can be unpickled.
    report: TaskReport
    bases: tuple[str, ...] = ()  #: Base classes of the exception, nearest first.
    elements: tuple[FailedElement, ...] = ()  #: Elements of a part of an array that failed; the exception is that of the first.
    of: int | None = None  #: Number of elements of that array.
    is_function: bool = False  #: Whether the function itself could not be loaded: no task with it can run here.
    grew: tuple[StoredValue, bytes | None] | None = None  #: Nodes that the function returned, which is no error: address, bytes if small.


class TaskCodeFailed(Exception):
    """Raised out of a failed task; `fault` is the report for the runner."""

    def __init__(self, fault: TaskFault) -> None:
        super().__init__(fault)
        self.fault = fault

    def __str__(self) -> str:
        return f"{self.fault.node}: {self.fault.type_name}: {self.fault.message}"


class _CodeUnavailable(Exception):
    """The function or an argument cannot be loaded on this worker; `__cause__` gives the reason."""

    is_function = False


class _FunctionUnavailable(_CodeUnavailable):
    is_function = True


class _Forbidden(Exception):
    """The result is of a kind that must not leave a task."""


class _Grew(Exception):
    """The function returned nodes in place of a value."""

    def __init__(self, stored: StoredValue, data: bytes | None) -> None:
        super().__init__("the function returned nodes")
        self.graph = stored, data


#: Errors of a task that waits for a child, when the child's worker, node or placement group is lost.
_LOST_CHILD = (WorkerCrashedError, NodeDiedError, LocalRayletDiedError, OutOfMemoryError, TaskPlacementGroupRemoved)

_pulse = Pulse()
_functions: dict[str, Callable[..., Any]] = {}
_host = socket.gethostname()


def task_of(key: str, code: bytes | None, *, name: str, runner: Any, mesh: MeshId) -> Callable[..., tuple[Any, TaskReport]]:
    """Return the function that Ray runs for the tenant's function `key`; Ray sends it to each worker once.

    Args:
        key: `call:module:qualname` or `blob:<sha256>`.
        code: The pickled function of a blob.
        name: Name that Ray's views show.
        runner: Handle of the runner; it travels here, once, and not with each call.
        mesh: Mesh whose watchdog stops the worker when the mesh's leases are no longer renewed.
    """

    def run_node(call: bytes, *values: Any) -> tuple[Any, TaskReport]:
        return run_attributed(runner, mesh, lambda: function_of(key, code), pickle.loads(call), values, is_program=key.startswith(PROGRAM))  # noqa: S301 - written by the runner

    # Ray's own views show the function's name as the name of the task.
    run_node.__name__ = run_node.__qualname__ = name
    return run_node


def run_attributed(
    runner: Any, mesh: MeshId, load: Callable[[], Callable[..., Any]], call: TaskCall, values: Sequence[Any], *, is_program: bool = False
) -> tuple[Any, TaskReport]:
    """Run the task in this process, with its output, and attribute to its node what it creates in Ray.

    Args:
        runner: Handle of the runner.
        load: Returns the function; its errors count as the task's.
        values: As `call.values` names them.

    Raises:
        TaskCodeFailed: The task failed.
    """
    register(mesh)
    keep_connected()
    heed_cancel()
    attribute_to(mesh, call.stage, call.node)
    note_group()
    output = capture_for(mesh)
    try:
        with output.of(lambda lines: runner.output.remote(lines).future(), call.stage, call.node, call.attempt):
            return _run(runner, load, call, values, is_program=is_program)
    finally:
        output.flush()


@cache
def capture_for(mesh: MeshId) -> OutputCapture:
    """Return the capture of this worker's output; its marks lie in the mesh's watch folder."""
    return OutputCapture(folder=watch_folder(mesh))


def shown_name(function: str, node: NodeId) -> str:
    """Return the name of a function, by its key, that Ray's views show; that of a pickled one, or a program, is in the name of its node.

    It is ASCII: Ray's worker exits at another name, so a command is no name.
    """
    return function.rpartition(":")[2] if function.startswith("call:") else _REPEAT.sub("", node)


def heed_cancel() -> None:
    """Make the worker react to SIGINT, by which Ray cancels.

    A worker ignores SIGINT if the process that started its cluster did, as shells do for processes in the background.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    listen_for_cancel()


def bring_in(stored: StoredValue) -> tuple[Any, TaskReport]:
    """Ray task: read a value that another mesh wrote.

    Raises:
        TaskCodeFailed: The value is gone, corrupt, or made of classes that are missing here.
    """
    started_ms = _now_ms()
    try:
        value = import_value(stored, None)
    except ValueUnreadable as unreadable:
        raise TaskCodeFailed(_fault(NodeId(stored.uri or stored.sha256), unreadable.reason, unreadable, started_ms)) from None
    return value, TaskReport(started_ms, _now_ms(), worker_name())


def _run(
    runner: Any, load: Callable[[], Callable[..., Any]], call: TaskCall, values: Sequence[Any], *, is_program: bool
) -> tuple[Any, TaskReport]:
    present = PresentTask(
        runner,
        run=call.run,
        stage=call.stage,
        node=call.node,
        attempt=call.attempt,
        storage_url=call.storage_url,
        inline_limit_bytes=call.inline_limit_bytes,
    )
    started_ms, has_succeeded = present.started_ms, False
    _pulse.begin(present)
    make_current(present.context)
    try:
        named = dict(zip(call.values, values, strict=False))
        done = guarded(call.node, started_ms, lambda: _finish(load(), call, named, present, is_program=is_program))
        has_succeeded = not isinstance(done, TaskFault)
    finally:
        _pulse.present = None
        make_current(None)
        if not has_succeeded:
            present.flush()
    if isinstance(done, TaskFault):
        # Raised outside the handler, so that the error that Ray pickles has no context to pickle.
        raise TaskCodeFailed(done)
    value, stored, data, kept = done
    return value, TaskReport(started_ms, _now_ms(), worker_name(), stored, data, kept, elements_of(value))


def _finish(function: Callable[..., Any], call: TaskCall, named: Mapping[str, Any], present: PresentTask, *, is_program: bool) -> Finish:
    may_leave = partial(_check, node=call.node)
    with handed_out(present.runner, call.stage, call.node, call.attempt, call.spans, call.read, may_leave):
        value = _called(function, call, named, is_program=is_program, runner=present.runner)
    if call.read:
        check_repeated(value, call.read)
    present.check_goes_on()
    return result_of(value, call)


#: The value of a task; its address and bytes when it is exported; its pickle when it is small and is not.
Finish = tuple[Any, StoredValue | None, bytes | None, bytes | None]
Done = TypeVar("Done")


def result_of(value: Any, call: TaskCall) -> Finish:
    """Store a value that leaves the mesh, and pickle a small one that does not.

    Raises:
        ValueUnwritable: The value cannot be pickled, or the storage refused it.
    """
    if not call.export:
        return value, None, None, pickled_if_small(value, KEPT_BYTES_MAX)
    stored, data = export(value, run=call.run, node=call.node, storage_url=call.storage_url, inline_limit_bytes=call.inline_limit_bytes)
    return value, stored, data, None


def elements_of(value: Any) -> int | None:
    """Return the number of elements of an array, if this is the value of its first part, or of its last one, which always knows it."""
    is_known = isinstance(value, Piece) and value.of != UNKNOWN
    return value.of if is_known and (value.first == 0 or value.first + len(value.values) == value.of) else None


def guarded(node: NodeId, started_ms: int, body: Callable[[], Done]) -> Done | TaskFault:
    """Return what the body returns, or the report of its error.

    Raises:
        KeyboardInterrupt: The task is cancelled.
        SystemExit: Ray ends the worker.
    """
    try:
        return body()
    except TaskPreempted as stopped:
        return _fault(node, Reason.PREEMPTED, stopped, started_ms)
    except _CodeUnavailable as missing:
        fault = _fault(node, Reason.CODE_UNAVAILABLE, missing.__cause__ or missing, started_ms, str(missing))
        return replace(fault, is_function=missing.is_function)
    except _Grew as grew:
        report = TaskReport(started_ms, _now_ms(), worker_name())
        return TaskFault(node, Reason.GRAPH_GREW, "", str(grew), "", None, report, grew=grew.graph)
    except _Forbidden as forbidden:
        return _fault(node, Reason.RESULT_UNSERIALIZABLE, TypeError(str(forbidden)), started_ms)
    except (ValueUnwritable, ValueUnreadable, AttemptLost) as refused:
        return _fault(node, refused.reason, refused, started_ms)
    except ElementsFailed as failed:
        fault = _fault(node, _reason_of_element(failed.first), failed.first, started_ms)
        return replace(fault, message=_short(str(failed)), elements=failed.elements, of=failed.of)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the tenant's code raises is reported; KeyboardInterrupt is a cancel
        if (end := _end_of_worker(error)) is not None:
            raise end from None  # Ray ends the worker, and the runner sees a lost worker, not an error of the tenant's code.
        return _fault(node, _reason_of(error), error, started_ms)


def _reason_of_element(error: BaseException) -> Reason:
    is_value = isinstance(error, (_Forbidden, Unpicklable))
    return Reason.RESULT_UNSERIALIZABLE if is_value else _reason_of(error)


def _reason_of(error: BaseException) -> Reason:
    if isinstance(error, OutsideGroup):
        return Reason.OUTSIDE_GROUP
    # A lost worker of a child is not an error of the code either.
    return Reason.WORKER_LOST if isinstance(error, _LOST_CHILD) or is_lost(error) or has_lost_members(error) else Reason.USER_ERROR


def _end_of_worker(error: BaseException) -> BaseException | None:
    """Return the `SystemExit` by which Ray's SIGTERM handler ends a worker, if the error is it or was caused by it; else None."""
    seen: dict[int, BaseException] = {}  # Causes may form a cycle.
    following = [error]
    while following:
        cause = following.pop()
        if hasattr(cause, "ray_terminate_msg"):
            return cause
        if id(cause) not in seen:
            seen[id(cause)] = cause
            following += [before for before in (cause.__cause__, cause.__context__) if before is not None]
    return None


def function_of(key: str, code: bytes | None) -> Callable[..., Any]:
    """Return the tenant's function, which is loaded once a process. Raises as `loaded`."""
    function = _functions.get(key)
    if function is None:
        function = _functions[key] = as_plain(loaded(key, code))
    return function


def _called(function: Callable[..., Any], call: TaskCall, named: Mapping[str, Any], *, is_program: bool, runner: Any = None) -> Any:
    args, kwargs = arguments_of(call, named, is_program=is_program) if call.args or call.kwargs else ((), {})
    return call_function(function, call, args, kwargs, runner)


def call_function(function: Callable[..., Any], call: TaskCall, args: Sequence[Any], kwargs: dict[str, Any], runner: Any = None) -> Any:
    """Call the tenant's function and check its value.

    Args:
        runner: Actor that takes the output of the members of a job; None: the call is no job.

    Raises:
        BaseException: The function did.
        _Grew: It returned nodes.
    """
    if call.traceparent:
        with trace_scope(call.traceparent, call.node, call.attempt):
            return call_function(function, call._replace(traceparent=""), args, kwargs, runner)
    for argument in (*args, *kwargs.values()):
        if type(argument) is ArrayArgument:
            return _call_array(function, args, kwargs, argument, call)
        if type(argument) is ActorCalls:
            return make_calls(function, args, kwargs, lambda method, value: _check(value, f"{call.node}.{method}"))
        if type(argument) is GroupArgument:
            target = OutputTarget(runner, call.stage, call.node, call.attempt)
            return run_group(function, args, kwargs, target=target, check=lambda method, value: _check(value, f"{call.node}.{method}"))
    if any(type(argument) is JobArgument for argument in (*args, *kwargs.values())):
        target = OutputTarget(runner, call.stage, call.node, call.attempt)
        value = run_job(function, args, kwargs, load=lambda key: loaded(key, None), target=target)
    else:
        value = function(*args, **kwargs)
    if type(value) not in _PLAIN and (graph := returned_graph(value)) is not None:
        raise _grown(graph, call)
    _check(value, call.node)
    if call.num_returns > 1:
        check_outputs(value, call.num_returns)
    return value


def _grown(graph: bytes, call: TaskCall) -> _Grew:
    """Store the nodes that a function returned. The bytes name the attempt, so that no two attempts have the same ones.

    Raises:
        TypeError: The node has several outputs.
        ValueUnwritable: The storage refused the bytes.
    """
    if call.num_returns > 1:
        raise TypeError(
            f"num_returns={call.num_returns}, but the function returned nodes: leave num_returns out, and read parts of the value"
        )
    data = b"%s %d\n%s" % (call.node.encode(), call.attempt, graph)
    stored, small = export_encoded(
        data,
        Encoding.GRAPH,
        run=call.run,
        node=call.node,
        storage_url=call.storage_url,
        inline_limit_bytes=call.inline_limit_bytes,
    )
    return _Grew(stored, small)


def _call_array(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], argument: ArrayArgument, call: TaskCall
) -> Any:
    """Return the value of a part of an array."""
    if not argument.is_reduce:
        rules = Rules(lambda value: _check(value, call.node), _end_of_worker)
        return run_elements(function, args, kwargs, argument, rules, call.attempt)
    one = with_argument(function, args, kwargs, argument)
    value = reduced(argument, one)
    for part in value.values if isinstance(value, Partial) else (value,):
        _check(part, call.node)
    return value


def arguments_of(call: TaskCall, named: Mapping[str, Any], *, is_program: bool) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments. The blobs of a program are bytes as they are, not pickles.

    Args:
        named: Values of nodes, and pickled arguments by SHA-256.
    """

    def value_of(node: NodeId) -> Any:
        value = named[node]
        return unpack(value.data, value.encoding) if isinstance(value, EncodedValue) else value

    def blob_of(sha256: str) -> Any:
        data = call.blobs.get(sha256) or named[sha256]
        if is_program:
            return data
        try:
            return pickle.loads(data)  # noqa: S301 - the tenant's own bytes, in the tenant's own worker
        except Exception as unknown:
            raise _CodeUnavailable(f"an argument of {call.node} cannot be unpickled here") from unknown

    args = [resolve(form, value_of=value_of, blob_of=blob_of) for form in call.args]
    return args, {name: resolve(form, value_of=value_of, blob_of=blob_of) for name, form in call.kwargs.items()}


def loaded(key: str, code: bytes | None) -> Callable[..., Any]:
    """Return the tenant's plain function or class.

    Raises:
        Exception: It cannot be loaded here; the task fails with CODE_UNAVAILABLE.
    """
    function: Any
    try:
        if key.startswith("blob:"):
            function = pickle.loads(code or b"")  # noqa: S301 - the tenant's own bytes, in the tenant's own worker
        elif key.startswith(PROGRAM):
            function = run_program
        else:
            module, _, qualname = key.removeprefix("call:").partition(":")
            function = importlib.import_module(module)
            for part in qualname.split("."):
                function = getattr(function, part)
    except (Exception, SystemExit) as missing:
        raise _FunctionUnavailable(_words_of_missing(key, missing)) from missing
    # A `@ray.remote` function keeps the plain one there, an actor class of Ray in what it makes of the class.
    made = getattr(getattr(function, "__ray_metadata__", None), "modified_class", None)
    plain: Callable[..., Any] = getattr(function, "_function", getattr(made, "__ray_actor_class__", function))
    return plain


def _words_of_missing(key: str, missing: BaseException) -> str:
    """Return what cannot be loaded, with the remedy for a module that is missing."""
    kind, _, name = key.partition(":")
    what = f"{name} cannot be loaded on this mesh" if kind == "call" else "the function cannot be loaded on this mesh"
    if isinstance(missing, ModuleNotFoundError) and missing.name:
        top = missing.name.partition(".")[0]
        what += f": no worker has the module {missing.name}; send it along, submit(…, by_value=[{top}]), or name its package in runtime_env"
    return what


def _check(value: Any, node: str) -> None:
    """Refuse values that have no meaning outside the task that made them.

    Raises:
        _Forbidden: Names the refused part.
    """
    if type(value) in _PLAIN:
        return
    level, parts = [value], 0
    for _ in range(_SEARCH_DEPTH):
        deeper: list[Any] = []
        for part in level:
            if isinstance(part, (ray.ObjectRef, ray.ObjectRefGenerator, ray.actor.ActorHandle)):
                raise _Forbidden(
                    f"the value of {node} holds a {type(part).__name__}, which means nothing outside of Ray; return the value behind it"
                )
            if hasattr(type(part), "__graph__"):
                raise _Forbidden(f"the value of {node} holds {part!r}, which has no value yet; {_NODES_WITHIN}")
            if inspect.isgenerator(part) or inspect.isasyncgen(part) or inspect.iscoroutine(part):
                raise _Forbidden(f"the value of {node} holds a {type(part).__name__}, which cannot be sent; return a list, or await it")
            if isinstance(part, dict):
                deeper.extend(part.values())
            elif isinstance(part, (list, tuple)):
                deeper.extend(part[:_SEARCH_PARTS_MAX])
        parts += len(deeper)
        if not deeper or parts > _SEARCH_PARTS_MAX:
            return
        level = deeper


def _fault(node: NodeId, reason: Reason, error: BaseException, started_ms: int, lead: str = "") -> TaskFault:
    message = f"{lead}: {type(error).__name__}: {error}" if lead else str(error)
    return TaskFault(
        node=node,
        reason=reason,
        type_name=class_name(type(error)),
        message=_short(message),
        traceback=_short(_users_traceback(error)),
        pickled=_pickled(error),
        report=TaskReport(started_ms, _now_ms(), worker_name()),
        bases=tuple(class_name(kind) for kind in type(error).__mro__[1:] if issubclass(kind, Exception))[:_BASES_MAX],
    )


def class_name(kind: type) -> str:
    """Return the full name of an exception's class as it is reported, cut to `CLASS_NAME_CHARS_MAX`."""
    return f"{kind.__module__}.{kind.__qualname__}"[:CLASS_NAME_CHARS_MAX]


def _users_traceback(error: BaseException) -> str:
    """Format the traceback without this project's own frames at its top."""
    frames = error.__traceback__
    while frames is not None and _is_own(frames.tb_frame.f_code):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_own(code: CodeType) -> bool:
    return code.co_filename in _OWN_FILES or os.path.dirname(code.co_filename) == _OWN_FOLDER  # noqa: PTH120  for each frame


_OWN_FOLDER = os.path.dirname(__file__)  # noqa: PTH120  as above
_OWN_FILES = frozenset({resolve.__code__.co_filename, importlib.import_module.__code__.co_filename})


def _pickled(error: BaseException) -> bytes | None:
    try:
        data = cloudpickle.dumps(error, protocol=5)
        if len(data) > PICKLED_ERROR_BYTES_MAX:
            return None
        pickle.loads(data)  # noqa: S301 - just made; many exceptions pickle and cannot be unpickled
    except Exception:  # noqa: BLE001 - after any error the report has only the text
        return None
    return bytes(data)


def _short(text: str) -> str:
    """Return the text, or its beginning and end: both ends of a traceback matter."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    half = TEXT_CHARS_MAX // 2
    return f"{text[:half]}\n... {counted(len(text) - 2 * half, 'character')} left out ...\n{text[-half:]}"


def worker_name() -> str:
    """Return `host:pid` of this process."""
    return f"{_host}:{os.getpid()}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
