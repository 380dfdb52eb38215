"""Validation of call arguments against their annotations before a call begins; errors name the wrong argument.

The whole facade is validated here: a new call only needs annotated types. pydantic reads strictly, without conversions (`"5"` to
a number, a string to a list of letters). Its complaints become one line with the argument, the value and the remedy.
Arguments of a user's own method (`*args`) are not validated.
"""

from __future__ import annotations

import inspect
import math
import reprlib
import typing
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from numbers import Integral
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from mesh.core.near_names import nearest, wrong_call
from mesh.ray.local.supervision_errors import ArgumentError

C = TypeVar("C")

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def _no_text(values: Any) -> Any:
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{_SHOWN.repr(values)} is one value; give a list or a tuple of values")  # noqa: TRY004 - pydantic collects this one
    return values


#: A number of things.
Count = Annotated[int, Field(ge=0)]
#: A duration; None, where allowed, means without limit.
Seconds = Annotated[float, Field(ge=0)]
Milliseconds = Annotated[int, Field(ge=1)]
#: Values for a call of user code; a string is one value, not a list of its letters.
Values = Annotated[Sequence[Any], BeforeValidator(_no_text)]

#: Attribute of a validating method. `wraps` copies it, so a method that delegates to a validating one does not validate again.
_IS_CHECKED = "__schedulemesh_checked__"

_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
#: Durations and counts, known by the units that end their names, must not be negative.
_NOT_BELOW_ZERO = ("_ms", "_s", "_max", "_bytes", "_tries", "_absolute", "_fraction", "_per_node", "_dynamic", "min_idle", "target_agents")
_WANTED = {
    "string_type": "text",
    "string_sub_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "True or False",
    "dict_type": "a mapping, like {'key': 'value'}",
    "mapping_type": "a mapping, like {'key': 'value'}",
    "list_type": "a list",
    "tuple_type": "a tuple",
    "sequence_str": "a list, not one text",
    "path_type": "a Path",
    "callable_type": "a function",
    "string_too_short": "a name that is not empty",
}


def checked(*, skip: tuple[str, ...] = ()) -> Callable[[type[C]], type[C]]:
    """Decorate a class so that public methods validate their arguments, except those in `skip` and those that pass on `*args`.

    Raises:
        ArgumentError: Raised by the methods: an argument has the wrong type, is out of bounds, unknown or missing.
    """

    def of(kind: type[C]) -> type[C]:
        for name, member in tuple(vars(kind).items()):
            call = member.__func__ if isinstance(member, classmethod) else member
            if name.startswith("_") or name in skip or not inspect.isfunction(call) or _passes_on(call) or hasattr(call, _IS_CHECKED):
                continue
            setattr(kind, name, classmethod(_checked(call)) if isinstance(member, classmethod) else _checked(call))
        return kind

    return of


def read(parameter: str, wanted: Any, value: Any) -> Any:
    """Return the value validated as the wanted type.

    Raises:
        ArgumentError: The value is invalid; the message begins with `parameter`.
    """
    return _read(parameter, _reader(wanted), value)


def _read(parameter: str, reader: TypeAdapter[Any], value: Any) -> Any:
    if not isinstance(value, (str, int, float)) and isinstance(value, Integral):
        value = int(value)  # For example numpy's integers.
    try:
        found = reader.validate_python(value)
    except ValidationError as wrong:
        raise ArgumentError(_line(parameter, value, wrong.errors(include_url=False))) from None
    check_fields(parameter, found)
    return found


def read_timeout(timeout: Any) -> float | None:
    """Return the timeout in seconds, or None. Called just before a wait, because Ray waits for ever when it is negative.

    Raises:
        ArgumentError: The timeout is neither None nor a duration.
    """
    if timeout is None:
        return None
    is_plain = type(timeout) in (int, float) and 0 <= timeout < math.inf
    return float(timeout if is_plain else read("timeout", Seconds, timeout))


def check_fields(parameter: str, value: Any) -> None:
    """Check the types of a dataclass' fields, and that no count or duration is negative; nested dataclasses too.

    Raises:
        ArgumentError: The message names the path of the field.
    """
    if not is_dataclass(value) or isinstance(value, type):
        return
    for name, hint in _hints(type(value)).items():
        inner, path = getattr(value, name), f"{parameter}.{name}"
        read(path, hint, inner)
        check_not_below_zero(path, inner)


def check_not_below_zero(path: str, value: Any) -> None:
    """Raise `ArgumentError` if the path names a count or duration and the value is negative."""
    if path.endswith(_NOT_BELOW_ZERO) and isinstance(value, (int, float)) and value < 0:
        raise ArgumentError(f"{path} is {value!r}; give zero or more")


def _checked(call: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(call)

    @wraps(call)
    def with_read_arguments(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as wrong:
            raise ArgumentError(f"{call.__name__}(){wrong_call(signature, args, kwargs, str(wrong))}") from None
        readers = _readers(call)
        for name, value in bound.arguments.items():
            reader = readers.get(name)
            if reader is None:
                continue
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {each: _read(each, reader, one) for each, one in value.items()}
            else:
                bound.arguments[name] = _read(name, reader, value)
        return call(*bound.args, **bound.kwargs)

    setattr(with_read_arguments, _IS_CHECKED, True)
    return with_read_arguments


def _passes_on(call: Callable[..., Any]) -> bool:
    return any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(call).parameters.values())


@cache
def _hints(owner: Any) -> dict[str, Any]:
    """Return the types of a call's parameters, or of a dataclass' fields."""
    found = typing.get_type_hints(owner, include_extras=True)
    if is_dataclass(owner):
        return {field.name: found[field.name] for field in fields(owner)}
    parameters = inspect.signature(owner).parameters.values()
    return {one.name: found[one.name] for one in parameters if one.name in found}


@cache
def _readers(call: Any) -> dict[str, TypeAdapter[Any]]:
    """Return the readers by parameter, built once: finding a reader by type costs more than reading. Untyped ones have none."""
    return {name: _reader(hint) for name, hint in _hints(call).items() if hint is not Any}


@cache
def _reader(wanted: Any) -> TypeAdapter[Any]:
    form = _form(wanted)
    return TypeAdapter(form) if wanted is not form else TypeAdapter(form, config=_STRICT)


def _form(wanted: Any) -> Any:
    """Replace a dataclass by an instance check, so that a dict is not converted to one."""
    if isinstance(wanted, type) and is_dataclass(wanted):
        return InstanceOf[wanted]  # type: ignore[misc]  # pydantic's types know it as an alias only
    return wanted


def _line(parameter: str, value: Any, errors: list[ErrorDetails]) -> str:
    """Merge all complaints about one argument into one line, with the alternatives of a union side by side."""
    deepest = max(errors, key=lambda error: len(_path(error["loc"], value)))
    path = _path(deepest["loc"], value)
    same = [error for error in errors if _path(error["loc"], value) == path]
    described = next((error["ctx"]["error"] for error in same if error["type"] == "value_error"), None)
    where = parameter + "".join(f"[{step!r}]" for step in path)
    if described is not None:
        return f"{where}: {described}"
    wanted = list(dict.fromkeys(_wanted(error) for error in same))
    return f"{where} is {_SHOWN.repr(deepest['input'])}; give {' or '.join(wanted)}"


def _path(location: tuple[str | int, ...], value: Any) -> list[str | int]:
    """Return the steps of the location that lead into the value; the others are pydantic's names of alternatives."""
    path: list[str | int] = []
    for step in location:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            continue
        path.append(step)
    return path


def _wanted(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    if error["type"] in ("is_instance_of", "dataclass_exact_type", "dataclass_type"):
        name = str(context.get("class", context.get("class_name", "")))
        return {"Sequence": "a list", "Mapping": "a mapping, like {'key': 'value'}", "Iterable": "a list"}.get(name, f"a {name}")
    if error["type"] in ("enum", "literal_error"):
        expected = str(context["expected"])
        known = tuple(word.strip().strip("'") for word in expected.replace(" or ", ", ").split(","))
        return f"one of {', '.join(known)}{nearest(str(error['input']), known)}"
    if error["type"] in ("greater_than_equal", "greater_than"):
        return f"{context.get('ge', context.get('gt'))} or more"
    if error["type"] in ("less_than_equal", "less_than"):
        return f"{context.get('le', context.get('lt'))} or less"
    return _WANTED.get(error["type"], error["msg"])
