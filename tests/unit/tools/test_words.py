"""What the search for private words finds."""

from __future__ import annotations

import pytest

from tools.words import in_python, parts_of


@pytest.mark.parametrize(
    ("source", "found"),
    [
        pytest.param("told_batches = 1\n", ["told_batches"], id="a word within a name"),
        pytest.param("class PurseFull: ...\n", ["PurseFull"], id="a word within the name of a class"),
        pytest.param("untoldable = seating = 1\n", [], id="other words that hold one"),
        pytest.param("who_gives_way = 1\n", ["who_gives_way"], id="two words side by side"),
        pytest.param("x = 1  # It gives way.\n", ["gives way"], id="a comment"),
        pytest.param('def f():\n    """How far it is."""\n', ["How far it is."], id="a docstring that names no thing"),
        pytest.param('"""Where to: there.\n\nMore."""\n', ["Where to: there."], id="a docstring of several lines"),
        pytest.param('"""Which model reads best?"""\n', [], id="a question"),
        pytest.param('"""Return how far it is."""\n', [], id="a verb first"),
        pytest.param('"""Who waits longest."""\n', ["Who waits longest."], id="a docstring that begins with a pronoun"),
        pytest.param('"""Tenant. Of those that wait."""\n', ["Of those that wait."], id="a later sentence"),
        pytest.param('message = "What is this?"\n', [], id="a question"),
    ],
)
def test_private_words_are_found(source: str, found: list[str]):
    assert [finding.text for finding in in_python("a.py", source)] == found


def test_names_are_split_into_words():
    assert parts_of("_toldOf_HTTPAnswers2") == ["told", "of", "http", "answers"]
