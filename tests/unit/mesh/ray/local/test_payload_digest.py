"""Digest of a payload: equal for equal work in every process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import ray

from mesh.ray.local.client.payload_digest import payload_digest

SOURCE = '''
import dataclasses
import enum
import functools
import threading
import time

STARTED = [time.time()]
RATE = 0.5

@dataclasses.dataclass
class Config:
    rate: float = 0.1
    words: frozenset = frozenset({"alpha", "beta", "gamma", "delta"})

class Slotted:
    __slots__ = ("mine",)
    def __init__(self, mine):
        self.mine = mine

class Level(enum.Enum):
    LOW = 1
    HIGH = 2

def helped(value):
    return value * 10

def twice(call):
    @functools.wraps(call)
    def both(self, *args):
        return call(self, *args), call(self, *args)
    return both

class Work:
    """A class as programs have it."""
    sizes = {"small", "large"}
    limit = 3
    options = {"depth": 4, "words": {"x", "y"}}
    base = Config(rate=0.2)
    lock = threading.Lock()

    class Inner:
        def reach(self):
            return "inner"

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

    @functools.lru_cache
    def kept(self):
        return "kept"

    @functools.cached_property
    def once(self):
        return "once"

    fast, slow = lambda self: 1, lambda self: 2
    work = fast
    part = functools.partial(helped, 5)

    def trying(self):
        try:
            self.run("a")
            self.still()
        except ValueError:
            self.reach()

    def reads(self):
        return helped(1) + RATE + STARTED[0] + self.step
'''
#: Arguments whose pickles differ by process, or hold values random by process.
ARGUMENTS = """(
    Config(), {"alpha", "beta", "gamma", "delta"}, {"deep": [Config(rate=3.0), {("a", 1), ("b", 2)}]}, Slotted({"p", "q"}),
    Level.HIGH, Config, functools.partial(helped, 2), lambda: RATE,
), {"word": "x", "more": frozenset({"u", "v", "w"})}"""
ASKED = """
import sys
from mesh.ray.local.client.payload_digest import payload_digest
sys.stdout.write(payload_digest(Work, given, "run", ((Config(),), {}), {"A": "1"}))
"""


def names_of(source):
    names = {"__name__": "__main__"}
    exec(compile(source, "program", "exec", dont_inherit=True), names)  # noqa: S102  the source above, or a change of it
    return names


def class_of(source):
    return names_of(source)["Work"]


def digest_of(cls=None, args=(1,), entry="run", entry_args=None, environment=None):
    entry_arguments = None if entry_args is None else (entry_args, {})
    return payload_digest(cls or class_of(SOURCE), (args, {}), entry, entry_arguments, environment or {})


def test_a_class_made_twice_has_the_same_digest():
    assert digest_of() == digest_of()


def test_the_digest_is_the_same_in_another_process():
    given = f"given = {ARGUMENTS}"
    program = f"# a line above\n\n{SOURCE}\n{given}\n{ASKED}"
    surroundings = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=surroundings)
    here = names_of(f"{SOURCE}\n{given}\n")
    assert done.stdout == payload_digest(here["Work"], here["given"], "run", ((here["Config"](),), {}), {"A": "1"})


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
        pytest.param('"depth": 4', '"depth": 5', id="a value in a dict of the class"),
        pytest.param('{"x", "y"}', '{"x", "z"}', id="a set in a dict of the class"),
        pytest.param("base = Config(rate=0.2)", "base = Config(rate=0.3)", id="an object of the class"),
        pytest.param('return "inner"', 'return "other"', id="a method of a class in the class"),
        pytest.param('return "kept"', 'return "lost"', id="a method whose results are kept"),
        pytest.param('return "once"', 'return "twice"', id="a property that is computed once"),
        pytest.param("work = fast", "work = slow", id="another method under the same name"),
        pytest.param("partial(helped, 5)", "partial(helped, 6)", id="an argument that is given already"),
        pytest.param(
            """            self.still()
        except ValueError:
            self.reach()
""",
            """        except ValueError:
            self.reach()
        else:
            self.still()
""",
            id="a line that is out of its try",
        ),
        pytest.param("value * 10", "value * 11", id="a function of the module"),
        pytest.param("RATE = 0.5", "RATE = 0.6", id="a number of the module"),
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Config(rate=1.0)", "Config(rate=2.0)", id="a field"),
        pytest.param("Slotted(1)", "Slotted(2)", id="a slot"),
        pytest.param("Level.LOW", "Level.HIGH", id="a member of an enumeration"),
        pytest.param("{1, 2}", "{1, 3}", id="an element of a set"),
        pytest.param("{1: [2]}", "{1: [3]}", id="a value of a dict"),
        pytest.param("1", "True", id="a number for a truth"),
        pytest.param("[1, 2]", "(1, 2)", id="a tuple for a list"),
        pytest.param("['a', 'b']", "['b', 'a']", id="the order of a list"),
        pytest.param(
            "__import__('collections').OrderedDict(a=[1], b=[2])", "__import__('collections').OrderedDict(b=[2], a=[1])", id="order"
        ),
        pytest.param("__import__('numpy').arange(3)", "__import__('numpy').array([0, 1, 3])", id="an element of an array"),
        pytest.param("lambda: 1", "lambda: 2", id="a function"),
        pytest.param("(lambda x: lambda: x)([1])", "(lambda x: lambda: x)([2])", id="what a function closes over"),
        pytest.param("__import__('io').StringIO('a')", "__import__('io').StringIO('b')", id="an object of C"),
        pytest.param("len", "max", id="a function of C"),
    ],
)
def test_the_digest_follows_the_value_of_an_argument(one, other):
    def digest(text):
        return digest_of(args=(names_of(f"{SOURCE}\ngiven = {text}\n")["given"],))

    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


def test_dicts_are_the_same_in_whichever_order_they_were_filled():
    assert digest_of(args=({"a": [1], "b": 2},)) == digest_of(args=({"b": 2, "a": [1]},))
    assert digest_of(args=({"a": 1, "b": 2},)) == digest_of(args=({"b": 2, "a": 1},))


def test_what_goes_in_a_circle_or_very_deep_has_a_digest():
    def circle(last):
        around = [1, {"inner": []}]
        around[1]["inner"].append(around)
        return [*around, last]

    def deep(last):
        for _ in range(400):
            last = [last]
        return last

    for shape in (circle, deep):
        assert digest_of(args=(shape(1),)) == digest_of(args=(shape(1),)) != digest_of(args=(shape(2),))


def test_references_differ_by_their_ids():
    one, other = (ray.ObjectRef(bytes([number]) * 28) for number in (1, 2))
    assert digest_of(args=([one],)) == digest_of(args=([one],)) != digest_of(args=([other],))


def test_what_cannot_be_taken_apart_has_the_digest_of_its_class():
    refusing = "class Refusing:\n    def __reduce_ex__(self, _):\n        raise TypeError\n\nlock, bare = threading.Lock(), Refusing()\n"
    names = names_of(SOURCE + refusing)
    assert digest_of(args=(names["bare"],)) == digest_of(args=(names_of(SOURCE + refusing)["bare"],))
    assert digest_of(args=(names["bare"],)) != digest_of(args=(names["lock"],))


def test_a_cache_of_the_module_that_fills_up_is_no_other_work():
    assert digest_of(class_of(SOURCE.replace("STARTED = [time.time()]", "STARTED = [1, 2, 3]"))) == digest_of()
    assert digest_of(class_of(SOURCE + "\nstep = 7\n")) == digest_of()  # A global with the name of an attribute that is read.


def test_constructor_and_method_arguments_are_kept_apart():
    assert digest_of(args=(1,), entry_args=()) != digest_of(args=(), entry_args=(1,))
