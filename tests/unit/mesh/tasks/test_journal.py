"""Lines of the journal, and a scheduler restored from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import pytest

from mesh.core.json_codec import JsonCodecError, TaggedCodec, codec_of, json_text
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.core.task_spec import TaskRequest, Weights
from mesh.tasks.decisions import EndTask, StartTask
from mesh.tasks.events import NodeJoined, PoolConfigured, TaskEnded, TaskSubmitted, Ticked
from mesh.tasks.journal import Batch, JournalError, decode, encode, is_whole, read

ONE_CPU = ResourceSet.of({"cpu": 1})


def submitted(task="t", at_ms=1, **facts):
    return TaskSubmitted(at_ms=at_ms, request=TaskRequest(task=task, pool="p", resources=ONE_CPU, **facts))


def started(task="t", version=1):
    return StartTask(
        version=version, task=task, attempt=1, agent="a", node="n", group=None, resources=ONE_CPU, reason=Reason.PLACED, resume=False
    )


class Countdown:
    """Scheduler that starts every submission until its room is used up."""

    def __init__(self, room=2):
        self.room = room
        self.version = 0

    def handle(self, *events):
        self.version += 1
        decisions = []
        for event in events:
            if isinstance(event, TaskSubmitted) and self.room:
                self.room -= 1
                decisions.append(started(event.request.task, self.version))
            if isinstance(event, TaskEnded):
                self.room += 1
                decisions.append(EndTask(version=self.version, task=event.task, reason=Reason.FINISHED))
        return decisions


def lived(*batches, room=2):
    """Return the lines of a scheduler that has handled these batches."""
    scheduler = Countdown(room)
    lines = []
    for events in batches:
        decisions = scheduler.handle(*events)
        lines.append(encode(scheduler.version, events, decisions))
    return lines


EVENTS = (
    (submitted("a"), submitted("b")),
    (submitted("c", at_ms=5),),
    (TaskEnded(at_ms=9, task="a", attempt=1),),
    (submitted("d", at_ms=10),),
)


def test_s14_a_decision_is_in_the_line_with_what_it_answers():
    line = encode(17, [submitted()], [started()])
    assert json.loads(line) | {"crc": ""} == {
        "f": 1,
        "v": 17,
        "events": [{"kind": "TaskSubmitted", "at_ms": 1, "request": {"task": "t", "pool": "p", "resources": {"cpu": 10_000}}}],
        "decisions": [
            {
                "kind": "StartTask",
                "version": 1,
                "task": "t",
                "attempt": 1,
                "agent": "a",
                "node": "n",
                "group": None,
                "resources": {"cpu": 10_000},
                "reason": "PLACED",
            }
        ],
        "crc": "",
    }


def test_nested_values_come_back():
    spec = PoolSpec(
        pool="p",
        capacity=ResourceSet.of({"cpu": 4, "memory": "8GiB"}),
        selector={"zone": "east"},
        groups=GroupPoolSpec(reserved=(GroupShape((ONE_CPU, ONE_CPU), "STRICT_SPREAD"),), idle_ms=5),
        is_protected=True,
    )
    events = (
        PoolConfigured(at_ms=0, spec=spec),
        NodeJoined(at_ms=1, node="n", total=ONE_CPU, labels={"gpu": "a100"}),
        submitted(weights=Weights(locality=0.1 + 0.2), local_bytes={"n": 2**40}, after=("x", "y"), priority=8.000000000000002),
    )
    assert decode(encode(1, events, ())) == Batch(1, events, ())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"f": 2}, "the format is 2, this program reads 1", id="a format of another program"),
        pytest.param({"events": [{"kind": "Exploded", "at_ms": 1}]}, "unknown kind 'Exploded'", id="an unknown kind"),
        pytest.param({"events": [{"kind": "Ticked", "at_ms": 1, "x": 1}]}, "Ticked has no field 'x'", id="an unknown field"),
        pytest.param({"events": [{"kind": "Ticked"}]}, "Ticked lacks at_ms", id="a field that is missing"),
        pytest.param(
            {"events": [{"kind": "Ticked", "at_ms": "1"}]},
            "at_ms '1': Input should be a",
            id="a field of another type",
        ),
        pytest.param(
            {"events": [{"kind": "Ticked", "at_ms": True}]},
            "at_ms True: Input should be a",
            id="a truth value for a number",
        ),
        pytest.param({"v": None}, "int None: Input should be a valid integer", id="no version"),
        pytest.param(
            {"decisions": [{"kind": "EndTask", "version": 1, "task": "t", "reason": "WHIM"}]},
            "EndTask.reason 'WHIM': Input should be",
            id="an unknown reason",
        ),
    ],
)
def test_an_unreadable_line_is_an_error_with_its_number(change: dict, words: str):
    line = with_checksum({"f": 1, "v": 1, "events": [], "decisions": []} | change)
    with pytest.raises(JournalError, match=f"^line 3: .*{words}"):
        decode(line, 3)


def with_checksum(plain: dict) -> bytes:
    """Return a line with a valid checksum."""
    import zlib

    body = json.dumps(plain, separators=(",", ":"))[:-1].encode()
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


def test_an_unknown_kind_is_no_torn_line_even_at_the_end():
    line = with_checksum({"f": 1, "v": 1, "events": [{"kind": "Exploded"}], "decisions": []})
    with pytest.raises(JournalError, match="Exploded"):
        list(read([line]))


def test_a_torn_last_line_is_left_out():
    lines = lived(*EVENTS)
    assert len(list(read([*lines[:2], lines[2][:-1]]))) == 2
    assert len(list(read([*lines[:2], lines[2][:40]]))) == 2


def test_a_damaged_line_in_the_middle_is_an_error():
    lines = lived(*EVENTS)
    with pytest.raises(JournalError, match=r"^line 2: wrong checksum"):
        list(read([lines[0], lines[1].replace(b"c", b"k", 1), lines[2]]))


def test_a_line_tells_whether_it_is_whole():
    line = encode(1, (Ticked(at_ms=1),), ())
    assert is_whole(line)
    assert not is_whole(line[:-1])
    assert not is_whole(b"\n")
    assert not is_whole(bytes(len(line) - 1) + b"\n")


def test_what_has_no_plain_form_is_refused_when_it_is_written():
    with pytest.raises(JournalError, match="version 9 cannot be encoded"):
        encode(9, (submitted(task=object()),), ())
    with pytest.raises(JournalError, match="Batch is not among"):
        encode(9, (Batch(1, (), ()),), ())


def test_half_a_surrogate_pair_does_not_stop_a_replay():
    event = TaskEnded(at_ms=1, task="t", attempt=1, error="ValueError: no file a\udcff")
    (again,) = decode(encode(1, (event,), ())).events
    assert again == replace(event, error="ValueError: no file a?")


def test_lines_may_be_text():
    line = encode(1, (Ticked(at_ms=1),), ()).decode()
    assert decode(line) == Batch(1, (Ticked(at_ms=1),), ())


# -- plain values ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixed:
    pair: tuple[str, float] = ("a", 0.5)
    maybe: ResourceSet | None = None
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ByName:
    values: Mapping[str, Mixed]


@dataclass(frozen=True)
class Tagged:
    kind: str


def test_values_at_their_defaults_are_left_out():
    form = codec_of(Mixed)
    assert form.encode(Mixed()) == {}
    assert form.encode(Mixed(maybe=ONE_CPU)) == {"maybe": {"cpu": 10_000}}
    assert form.decode({"pair": ["x", 1]}) == Mixed(pair=("x", 1))


def test_a_set_of_names_is_written_in_order():
    form, value = codec_of(Mixed), Mixed(names=frozenset({"b", "c", "a"}))
    text = json_text(form.encode(value))
    assert text == '{"names":["a","b","c"]}'
    assert form.decode(json.loads(text)) == value


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: codec_of(Mixed).decode({"pair": ["x"]}), id="too short a pair"),
        pytest.param(lambda: codec_of(Mixed).decode([]), id="an array for an object"),
        pytest.param(lambda: codec_of(Mixed).decode({"pair": "b"}), id="text for an array"),
        pytest.param(lambda: codec_of(Mixed).decode({"maybe": {"cpu": -1}}), id="a negative amount"),
        pytest.param(lambda: TaggedCodec([Tagged]), id="a field that is named as the tag is"),
    ],
)
def test_what_has_no_form_is_an_error(wrong):
    with pytest.raises(JsonCodecError):
        wrong()


def test_dataclasses_in_a_read_only_mapping_are_encoded():
    codec = codec_of(ByName)
    written = json_text(codec.encode(ByName(MappingProxyType({"a": Mixed(maybe=ONE_CPU)}))))
    assert written == '{"values":{"a":{"maybe":{"cpu":10000}}}}'
    assert codec.decode(json.loads(written)) == ByName({"a": Mixed(maybe=ONE_CPU)})
