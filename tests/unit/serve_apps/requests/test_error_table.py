"""Map from error type to HTTP status."""

import inspect

import pytest

import dag.errors
import federation.errors
from dag.errors import CycleError, NotSerializable, RunConflict, SpecError, UnknownRun
from federation.errors import StoreUnavailable, UnknownTenant
from mesh.errors import RuntimeAdapterError
from serve_apps.requests import errors
from serve_apps.requests.errors import MEANINGS, BodyTooLarge, MalformedBody, NotAuthenticated, OutOfReach, body_of, meaning_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MalformedBody("x"), 400),
        (NotAuthenticated("x"), 401),
        (OutOfReach("x"), 403),
        (UnknownRun("x"), 404),
        (RunConflict("x"), 409),
        (BodyTooLarge("x"), 413),
        (SpecError((("/a", "b"),)), 422),
        (CycleError((("/nodes", "a -> a"),)), 422),
        (NotSerializable((("/a", "b"),)), 422),
        (UnknownTenant("x"), 422),
        (StoreUnavailable("x"), 503),
        (RuntimeAdapterError("x"), 502),
        (ZeroDivisionError("x"), 500),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else f"is {value}",
)
def test_each_error_has_its_status(error, status):
    assert meaning_of(error).status == status


def test_no_row_is_hidden_by_an_earlier_one():
    for place, (kind, _) in enumerate(MEANINGS):
        assert not any(issubclass(kind, earlier) for earlier, _ in MEANINGS[:place]), kind


def test_every_error_of_this_package_has_a_row():
    own = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.RequestError)]
    rows = {kind for kind, _ in MEANINGS}
    assert set(own) - {errors.RequestError} <= rows
    assert {dag.errors.SpecError, federation.errors.StoreUnavailable} <= rows


def test_a_spec_error_lists_its_problems():
    view = body_of(SpecError((("/nodes/a", "unknown option"), ("", "no outputs"))), "r1")
    assert [(problem.place, problem.problem) for problem in view.problems] == [("/nodes/a", "unknown option"), ("", "no outputs")]
    assert (view.code, view.request_id) == ("invalid_spec", "r1")


@pytest.mark.parametrize("error", [StoreUnavailable("redis://:secret@h"), RuntimeAdapterError("row: secret"), KeyError("secret")], ids=repr)
def test_the_words_of_failures_on_this_side_stay_inside(error):
    assert "secret" not in body_of(error, "r1").model_dump_json()
