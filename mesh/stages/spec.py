"""Stage as a mesh gets it: its tasks, and where their arguments come from.

Everything here is JSON on the wire; the tasks are columns in one text (`StageTasks`). Functions and arguments that JSON cannot carry
are named by the SHA-256 of their pickled bytes; only a runner of the tenant reads those bytes.

An argument form is a JSON value in which an object with one `$` key stands for something else:
`{"$ref": node, "path": [...]}` another task's value (or a part of it), `{"$blob": sha256}` a pickled value,
`{"$uri": url}` the address itself, `{"$tuple": [...]}` a tuple of forms, `{"$$x": ...}` an object whose key is `$x`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import msgpack
import numpy as np
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from mesh.core.ids import NodeId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import Gang
from mesh.core.values import StoredValue
from mesh.core.wire import decode, encode
from mesh.errors import RuntimeAdapterError
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.call_shapes import Shape, ShapeWriter, blobs_of
from mesh.stages.calls import Calls, array_of, json_of, numbers, packed, raw_of, unpacked

#: Bound of a priority, and of a negative one.
PRIORITY_MAX = 1_000_000
#: A JSON value, with the `$` objects above.
ArgumentForm = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """Node of a graph as the mesh runs it."""

    node: NodeId
    attempt: int  #: From 1; a report with another attempt is out of date.
    function: str  #: `call:module:qualname` or `blob:<sha256>`.
    args: tuple[ArgumentForm, ...] = ()
    kwargs: dict[str, ArgumentForm] = field(default_factory=dict)
    inputs: tuple[NodeId, ...] = ()  #: Nodes whose values the arguments read, each once, in order of first use.
    after: tuple[NodeId, ...] = ()  #: Nodes that must succeed first; their values are not passed.
    resources: ResourceSet = NOTHING
    ray_options: dict[str, Any] = field(default_factory=dict)  #: Passed to Ray unchanged: `max_retries`, `label_selector`, …
    export: bool = False  #: Whether the value leaves the mesh: another mesh or the user reads it.
    checkpoint: StoredValue | None = None  #: The last one that an earlier attempt saved.
    gang: Gang | None = None  #: Its placement group, for what its code starts: the task itself takes nothing. `resources` is the sum.
    num_returns: int = 1  #: Number of outputs that its value must have; 1: it is one.
    is_isolated: bool = False  #: Whether it runs as a Ray task of its own, not in a worker that runs others too.
    start_to_close_ms: int | None = None  #: Longest run time of the attempt; None: no limit.

    def blobs(self) -> Iterator[str]:
        """Yield the hashes of the pickled bytes that the task names: its function, arguments that JSON cannot carry, its checkpoint."""
        if self.function.startswith("blob:"):
            yield self.function.removeprefix("blob:")
        for form in (*self.args, *self.kwargs.values()):
            yield from blobs_of(form)
        if self.checkpoint is not None and self.checkpoint.uri is None:
            yield self.checkpoint.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """Resources and options that tasks which were written alike share."""

    resources: ResourceSet = NOTHING
    ray_options: dict[str, Any] = field(default_factory=dict)
    gang: Gang | None = None
    num_returns: int = 1
    is_isolated: bool = False
    start_to_close_ms: int | None = None


_KINDS = tuple[TaskKind, ...]
_CHECKPOINTS = tuple[tuple[int, StoredValue], ...]


class StageTasks(Sequence[TaskSpec]):
    """Tasks of a stage as columns. A `TaskSpec` is made when it is asked for.

    On the wire they are the base64 of a flat msgpack map: the columns of `mesh.stages.calls`, and what only a stage has.

    Args:
        calls: In topological order.
        kinds: Those that `calls.kind` refers to.
        attempts: Attempts other than the first, by place.
        exported: Places of the tasks whose values leave the mesh.
        checkpoints: The last checkpoint of tasks that have one, by place.
    """

    def __init__(
        self,
        calls: Calls,
        kinds: tuple[TaskKind, ...],
        *,
        attempts: Mapping[int, int],
        exported: frozenset[int],
        checkpoints: Mapping[int, StoredValue],
        text: str = "",
    ) -> None:
        self.calls = calls
        self.kinds = kinds
        self.attempts = attempts
        self.exported = exported
        self.checkpoints = checkpoints
        self._text = text
        self._made: list[TaskSpec | None] = [None] * len(calls)

    def __len__(self) -> int:
        return len(self.calls)

    @overload
    def __getitem__(self, place: int) -> TaskSpec: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[TaskSpec, ...]: ...
    def __getitem__(self, place: int | slice) -> TaskSpec | tuple[TaskSpec, ...]:
        if isinstance(place, slice):
            return tuple([self[each] for each in range(*place.indices(len(self)))])
        made = self._made[place]
        if made is None:
            made = self._made[place] = self._task(range(len(self))[place])
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (StageTasks, tuple)) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as equal tuples of tasks, which hold dicts

    def __repr__(self) -> str:
        return repr(tuple(self))

    @property
    def gang(self) -> Gang | None:
        """Return the gang that each task is."""
        return self.kinds[self.calls.kind_of(0)].gang if len(self) else None

    def blobs(self) -> frozenset[str]:
        """Return the hashes of all pickled bytes that the tasks name."""
        return self.calls.blobs().union(stored.sha256 for stored in self.checkpoints.values() if stored.uri is None)

    def _task(self, place: int) -> TaskSpec:
        call = self.calls.call(place)
        kind = self.kinds[call.kind]
        return TaskSpec(
            node=self.calls.ids[place],
            attempt=self.attempts.get(place, 1),
            function=call.function,
            args=call.args,
            kwargs=call.kwargs,
            inputs=call.inputs,
            after=call.after,
            resources=kind.resources,
            ray_options=kind.ray_options,
            export=place in self.exported,
            checkpoint=self.checkpoints.get(place),
            gang=kind.gang,
            num_returns=kind.num_returns,
            is_isolated=kind.is_isolated,
            start_to_close_ms=kind.start_to_close_ms,
        )

    def as_text(self) -> str:
        """Return the tasks as on the wire; the same text for tasks that were read from one."""
        if not self._text:
            calls = self.calls
            message: dict[str, Any] = {**packed(calls), "outside": "\n".join(calls.outside)}
            message["tables"] = json_of([calls.functions, [[shape.args, shape.kwargs] for shape in calls.shapes]])
            message["kinds"] = encode(self.kinds, _KINDS)
            if self.attempts:
                message["attempts"] = raw_of(np.array(sorted(self.attempts.items())))
            if self.exported:
                message["exported"] = raw_of(np.array(sorted(self.exported)))
            if self.checkpoints:
                message["checkpoints"] = encode(tuple(sorted(self.checkpoints.items())), _CHECKPOINTS)
            self._text = base64.b64encode(msgpack.packb(message)).decode()
        return self._text

    @classmethod
    def of(cls, tasks: Sequence[TaskSpec]) -> StageTasks:
        """Return tasks as columns."""
        ids = tuple([task.node for task in tasks])
        number_of: dict[NodeId, int] = {node: place for place, node in enumerate(ids)}
        functions: dict[str, int] = {}
        shapes: dict[str, tuple[int, Shape]] = {}
        kinds: dict[str, tuple[int, TaskKind]] = {}
        rows: list[tuple[int, int, int]] = []
        inputs: list[int] = []
        values: list[Any] = []
        ordered: list[tuple[int, int]] = []
        for place, task in enumerate(tasks):
            written = ShapeWriter()
            args = tuple([written.argument(form, NodeId) for form in task.args])
            kwargs = {name: written.argument(form, NodeId) for name, form in task.kwargs.items()}
            shape = Shape(args, kwargs, len(written.inputs), len(written.values))
            kind = TaskKind(
                resources=task.resources,
                ray_options=task.ray_options,
                gang=task.gang,
                num_returns=task.num_returns,
                is_isolated=task.is_isolated,
                start_to_close_ms=task.start_to_close_ms,
            )
            rows.append(
                (
                    functions.setdefault(task.function, len(functions)),
                    shapes.setdefault(repr(shape), (len(shapes), shape))[0],
                    kinds.setdefault(repr(kind), (len(kinds), kind))[0],
                )
            )
            inputs += [number_of.setdefault(node, len(number_of)) for node in written.inputs]
            values += written.values
            ordered += [(place, number_of.setdefault(node, len(number_of))) for node in task.after]
        calls = Calls(
            ids=ids,
            functions=tuple(functions),
            shapes=tuple([shape for _, shape in shapes.values()]),
            function=numbers(function for function, _, _ in rows),
            shape=numbers(shape for _, shape, _ in rows),
            kind=numbers(kind for _, _, kind in rows),
            inputs=numbers(inputs),
            values=values,
            ordered=numbers(waits for waits, _ in ordered),
            after=numbers(needed for _, needed in ordered),
            outside=tuple(number_of)[len(ids) :],
        )
        return cls(
            calls,
            tuple([kind for _, kind in kinds.values()]),
            attempts={place: task.attempt for place, task in enumerate(tasks) if task.attempt > 1},
            exported=frozenset(place for place, task in enumerate(tasks) if task.export),
            checkpoints={place: task.checkpoint for place, task in enumerate(tasks) if task.checkpoint is not None},
        )

    @classmethod
    def of_text(cls, text: str) -> StageTasks:
        """Return the tasks of a text that `as_text` has written.

        Raises:
            ValueError: The text is damaged.
        """
        try:
            raw = msgpack.unpackb(base64.b64decode(text, validate=True))
            functions, shapes = json.loads(raw["tables"])
            outside = tuple(map(NodeId, raw["outside"].split("\n"))) if raw["outside"] else ()
            attempts = array_of(raw, "attempts").tolist()
            return cls(
                unpacked(raw, functions, shapes, outside),
                decode(_KINDS, raw["kinds"]),
                attempts=dict(zip(attempts[::2], attempts[1::2], strict=True)),
                exported=frozenset(array_of(raw, "exported").tolist()),
                checkpoints=dict(decode(_CHECKPOINTS, raw["checkpoints"])) if "checkpoints" in raw else {},
                text=text,
            )
        except (binascii.Error, ValueError, TypeError, LookupError, OverflowError, AttributeError, RuntimeAdapterError) as broken:
            raise ValueError(f"the tasks of a stage are damaged: {broken!r}") from None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the wire schema: a text."""
        return core_schema.no_info_after_validator_function(
            cls.of_text,
            core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(cls.as_text, return_schema=core_schema.str_schema()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """Part of a run that one mesh gets as one workload. Not a barrier: each task starts when its own inputs are there."""

    stage: StageId
    run: RunId
    tenant: TenantPath
    tasks: tuple[TaskSpec, ...] | StageTasks  #: In topological order.
    slot: ResourceSet  #: Covers every single task; quota and room are granted in slots.
    width: int  #: How many tasks could run at once: the most slots that are useful.
    priority: int = 0  #: Higher goes first.
    runtime_env: dict[str, Any] = field(default_factory=dict)  #: Ray's runtime environment of the tenant's runner.
    created_ms: int = 0  #: When its run was submitted, since the epoch. A stage that runs again after a preemption keeps it.
    preemption: PreemptionPolicy = NEVER_PREEMPTS  #: Whether it preempts less urgent stages of its tenant.
    deadline_ms: int | None = None  #: Time from its claim until it is withdrawn from the mesh; None: no limit.
    traceparent: str = ""  #: Context of the span of its run, which its tasks get; empty: nobody traces the run.

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Return the nodes of the tasks, in topological order."""
        return self.tasks.calls.ids if isinstance(self.tasks, StageTasks) else tuple(task.node for task in self.tasks)

    def needs(self) -> Iterator[tuple[NodeId, ...]]:
        """Yield the nodes that each task reads or waits for, each once."""
        if isinstance(self.tasks, StageTasks):
            return self.tasks.calls.needs()
        return (tuple(dict.fromkeys((*task.inputs, *task.after))) for task in self.tasks)

    def functions(self) -> Iterator[str]:
        """Yield the function of each task."""
        return self.tasks.calls.function_names() if isinstance(self.tasks, StageTasks) else (task.function for task in self.tasks)

    def later_attempts(self) -> dict[NodeId, int]:
        """Return the attempts of the tasks that run again."""
        if isinstance(self.tasks, StageTasks):
            return {self.tasks.calls.ids[place]: attempt for place, attempt in self.tasks.attempts.items()}
        return {task.node: task.attempt for task in self.tasks if task.attempt > 1}

    def resuming(self) -> Iterator[TaskSpec]:
        """Yield the tasks of which an earlier attempt has saved a checkpoint."""
        if isinstance(self.tasks, StageTasks):
            return (self.tasks[place] for place in self.tasks.checkpoints)
        return (task for task in self.tasks if task.checkpoint is not None)

    @property
    def gang(self) -> Gang | None:
        """Return the gang that each slot is; tasks with different gangs share no stage."""
        if isinstance(self.tasks, StageTasks):
            return self.tasks.gang
        return self.tasks[0].gang if self.tasks else None

    def blobs(self) -> frozenset[str]:
        """Return the hashes of all pickled bytes that the stage's tasks name."""
        if isinstance(self.tasks, StageTasks):
            return self.tasks.blobs()
        return frozenset(sha256 for task in self.tasks for sha256 in task.blobs())

    def external_inputs(self) -> frozenset[NodeId]:
        """Return the nodes outside the stage that its tasks read or wait for."""
        if isinstance(self.tasks, StageTasks):
            return frozenset(self.tasks.calls.outside)
        inside = {task.node for task in self.tasks}
        return frozenset(node for task in self.tasks for node in (*task.inputs, *task.after) if node not in inside)
