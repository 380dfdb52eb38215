"""Names of functions in a graph: `module:qualname`, and which names of methods and variables are accepted beside them."""

from __future__ import annotations

import re

from mesh.core.counting import counted

#: Characters of the name of a function.
CALL_CHARS_MAX = 1_000
#: Name of an environment variable.
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def problem_of_call(text: str) -> str | None:
    """Return the problem with the name of a function, `module:qualname`."""
    if len(text) > CALL_CHARS_MAX:
        return f"{text[:200]!r}… has {counted(len(text), 'character')}; the name of a function has {CALL_CHARS_MAX} at most"
    module, colon, qualname = text.partition(":")
    if not colon or not _FUNCTION_NAME.fullmatch(module) or not _FUNCTION_NAME.fullmatch(qualname):
        return f"{text[:200]!r} is not a function; write module:qualname, like ads.etl:split"
    if any(part.startswith("__") for part in qualname.split(".")):
        return f"{text[:200]!r} leads to Python's internals; name a function of a module"
    return None


def is_method(name: str) -> bool:
    """Return whether a call of an actor, or a job, may name this method."""
    return name.isidentifier() and not name.startswith("_")
