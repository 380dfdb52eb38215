"""Three small tasks: two that know nothing of each other, and one that waits for both."""

from __future__ import annotations

import dag


def greet(name: str) -> str:
    """A greeting."""
    return f"Hello, {name}!"


def count(name: str) -> int:
    """How many letters the name has."""
    return len(name)


def join(greeting: str, letters: int) -> str:
    """One sentence of both."""
    return f"{greeting} Your name has {letters} letters."


def graph() -> dict[str, dag.Node]:
    """The workflow; its one output is the sentence."""
    name = "mesh"
    return {"sentence": dag.task(join).bind(dag.task(greet).bind(name), dag.task(count).bind(name))}
