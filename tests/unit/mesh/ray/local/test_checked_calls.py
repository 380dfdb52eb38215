"""Validation of the arguments of the facade's calls, by name and before any effect."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import mesh
from mesh.core.ids import JobId, TaskId
from mesh.core.task_spec import TaskState
from mesh.errors import MeshError
from mesh.observability.metric_targets import Targets
from mesh.ray.local.client.checked_calls import Count, Seconds, Values, checked, read, read_timeout
from mesh.ray.local.client.job_handle import JobHandle
from mesh.ray.local.client.parsing import Amounts, Bundles
from mesh.ray.local.client.task_calls import State
from mesh.ray.local.client.task_handle import TaskHandle
from mesh.ray.local.supervision_errors import ArgumentError, SubmissionError
from mesh.tasks.settings import SchedulerSettings

NO_LINK: Any = None
SUBJECTS = {
    mesh.ScheduleMesh: mesh.ScheduleMesh("m"),
    TaskHandle: TaskHandle(NO_LINK, TaskId("t")),
    JobHandle: JobHandle(NO_LINK, JobId("j")),
}
FACES = tuple(SUBJECTS)
#: Called for each call on an agent, or with arguments of the user's method: they check their arguments themselves.
LOOK_THEMSELVES = {"choose", "remote", "call"}
#: Values of all other arguments, so that only one is wrong.
RIGHT: dict[str, Any] = {
    "name": "n",
    "pool": "p",
    "pool_name": "p",
    "slot": "s",
    "label": "l",
    "task_id": "t",
    "capacity": {"cpu": 1},
    "resources": {"cpu": 1},
    "count": 1,
    "priority": 1.0,
    "path": "a.png",
    "given": "g",
    "role": "leader",
    "task_ids": ["t"],
    "spec": {},
    "leader": dict,
    "actor_class": dict,
}


class Nobody:
    """Argument that is wrong for every declared type."""


@checked(skip=("left",))
class Calls:
    """Calls that return their arguments."""

    def numbers(self, count: Count = 0, *, share: float = 0.0, settings: SchedulerSettings | None = None) -> Any:
        return count, share, settings

    def words(self, **words: float) -> Any:
        return words

    def options(self, name: str, **options: Any) -> Any:
        return name, options

    @classmethod
    def made(cls, name: str) -> Any:
        return cls, name

    def agent(self, name: str, *, pool: str, count: Count = 0, **options: Any) -> Any:
        return name, pool, count, options

    def left(self, name: str) -> Any:
        return name

    def passed(self, name: str, *args: Any) -> Any:
        return name, args


def calls_of(face: type) -> list[Any]:
    found = [(name, inspect.getattr_static(face, name)) for name in dir(face) if not name.startswith("_")]
    return [(face, name) for name, member in found if not isinstance(member, property) and name not in LOOK_THEMSELVES]


def typed_parameters() -> list[Any]:
    cases = []
    for face, name in [pair for kind in FACES for pair in calls_of(kind)]:
        for one in inspect.signature(getattr(face, name)).parameters.values():
            if one.name in ("self", "options") or one.annotation in ("Any", inspect.Parameter.empty):
                continue
            cases.append(pytest.param(face, name, one, id=f"{one.name} of {face.__name__}.{name}"))
    return cases


@pytest.mark.parametrize(("face", "name", "parameter"), typed_parameters())
def test_every_invalid_argument_is_refused_by_its_name(face, name, parameter):
    call = getattr(face, name)
    wanted = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    others = [one for one in inspect.signature(call).parameters.values() if one.default is one.empty and one.kind in wanted]
    arguments = {one.name: RIGHT[one.name] for one in others if one.name not in ("self", parameter.name)}
    wrong = {"some_setting": Nobody()} if parameter.kind is parameter.VAR_KEYWORD else {parameter.name: Nobody()}
    subject = () if inspect.ismethod(call) else (SUBJECTS[face],)
    with pytest.raises(ArgumentError, match=rf"^({parameter.name}|some_setting)\b"):
        call(*subject, **arguments, **wrong)


@pytest.mark.parametrize(
    ("wanted", "value", "words"),
    [
        pytest.param(str, 5, "it is 5; give text", id="a number for text"),
        pytest.param(int, "5", "it is '5'; give a whole number", id="text for a number"),
        pytest.param(int, 1.5, "it is 1.5; give a whole number", id="a fraction for a whole number"),
        pytest.param(int, True, "it is True; give a whole number", id="a truth for a number"),
        pytest.param(bool, 1, "it is 1; give True or False", id="a number for a truth"),
        pytest.param(float, math.nan, "it is nan; give a finite number", id="no number at all"),
        pytest.param(float, math.inf, "it is inf; give a finite number", id="an endless number"),
        pytest.param(Count, -1, "it is -1; give 0 or more", id="fewer than none"),
        pytest.param(Seconds | None, -0.1, "it is -0.1; give 0.0 or more", id="less than no time"),
        pytest.param(Mapping[str, str], "zone=a", "it is 'zone=a'; give a mapping, like {'key': 'value'}", id="text for a mapping"),
        pytest.param(Mapping[str, str] | None, {"A": 1}, "it['A'] is 1; give text", id="a number in a mapping of texts"),
        pytest.param(Sequence[str], "abc", "it is 'abc'; give a list, not one text", id="text for a list"),
        pytest.param(Sequence[str | TaskHandle], ["a", 7], "it[1] is 7; give text or a TaskHandle", id="neither of two"),
        pytest.param(Sequence[str], {"a": 1}, "it is {'a': 1}; give a list", id="a mapping for a list"),
        pytest.param(Values, "abc", "it: 'abc' is one value; give a list or a tuple of values", id="text for values"),
        pytest.param(State | None, "RUNING", r"it is 'RUNING'; give one of .*; did you mean RUNNING\?", id="a state that is close"),
        pytest.param(Targets | None, {}, "it is {}; give a Targets", id="a mapping for a value"),
        pytest.param(Amounts, {"CPU": 1}, "it: there is no resource 'CPU'; write 'cpu'", id="Ray's word for a resource"),
        pytest.param(Amounts, {"cpu": "two"}, "it: cpu: 'two' is not a number", id="an amount in words"),
        pytest.param(Amounts, 4, "it: 4 are not amounts; write them by name", id="an amount of nothing"),
        pytest.param(Amounts, {1: 1}, "it: 1 is not a resource name", id="a resource without a name"),
        pytest.param(Sequence[Bundles], {"cpu": 1}, "it is {'cpu': 1}; give a list", id="one group for a list of groups"),
        pytest.param(Sequence[Bundles], [{"cpu": 1}, "cpu"], r"it\[1\]: 'cpu' is not a shape", id="a shape in words"),
        pytest.param(SchedulerSettings, SchedulerSettings(grace_ms="x"), "it.grace_ms is 'x'; give a whole number", id="text in settings"),
        pytest.param(SchedulerSettings, SchedulerSettings(grace_ms=-1), "it.grace_ms is -1; give zero or more", id="a negative duration"),
        pytest.param(SchedulerSettings, SchedulerSettings(rules={}), "it.rules is {}; give a PreemptionRules", id="a mapping in settings"),
    ],
)
def test_a_wrong_value_is_reported_with_what_is_expected(wanted, value, words):
    with pytest.raises(ArgumentError, match="^" + (words if "\\" in words else re.escape(words))):
        read("it", wanted, value)


@pytest.mark.parametrize(
    ("wanted", "value", "found"),
    [
        pytest.param(int, np.int64(3), 3, id="a whole number of numpy"),
        pytest.param(float, 2, 2.0, id="a whole number for any number"),
        pytest.param(State, "RUNNING", TaskState.RUNNING, id="the word of a state"),
        pytest.param(Values, range(2), range(2), id="a range for values"),
        pytest.param(str | None, None, None, id="nothing where it may be"),
        pytest.param(Targets | None, Targets(), Targets(), id="the value itself"),
        pytest.param(Amounts, {"cpu": 1}, mesh.ResourceSet.of({"cpu": 1}), id="amounts"),
        pytest.param(Bundles, {"cpu": 1}, (mesh.ResourceSet.of({"cpu": 1}),), id="one bundle"),
        pytest.param(SchedulerSettings, SchedulerSettings(), SchedulerSettings(), id="settings"),
    ],
)
def test_what_is_meant_is_taken(wanted, value, found):
    assert read("it", wanted, value) == found


def test_a_users_own_arguments_pass_unchecked():
    value = Nobody()
    assert Calls().options("n", anything=value) == ("n", {"anything": value})
    assert Calls().passed(5, value) == (5, (value,))
    assert Calls().left(5) == 5


def test_numbers_by_name_are_read_one_by_one():
    assert Calls().words(one=1, two=2.5) == {"one": 1.0, "two": 2.5}
    with pytest.raises(ArgumentError, match=r"^two is 'x'; give a number"):
        Calls().words(one=1, two="x")


def test_class_methods_are_read_too():
    assert Calls.made("n") == (Calls, "n")
    with pytest.raises(ArgumentError, match=r"^name is 5; give text"):
        Calls.made(5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        pytest.param(
            lambda calls: calls.numbers(cuont=1), "numbers() has no parameter 'cuont'; did you mean count?", id="a slip of the pen"
        ),
        pytest.param(lambda calls: calls.numbers(zzz=1), "numbers() has no parameter 'zzz'; there are count, share", id="an unknown name"),
        pytest.param(lambda calls: calls.options(), "options(): missing a required argument: 'name'", id="one that is missing"),
        pytest.param(
            lambda calls: calls.numbers(1, 2),
            "numbers() takes count by position: share has to be given by name, like share=2",
            id="too many",
        ),
    ],
)
def test_an_invalid_call_is_reported_with_its_parameters(call, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        call(Calls())


def test_an_argument_error_is_what_programs_may_already_catch():
    assert issubclass(ArgumentError, (SubmissionError, MeshError))
    assert issubclass(ArgumentError, TypeError)
    assert issubclass(ArgumentError, ValueError)


@pytest.mark.parametrize("timeout", ["x", -1, math.nan, math.inf, True])
def test_a_timeout_that_is_none_is_refused(timeout):
    with pytest.raises(ArgumentError, match=r"^timeout is"):
        read_timeout(timeout)


def test_a_timeout_is_seconds_or_nothing():
    assert (read_timeout(None), read_timeout(0), read_timeout(2), read_timeout(np.float64(0.5))) == (None, 0.0, 2.0, 0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        pytest.param(
            lambda calls: calls.agent("a", "main", resources={}),
            "agent() takes name by position: pool has to be given by name, like pool='main'",
            id="beside options of others",
        ),
        pytest.param(
            lambda calls: calls.agent("a", "main", 2),
            "pool and count have to be given by name, like pool='main', count=2",
            id="two of them",
        ),
        pytest.param(lambda calls: calls.agent("a", 2, pool="p"), "count has to be given by name, like count=2", id="one is given already"),
        pytest.param(lambda calls: calls.made("a", "b"), "made() takes name, and 'b' is one value too many", id="none goes by its name"),
        pytest.param(lambda calls: calls.agent(name="a"), "agent(): missing a required argument: 'pool'", id="missing"),
    ],
)
def test_a_positional_error_names_the_parameter(call, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        call(Calls())


def calls_with_names() -> list[Any]:
    """Return every call of the facade with keyword-only parameters, and the first of these."""
    cases = []
    for face, name in [pair for kind in FACES for pair in calls_of(kind)]:
        call = getattr(face, name)
        parameters = inspect.signature(call).parameters.values()
        by_name = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        if by_name and not any(one.kind is one.VAR_POSITIONAL for one in parameters):
            cases.append(pytest.param(face, name, by_name[0], id=f"{face.__name__}.{name}"))
    return cases


@pytest.mark.parametrize(("face", "name", "first"), calls_with_names())
def test_every_call_names_its_positional_parameter(face, name, first):
    call = getattr(face, name)
    places = [one for one in inspect.signature(call).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
    subject = () if inspect.ismethod(call) else (SUBJECTS[face],)
    with pytest.raises(ArgumentError, match=rf"\b{first} has to be given by name, like {first}='more'"):
        call(*subject, *(RIGHT.get(one.name) for one in places), "more")
