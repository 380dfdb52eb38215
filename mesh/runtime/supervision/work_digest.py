"""What a task runs, as one short word: two submissions of one name are the same task only when it is the same.

The bytes of cloudpickle are no measure for the class: they hold a number that each process draws for itself, and the lines and
the file where the class stands, so a program that is run again would send another class. Compared is what a class *does*: its
names, the code of its functions with the constants in it, and its plain values. Arguments are compared as bytes, ObjectRefs by
their ids: two references may hold the same, and nobody can know without reading them.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

from mesh.runtime.supervision.agent_orders import PickledArguments
from mesh.saved_state import plain_class

_DIGEST_BYTES = 16
_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(...))


def work_digest(
    actor_class: Any,
    arguments: PickledArguments | None,
    entry: str | None,
    entry_arguments: PickledArguments | None,
    environment: Mapping[str, str],
) -> str:
    """The same for the same class, arguments, method and variables, in whichever process it is asked."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    parts = [*_class_parts(plain_class(actor_class)), repr(entry), repr(sorted(environment.items()))]
    for part in parts:
        digest.update(part.encode("utf-8", "backslashreplace") + b"\0")
    for each in (arguments, entry_arguments):
        digest.update(b"none" if each is None else each.pickled + b"".join(ref.binary() for ref in each.refs))
        digest.update(b"\0")
    return digest.hexdigest()


def _class_parts(cls: type) -> Iterator[str]:
    seen: set[int] = set()
    for kind in cls.__mro__[:-1]:
        yield f"{kind.__module__}.{kind.__qualname__}"
        for name, member in sorted(vars(kind).items()):
            yield from _parts(name, member, seen)


def _parts(name: str, member: Any, seen: set[int]) -> Iterator[str]:
    """What can be told of a member in any process: functions by their code, plain values by themselves, of others the name."""
    if id(member) in seen:
        return
    yield name
    if isinstance(member, (staticmethod, classmethod)):
        yield from _parts(name, member.__func__, seen)
    elif isinstance(member, property):
        for part in (member.fget, member.fset, member.fdel):
            yield from _parts(name, part, seen)
    elif isinstance(member, types.FunctionType):
        seen.add(id(member))
        yield from _code_parts(member.__code__)
        for value in (*(member.__defaults__ or ()), *(member.__kwdefaults__ or {}).values(), *_cells(member)):
            yield from _parts(name, value, seen) if callable(value) else (_constant(value),)
    elif not name.startswith("__"):
        yield _constant(member)


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # It is bound later.
            continue


def _code_parts(code: types.CodeType) -> Iterator[str]:
    """Without its file and lines: they move when something above is edited."""
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_flags))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_parts(constant)
        else:
            yield _constant(constant)


def _constant(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_constant, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{{{','.join(sorted(map(_constant, value)))}}}"  # Its order is another one in each process.
    return repr(value) if type(value) in _PLAIN else type(value).__qualname__
