"""Arguments of the tasks of a chunk: what each reader gets, and what no reader sees of another."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from mesh.core.values import Encoding
from mesh.ray.worker.chunk_calls import ChunkCall
from mesh.ray.worker.chunk_values import ChunkValues
from mesh.ray.worker.execution import TaskCall
from mesh.stages.call_shapes import Shape

CALL = TaskCall("r", "r.1", "n", 1, (), {}, (), {}, False, "file:///nowhere", 0)


def chunk(shapes: list[Shape], rows: list[tuple[int, list[int], list[Any]]], **given: Any) -> ChunkCall:
    """Return the call of a chunk; rows: the shape of each task, its inputs and its plain values."""
    return ChunkCall(
        number=1,
        run="r",
        stage="r.1",
        storage_url="file:///nowhere",
        inline_limit_bytes=0,
        functions=[("call:m:f", None)],
        shapes=shapes,
        nodes=[f"n{at}" for at in range(len(rows))],
        function=[0] * len(rows),
        shape=[shape for shape, _, _ in rows],
        inputs=[number for _, inputs, _ in rows for number in inputs],
        plain=[value for _, _, plain in rows for value in plain],
        **{
            "after": {},
            "attempts": {},
            "exported": frozenset(),
            "num_returns": {},
            "outside": [],
            "blobs": {},
            "values": {},
            "references": [],
            "large_blobs": 0,
            "stall_ms": 20.0,
            "late_ms": 100.0,
            **given,
        },
    )


def kept(values: ChunkValues, task: int, value: Any) -> None:
    values.note(task, value, pickle.dumps(value), Encoding.PICKLE)


NONE, ONE = Shape((), {}), Shape(({"$ref": 0},), {}, 1)


def arguments(values: ChunkValues, task: int) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = values.arguments(task, CALL, is_program=False)
    return list(args), kwargs


def test_no_reader_sees_what_another_one_changes():
    values = ChunkValues(chunk([NONE, ONE], [(0, [], []), (1, [0], []), (1, [0], [])]), {})
    made = [1]
    kept(values, 0, made)
    made.append(2)
    first, second = arguments(values, 1)[0][0], arguments(values, 2)[0][0]
    first.append(3)
    assert (first, second) == ([1, 3], [1])


class Objects:
    """Ray's objects: each read unpickles the value anew."""

    def __init__(self, **stored: Any) -> None:
        self._stored = {name: pickle.dumps(value) for name, value in stored.items()}
        self.reads = 0

    def get(self, name: str) -> Any:
        self.reads += 1
        return pickle.loads(self._stored[name])  # noqa: S301  written above


def test_each_reader_gets_a_large_value_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mesh.ray.worker.chunk_values.ray", Objects(stored=[1]))
    values = ChunkValues(chunk([ONE], [(0, [~0], []), (0, [~0], [])], outside=["far"], references=["far"]), {"far": "stored"})
    assert values.fetch(0) is None
    arguments(values, 0)[0][0].append(2)
    assert values.fetch(1) is None
    assert arguments(values, 1) == ([[1]], {})


def test_a_large_text_is_read_once(monkeypatch: pytest.MonkeyPatch):
    objects = Objects(stored="text")
    monkeypatch.setattr("mesh.ray.worker.chunk_values.ray", objects)
    values = ChunkValues(chunk([ONE], [(0, [~0], []), (0, [~0], [])], outside=["far"], references=["far"]), {"far": "stored"})
    assert [values.fetch(task) for task in (0, 1)] == [None, None]
    assert (arguments(values, 1), objects.reads) == ((["text"], {}), 1)


@pytest.mark.parametrize("value", [None, True, 7, 1.5, "text", b"bytes", {"a": 1}, [1, 2]])
def test_a_value_from_outside_arrives(value: Any):
    given = {"outside": ["x", "y"], "values": {"x": (b"1", "json"), "y": (pickle.dumps(value), "pickle")}}
    values = ChunkValues(chunk([ONE], [(0, [~1], []), (0, [~1], []), (0, [~0], [])], **given), {})
    assert [arguments(values, task)[0] for task in range(3)] == [[value], [value], [1]]


def test_plain_values_and_inputs_keep_their_places():
    shape = Shape(({"$value": 0}, {"$ref": 1}, {"$ref": 0}, {"$value": 1}), {}, 2, 2)
    values = ChunkValues(chunk([NONE, shape], [(0, [], []), (0, [], []), (1, [0, 1], ["a", "b"])]), {})
    kept(values, 0, "first")
    kept(values, 1, "second")
    assert arguments(values, 2) == (["a", "second", "first", "b"], {})


def test_other_forms_are_resolved():
    shape = Shape(({"$ref": 0, "path": ["k", 1]},), {"both": {"$list": [1, 2]}, "blob": {"$blob": "s"}}, 3, 0)
    rows = [(0, [], []), (0, [], []), (0, [], []), (1, [0, 1, 2], [])]
    call = chunk([NONE, shape], rows)
    values = ChunkValues(call, {})
    for task, value in enumerate(({"k": [5, 6]}, "one", "two")):
        kept(values, task, value)
    args, kwargs = values.arguments(3, CALL._replace(blobs={"s": pickle.dumps("blob")}), is_program=False)
    assert (list(args), kwargs) == ([6], {"both": ["one", "two"], "blob": "blob"})


def test_a_task_is_behind_those_that_it_reads_or_waits_for():
    rows = [(0, [], []), (0, [], []), (1, [0], []), (1, [~0], [])]
    values = ChunkValues(chunk([NONE, ONE], rows, after={2: (1,)}, outside=["x"], values={"x": (b"1", "json")}), {})
    assert [values.behind(task) for task in range(4)] == [[], [], [0, 1], []]


def test_an_input_that_is_not_there_is_an_error():
    values = ChunkValues(chunk([NONE, ONE], [(0, [], []), (1, [0], [])]), {})
    with pytest.raises(LookupError, match="n0"):
        arguments(values, 1)
