"""Three small tasks: two independent ones, and one that waits for both."""

from __future__ import annotations

import dag


def greet(name: str) -> str:
    """Return a greeting."""
    return f"Hello, {name}!"


def count(name: str) -> int:
    """Return the number of letters of the name."""
    return len(name)


def join(greeting: str, letters: int) -> str:
    """Return both results as one sentence."""
    return f"{greeting} Your name has {letters} letters."


def graph() -> dict[str, dag.Node]:
    """Return the workflow; its one output is the sentence."""
    name = "mesh"
    return {"sentence": dag.task(join).bind(dag.task(greet).bind(name), dag.task(count).bind(name))}
