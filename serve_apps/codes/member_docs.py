"""Docstrings below the members of an enum, which Python itself discards."""

from __future__ import annotations

import ast
import inspect
from enum import Enum


def meanings(kind: type[Enum]) -> dict[str, str]:
    """Return the docstring of each member by its name, as it stands in the source."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101  `kind` is a class; the type of a statement is wider
    described: dict[str, str] = {}
    for member, words in zip(body.body, body.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name) and isinstance(words, ast.Expr):
            described[member.targets[0].id] = " ".join(str(ast.literal_eval(words.value)).split())
    return described
