"""The text of the verbs, put together from their pieces."""

import re

import pytest

from federation.store.redis_scripts import source, verbs

PACKAGE = "federation.store.lua"


@pytest.mark.parametrize("verb", verbs(PACKAGE))
def test_a_verb_carries_only_functions_and_keys_that_it_reaches(verb):
    text = re.sub(r"--.*", "", source(PACKAGE, verb))
    names = re.findall(r"^local function (\w+)", text, re.MULTILINE) + re.findall(r"^local (\w+) = KEYS", text, re.MULTILINE)
    assert [name for name in names if len(re.findall(rf"\b{name}\b", text)) < 2] == []


def test_what_a_needed_piece_needs_itself_stands_before_it():
    text = source(PACKAGE, "renew")
    assert text.index("local function text(") < text.index("local UID,") < text.index("local function session_of(")
