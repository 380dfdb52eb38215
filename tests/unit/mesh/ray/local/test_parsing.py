"""Parsing of users' classes, arguments and jobs, with errors by name."""

from __future__ import annotations

import re
import threading

import pytest

from mesh.errors import JobSpecError
from mesh.ray.local.client.parsing import (
    TASK_ID_BYTES_MAX,
    read_class,
    read_job_spec,
    read_method,
    read_task_id,
    read_values,
    unsendable,
)
from mesh.ray.local.pickled_code import read_arguments
from mesh.ray.local.store.payload_store import PayloadStore
from mesh.ray.local.supervision_errors import ArgumentError, PoolUnknown, SubmissionError

LOCK = threading.Lock()


class Locked:
    lock = LOCK


class Work:
    def run(self):
        return 1

    def _hidden(self):
        return 2


class Open:
    def __getattr__(self, name):
        return lambda: name


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        pytest.param((1, LOCK), {}, "args[1] (lock) cannot be pickled", id="the second of the list"),
        pytest.param((), {"start": [LOCK]}, "kwargs['start'] (list) cannot be pickled", id="one by name, deep inside"),
    ],
)
def test_an_argument_that_cannot_travel_is_named(args, kwargs, words):
    with pytest.raises(SubmissionError, match="^" + re.escape(words)):
        read_values("", args, kwargs)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("", "task_id is missing", id="empty"),
        pytest.param("a\x1b[2J", "task_id: character 2 of .* is a control character; leave it out", id="with an escape sequence"),
        pytest.param("a\udc80", "task_id: character 2 of .* is a control character", id="with half a surrogate pair"),
        pytest.param("x" * 300, "task_id 'xxxxxxxxxxxxxxxxxxxx'… takes 300 bytes as a folder name", id="of 300 letters"),
        pytest.param("ü" * 40, "takes 240 bytes", id="of signs that take six bytes each"),
    ],
)
def test_a_name_that_no_folder_can_have_is_refused(name, words):
    with pytest.raises(SubmissionError, match=words):
        read_task_id(name)


def test_the_longest_name_can_be_kept(tmp_path):
    store = PayloadStore(tmp_path)
    store.keep(read_task_id("x" * TASK_ID_BYTES_MAX), "work", b"1")
    assert store.read(read_task_id("x" * TASK_ID_BYTES_MAX), "work") == b"1"


def test_whose_arguments_they_are_stands_before_their_name():
    with pytest.raises(SubmissionError, match=r"^method_args\[0\] \(lock\)"):
        read_values("method_", (LOCK,), {})
    with pytest.raises(SubmissionError, match=r"^leader: args\[0\] \(lock\)"):
        read_values("leader: ", (LOCK,), {})


def test_arguments_that_can_travel_do():
    assert read_arguments(read_values("", (1,), {"word": "x"}), timeout_s=0) == ((1,), {"word": "x"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(None, "actor_class is None, not a class; give the class", id="nothing"),
        pytest.param(Work.run, "not a class", id="a function"),
        pytest.param(5, "actor_class is 5, not a class", id="a number"),
    ],
)
def test_what_is_no_class_is_refused(given, words):
    with pytest.raises(SubmissionError, match=words):
        read_class(given)


def test_a_class_that_cannot_travel_is_refused():
    class Local:
        lock = LOCK

    with pytest.raises(SubmissionError, match=r"^workers\['a'\]: cannot pickle '_thread.lock' object"):
        read_class(Local, "workers['a']")


def test_an_unknown_method_is_refused_with_the_nearest_one():
    with pytest.raises(SubmissionError, match=r"^method is 'rnu', and Work has no such method; it has run; did you mean run\?"):
        read_method(Work, "rnu")


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        pytest.param(Work, "run", id="a method"),
        pytest.param(Work, None, id="no method"),
        pytest.param(Open, "anything", id="a class that answers to every name"),
    ],
)
def test_a_method_that_is_there_is_taken(kind, method):
    assert read_method(kind, method) == method


def test_an_unpicklable_call_is_reported_by_its_argument():
    refused = TypeError("Ray says no")
    assert isinstance(unsendable("step", (LOCK,), {}, refused), ArgumentError)
    assert str(unsendable("step", (LOCK,), {}, refused)).startswith("step(): args[0] (lock) cannot be pickled")
    assert unsendable("step", (1,), {}, refused) is refused


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param("job.yaml", "give Path('job.yaml')", id="the name of a file"),
        pytest.param("just words", "it is not a YAML mapping", id="words"),
        pytest.param("a: [", "spec: while parsing", id="no YAML"),
    ],
)
def test_a_job_that_is_none_is_refused(spec, words):
    with pytest.raises(SubmissionError, match=re.escape(words)):
        read_job_spec(spec)


def test_a_job_file_that_is_not_there_or_is_no_text_is_refused(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("nowhere.yaml", "binary.yaml"):
        with pytest.raises(SubmissionError, match=r"^spec: "):
            read_job_spec(tmp_path / name)
    (tmp_path / "job.yaml").write_text("{name: a, pool: b, leader: {}, wrong: 1}", encoding="utf-8")
    with pytest.raises(JobSpecError, match="wrong: is unknown"):
        read_job_spec(tmp_path / "job.yaml")


def test_an_unknown_pool_is_reported_with_the_nearest_one():
    assert str(PoolUnknown("mian", ("main", "batch"))) == "there is no pool mian; did you mean main? known pools: main, batch"
    assert str(PoolUnknown("xyz", ())) == "there is no pool xyz; known pools: none"
