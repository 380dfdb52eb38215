"""Programs as nodes of a graph: `dag.program` makes them, with the archive of their working directory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dag.client.tasks import Node, Options
from dag.errors import GraphTypeError
from mesh.core.functions import key_of

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_INTERPRETER = re.compile(r"python[0-9.]*|bash|sh|uv|run|env")
#: Characters of a program's name.
_NAME_CHARS_MAX = 40


@dataclass(frozen=True, slots=True)
class Archive:
    """Zip archive of a working directory, which travels as it is and is not pickled."""

    data: bytes = field(repr=False)
    files: int = 0  #: Number of files in the archive.


class Program:
    """Stands where other nodes have their function.

    Args:
        command: A line for the shell, or the command and its arguments, with nodes among these.
    """

    def __init__(self, command: str | Sequence[Any]) -> None:
        self.key = key_of(command if isinstance(command, str) else [{} if isinstance(part, Node) else part for part in command])
        self.__name__ = _name_of(command)

    def __call__(self, command: Any, *, working_dir: Any = None, env_vars: Any = None) -> NoReturn:  # noqa: ARG002  names in messages
        raise GraphTypeError(f"{self.__name__} is a program: submit its node, dag.submit(node)")

    def __repr__(self) -> str:
        return f"<{self.key}>"


def program_node(command: Any, *, archive: Archive | None, env_vars: Mapping[str, str] | None, options: Mapping[str, Any]) -> Node:
    """Return the node of a program.

    Raises:
        GraphTypeError: The command is empty, or a part of it is no text, number or node; a variable is no text.
        SpecError: As `dag.task`.
    """
    checked = _checked(command)
    program = Program(checked)
    settings = Options().changed({"gang": {"size": 1, "strategy": "PACK"}}).changed(options, program)
    kwargs: dict[str, Any] = {}
    if archive is not None:
        kwargs["working_dir"] = archive
    if env_vars:
        for name, value in env_vars.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise GraphTypeError(f"program {program.__name__}: env_vars takes text by name, not {name!r}: {value!r}")
        kwargs["env_vars"] = dict(env_vars)
    return Node(program, (checked,), kwargs, settings)


def _checked(command: Any) -> str | list[Any]:
    remedy = "give a line like 'python train.py', or a list like ['python', 'train.py']"
    if isinstance(command, str):
        if not command.strip():
            raise GraphTypeError(f"the command of the program is empty; {remedy}")
        return command
    if not isinstance(command, (list, tuple)):
        raise GraphTypeError(f"a program takes a command, not {command!r}; {remedy}")
    if not command or not isinstance(command[0], str) or not command[0].strip():
        raise GraphTypeError(f"the command of the program is empty; {remedy}")
    for part in command:
        if not isinstance(part, (str, int, float, Node)) or isinstance(part, bool):
            raise GraphTypeError(f"{part!r} is no part of a command; give text, a number or a node")
    return list(command)


def _name_of(command: str | Sequence[Any]) -> str:
    """Return the name of the script or module that the command runs, else of the command itself."""
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:  # Quotes that the shell will complain about.
            words = command.split()
    else:
        words = [part for part in command if isinstance(part, str)]
    named = [word for word in words if not word.startswith("-") and "=" not in word and not _INTERPRETER.fullmatch(_last(word))]
    stem = _last((named or words or ["program"])[0]).removesuffix(".py").removesuffix(".sh")
    return _NOT_IN_NAMES.sub("-", stem)[:_NAME_CHARS_MAX].strip(".-") or "program"


def _last(path: str) -> str:
    return path.rpartition("/")[2]
