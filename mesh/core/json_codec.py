"""Lossless codec between frozen dataclasses and plain JSON values.

A codec is compiled once per type from its annotations. Fields with their default value are omitted: journal lines get shorter, and a
field with a default can be added without breaking old journals. An unknown kind, field or type is an error that names its position;
nothing is dropped or guessed.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any

from mesh.core.counting import counted
from mesh.core.resources import ResourceSet
from mesh.errors import AmountError, MeshError

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]
#: Key of a JSON object that names its class.
KIND = "kind"


class JsonCodecError(MeshError, ValueError):
    """A plain value does not match the expected type; the message names the position and the expectation."""


class Codec:
    """Codec of one type."""

    __slots__ = ("decode", "encode", "is_plain")

    def __init__(self, encode: Encode | None, decode: Decode) -> None:
        self.encode = encode or _same
        self.decode = decode
        self.is_plain = encode is None  #: Values are already plain.


def form_of(annotation: Any) -> Codec:
    """Return the codec of a type; it is compiled at first use.

    Raises:
        JsonCodecError: The type is not supported.
    """
    found = _FORMS.get(annotation)
    if found is None:
        found = _FORMS[annotation] = _compile(annotation)
    return found


def tagged(classes: Collection[type]) -> Codec:
    """Return the codec of values of any of these dataclasses: objects with the class name as `kind`."""
    forms = {cls: form_of(cls) for cls in classes}
    by_name = {cls.__name__: form for cls, form in forms.items()}
    writers = {cls: (cls.__name__, form.encode) for cls, form in forms.items()}

    def encode(value: Any) -> dict[str, Any]:
        writer = writers.get(type(value))
        if writer is None:
            raise JsonCodecError(f"{type(value).__name__} is not among {', '.join(sorted(by_name))}")
        name, write = writer
        return {KIND: name, **write(value)}

    def decode(plain: Any) -> Any:
        fields = dict(_object(plain))
        name = fields.pop(KIND, None)
        form = by_name.get(name) if isinstance(name, str) else None
        if form is None:
            raise JsonCodecError(f"unknown kind {name!r}; known: {', '.join(sorted(by_name))}")
        return form.decode(fields)

    return Codec(encode, decode)


def dataclasses_of(module: types.ModuleType, base: type) -> tuple[type, ...]:
    """Return the module's dataclasses derived from `base`, sorted by name."""
    found = (cls for name, cls in sorted(vars(module).items()) if isinstance(cls, type) and issubclass(cls, base) and cls is not base)
    return tuple(cls for cls in found if dataclasses.is_dataclass(cls))


def _compile(annotation: Any) -> Codec:
    """Compile by kind of type. Order matters: `bool` is an `int`, and an Enum may be a `str`."""
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return _optional(annotation, arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin in (frozenset, set):
        return _frozenset(form_of(arguments[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(form_of(arguments[0]), form_of(arguments[1]))
    if annotation in (str, int, float, bool):
        return _scalar(annotation)
    if annotation is ResourceSet:
        return Codec(_encode_amounts, _decode_amounts)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _record(annotation)
    raise JsonCodecError(f"type {annotation} cannot be encoded")


def _scalar(kind: type) -> Codec:
    accepted = (int, float) if kind is float else (kind,)

    def decode(plain: Any) -> Any:
        if type(plain) not in accepted:
            raise JsonCodecError(f"{plain!r} is not of type {kind.__name__}")
        return plain

    return Codec(None, decode)


def _encode_amounts(amounts: ResourceSet) -> dict[str, int]:
    return dict(amounts.items())


def _decode_amounts(plain: Any) -> ResourceSet:
    try:
        return ResourceSet(_object(plain))
    except AmountError as error:
        raise JsonCodecError(str(error)) from None


def _enum(kind: type[Enum]) -> Codec:
    by_value = {member.value: member for member in kind}

    def decode(plain: Any) -> Enum:
        member = by_value.get(plain) if isinstance(plain, str) else None
        if member is None:
            raise JsonCodecError(f"{plain!r} is not of type {kind.__name__}")
        return member

    return Codec(attrgetter("value"), decode)


def _optional(annotation: Any, arguments: tuple[Any, ...]) -> Codec:
    inner = [argument for argument in arguments if argument is not type(None)]
    if len(inner) != 1 or len(inner) == len(arguments):
        raise JsonCodecError(f"type {annotation} cannot be encoded: the only supported union is `T | None`")
    form = form_of(inner[0])
    encode, decode = form.encode, form.decode

    def write(value: Any) -> Any:
        return None if value is None else encode(value)

    return Codec(None if form.is_plain else write, lambda plain: None if plain is None else decode(plain))


def _tuple(arguments: tuple[Any, ...]) -> Codec:
    if len(arguments) == 2 and arguments[1] is ...:  # noqa: PLR2004  `tuple[T, ...]` has these two
        form = form_of(arguments[0])
        encode = form.encode
        return Codec(
            lambda values: [encode(value) for value in values],
            lambda plain: tuple(_in_place(place, form.decode, item) for place, item in enumerate(_array(plain))),
        )
    forms = [form_of(argument) for argument in arguments]

    def encode_each(values: Any) -> list[Any]:
        return [form.encode(value) for form, value in zip(forms, values, strict=True)]

    def decode_each(plain: Any) -> tuple[Any, ...]:
        items = _array(plain)
        if len(items) != len(forms):
            raise JsonCodecError(f"{plain!r} has {counted(len(items), 'item')}, expected {len(forms)}")
        return tuple(_in_place(place, form.decode, item) for place, (form, item) in enumerate(zip(forms, items, strict=True)))

    return Codec(encode_each, decode_each)


def _frozenset(form: Codec) -> Codec:
    def encode(values: Any) -> list[Any]:
        return sorted(map(form.encode, values))

    return Codec(encode, lambda plain: frozenset(_in_place(place, form.decode, item) for place, item in enumerate(_array(plain))))


def _mapping(keys: Codec, values: Codec) -> Codec:
    """Return the codec of a mapping; JSON has only text keys, so keys must be names."""
    encode = values.encode

    def write(mapping: Mapping[Any, Any]) -> dict[str, Any]:
        return {key: encode(value) for key, value in mapping.items()}

    def read(plain: Any) -> dict[Any, Any]:
        return {keys.decode(key): _in_place(key, values.decode, value) for key, value in _object(plain).items()}

    if not keys.is_plain or keys.decode(KIND) != KIND:
        raise JsonCodecError("a mapping can be encoded only if its keys are names")
    return Codec(write, read)


def _record(cls: type) -> Codec:
    """Return the codec of a dataclass: an object of the fields that differ from their defaults."""
    hints = typing.get_type_hints(cls)
    fields = [kept for kept in dataclasses.fields(cls) if kept.init]
    if any(kept.name == KIND for kept in fields):
        raise JsonCodecError(f"{cls.__name__} has a field {KIND!r}, which is reserved for the class name")
    forms = {kept.name: form_of(hints[kept.name]) for kept in fields}
    steps = tuple((kept.name, _default(kept), None if forms[kept.name].is_plain else forms[kept.name].encode) for kept in fields)
    required = frozenset(kept.name for kept in fields if _default(kept) is _REQUIRED)
    take = _take_of(tuple(forms))

    def encode(record: Any) -> dict[str, Any]:
        plain = {}
        for (name, default, write), value in zip(steps, take(record), strict=True):
            if value is not default and value != default:
                plain[name] = value if write is None else write(value)
        return plain

    def decode(plain: Any) -> Any:
        values = {}
        for name, value in _object(plain).items():
            form = forms.get(name)
            if form is None:
                raise JsonCodecError(f"{cls.__name__} has no field {name!r}")
            values[name] = _in_place(name, form.decode, value)
        if missing := required - values.keys():
            raise JsonCodecError(f"{cls.__name__} lacks {', '.join(sorted(missing))}")
        return cls(**values)

    return Codec(encode, decode)


def _take_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a getter for all these attributes at once."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


_REQUIRED = object()


def _default(kept: dataclasses.Field[Any]) -> Any:
    if kept.default is not dataclasses.MISSING:
        return kept.default
    if kept.default_factory is not dataclasses.MISSING:
        return kept.default_factory()
    return _REQUIRED


def _same(value: Any) -> Any:
    return value


def _in_place(place: object, decode: Decode, plain: Any) -> Any:
    try:
        return decode(plain)
    except JsonCodecError as error:
        raise JsonCodecError(f"{place}: {error}") from None


def _object(plain: Any) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise JsonCodecError(f"{plain!r} is not a JSON object")
    return plain


def _array(plain: Any) -> list[Any]:
    if not isinstance(plain, list):
        raise JsonCodecError(f"{plain!r} is not a JSON array")
    return plain


_FORMS: dict[Any, Codec] = {}
