"""The same work is told apart from other work, in whichever process it is asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mesh.runtime.supervision.pickled_code import pickled_arguments
from mesh.runtime.supervision.work_digest import work_digest

SOURCE = '''
import functools

def twice(call):
    @functools.wraps(call)
    def both(self, *args):
        return call(self, *args), call(self, *args)
    return both

class Work:
    """A class as programs have it."""
    sizes = {"small", "large"}
    limit = 3

    def __init__(self, start=1):
        self.start = start

    @twice
    def run(self, word):
        return word in {"a", "b"}, [one for one in range(self.limit)], lambda: 1.5

    @property
    def size(self):
        return 7

    @staticmethod
    def still():
        return "s"
'''
ASKED = """
import sys
from mesh.runtime.supervision.work_digest import work_digest
from mesh.runtime.supervision.pickled_code import pickled_arguments
sys.stdout.write(work_digest(Work, pickled_arguments(1, word="x"), "run", None, {"A": "1"}))
"""


def class_of(source):
    names = {"__name__": "__main__"}
    exec(compile(source, "program", "exec", dont_inherit=True), names)  # noqa: S102  the source above, or a change of it
    return names["Work"]


def digest_of(cls=None, args=(1,), entry="run", entry_args=None, environment=None):
    entry_arguments = None if entry_args is None else pickled_arguments(*entry_args)
    return work_digest(cls or class_of(SOURCE), pickled_arguments(*args), entry, entry_arguments, environment or {})


def test_the_same_work_has_the_same_digest_though_its_class_was_made_twice():
    assert digest_of() == digest_of()


def test_the_digest_is_the_same_in_another_process_where_hashes_and_lines_are_others():
    program = "# a line above\n\n" + SOURCE + ASKED
    surroundings = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=surroundings)
    assert told.stdout == work_digest(class_of(SOURCE), pickled_arguments(1, word="x"), "run", None, {"A": "1"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("range(self.limit)", "range(self.limit + 1)", id="a line of a decorated method"),
        pytest.param("return 7", "return 8", id="a constant of a property"),
        pytest.param('return "s"', 'return "t"', id="a constant of a static method"),
        pytest.param("lambda: 1.5", "lambda: 2.5", id="a constant of a function in a function"),
        pytest.param("limit = 3", "limit = 4", id="a plain value of the class"),
        pytest.param('"large"}', '"huge"}', id="a set of the class"),
        pytest.param("start=1", "start=2", id="a default"),
        pytest.param('{"a", "b"}', '{"a", "c"}', id="a set among the constants"),
        pytest.param("def still", "def quiet", id="a method's name"),
    ],
)
def test_a_class_that_does_something_else_has_another_digest(old, new):
    assert old in SOURCE
    assert digest_of(class_of(SOURCE.replace(old, new))) != digest_of()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"cls": dict}, id="another class"),
        pytest.param({"args": (2,)}, id="another argument"),
        pytest.param({"entry": "still"}, id="another method"),
        pytest.param({"entry": None}, id="no method"),
        pytest.param({"entry_args": (1,)}, id="an argument of the method"),
        pytest.param({"environment": {"A": "1"}}, id="another variable"),
    ],
)
def test_other_work_of_the_same_class_has_another_digest(other):
    assert digest_of(**other) != digest_of()


def test_an_argument_of_the_constructor_is_not_taken_for_one_of_the_method():
    assert digest_of(args=(1,), entry_args=()) != digest_of(args=(), entry_args=(1,))
