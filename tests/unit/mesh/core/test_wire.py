"""Values as JSON and back."""

from __future__ import annotations

import pytest

from federation.dispatch import STAGE_MESSAGES
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode, encode
from mesh.errors import RuntimeAdapterError
from mesh.stages.messages import InputLost, NodeSucceeded, StageEnded, StageWaiting
from mesh.stages.spec import StageSpec, TaskSpec

STORED = StoredValue(sha256="ab" * 32, size_bytes=3, encoding=Encoding.JSON)


def test_a_stage_comes_back_as_it_was():
    task = TaskSpec(
        node="n",
        attempt=2,
        function="call:work:do",
        args=(1, 2.5, None, {"$ref": "m", "path": ["a", 0]}, {"$tuple": [1]}),
        kwargs={"größe": "ä"},
        inputs=("m",),
        after=("k",),
        resources=ResourceSet.of({"cpu": 0.5, "memory": "4GiB"}),
        ray_options={"max_retries": -1},
        export=True,
    )
    spec = StageSpec(stage="r.1", run="r", tenant="acme", tasks=(task,), slot=task.resources, width=1, runtime_env={"env_vars": {"A": "b"}})
    assert decode(StageSpec, encode(spec)) == spec


def test_messages_come_back_as_the_kinds_that_they_were():
    messages = [
        NodeSucceeded(stage="s", node="n", attempt=1, started_ms=1, finished_ms=2, worker="h:1", stored=STORED),
        StageWaiting(stage="s", reason=Reason.QUOTA_EXHAUSTED, detail="full"),
        InputLost(stage="s", node="m"),
        StageEnded(stage="s"),
    ]
    assert decode(STAGE_MESSAGES, encode(messages, STAGE_MESSAGES)) == messages


def test_text_and_bytes_are_read_alike():
    assert decode(StoredValue, encode(STORED).decode()) == STORED


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half an object"),
        pytest.param(b"\xff\xfe", id="bytes that are no text"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"sha256": "a", "encoding": "json"}', id="a key is missing"),
        pytest.param(b'{"sha256": 1, "size_bytes": 1, "encoding": "json"}', id="a number where text belongs"),
        pytest.param(b'{"sha256": "a", "size_bytes": "1", "encoding": "json"}', id="text where a number belongs"),
        pytest.param(b'{"sha256": "a", "size_bytes": 1.5, "encoding": "json"}', id="a fraction where a whole number belongs"),
        pytest.param(b'{"sha256": "a", "size_bytes": true, "encoding": "json"}', id="a truth value where a number belongs"),
        pytest.param(b'{"sha256": "a", "size_bytes": 1, "encoding": "yaml"}', id="an unknown word"),
        pytest.param(b'{"sha256": "a", "size_bytes": 1, "encoding": "json", "more": 1}', id="an unknown key"),
    ],
)
def test_garbage_is_refused_and_named(data):
    with pytest.raises(RuntimeAdapterError, match="invalid data where a StoredValue was expected"):
        decode(StoredValue, data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'[{"kind": "stage_party", "stage": "s"}]', id="an unknown kind"),
        pytest.param(b'[{"stage": "s"}]', id="no kind"),
        pytest.param(b'[{"kind": "stage_ended", "stage": "s", "more": 1}]', id="an unknown key, inside a list"),
        pytest.param(b'{"kind": "stage_ended", "stage": "s"}', id="a message without its list"),
    ],
)
def test_garbage_among_messages_is_refused(data):
    with pytest.raises(RuntimeAdapterError):
        decode(STAGE_MESSAGES, data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"cpu": -1}', id="negative"),
        pytest.param(b'{"cpu": 0.5}', id="a fraction of a unit"),
        pytest.param(b'{"cpu": 9007199254740992}', id="more than a ledger holds"),
        pytest.param(b'{"cpu": null}', id="null"),
        pytest.param(b'["cpu"]', id="a list"),
    ],
)
def test_amounts_that_no_ledger_holds_are_refused(data):
    with pytest.raises(RuntimeAdapterError):
        decode(ResourceSet, data)
