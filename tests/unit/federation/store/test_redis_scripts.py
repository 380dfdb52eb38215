"""Lua scripts assembled from their parts."""

import re

import pytest

from federation.store.redis.scripts import entries_in, library, on_full_server, source, verbs

PACKAGE = "federation.store.lua"


@pytest.mark.parametrize("verb", verbs(PACKAGE))
def test_a_verb_carries_only_functions_and_keys_that_it_reaches(verb):
    text = re.sub(r"--.*", "", source(PACKAGE, verb))
    names = re.findall(r"^local function (\w+)", text, re.MULTILINE) + re.findall(r"^local (\w+) = KEYS", text, re.MULTILINE)
    assert [name for name in names if len(re.findall(rf"\b{name}\b", text)) < 2] == []


def test_dependencies_of_a_script_come_before_it():
    text = source(PACKAGE, "renew")
    assert text.index("local function text(") < text.index("local UID,") < text.index("local function session_of(")


@pytest.mark.parametrize("package", [PACKAGE, "dag.store.lua"])
def test_script_allowed_on_a_full_server_deletes_first(package):
    passing = [verb for verb in verbs(package) if on_full_server(package, verb) == "passes"]
    first = {verb: re.search(r"^ *redis\.call\(.*", source(package, verb), re.MULTILINE) for verb in passing}
    assert {verb: call and call[0] for verb, call in first.items()} == dict.fromkeys(passing, "redis.call('HDEL', META, '-')")
    assert passing


def test_only_plain_renewal_caches_the_server_check():
    digest, text = library(PACKAGE)
    looks = dict(re.findall(rf"function_name='(\w+)_{digest}'.*?^local LOOKS = (\S+)$", text, re.MULTILINE | re.DOTALL))
    assert {verb for verb, kept in looks.items() if kept != "{}"} == {"renew"}
    assert all("local LOOKS = {}\n" in source(PACKAGE, verb) for verb in verbs(PACKAGE))


def test_only_marked_functions_run_on_a_full_server():
    digest, text = library(PACKAGE)
    flags = dict(re.findall(rf"function_name='(\w+)_{digest}', flags={{([^}}]*)}}", text))
    assert (flags["heartbeat"], flags["waiting"], flags["submit"], flags["acquire"]) == ("'allow-oom'", "'no-writes'", "", "")
    assert len(flags) == len(verbs(PACKAGE))


ENTRIES = [(b"1-0", {b"kind": b"stage"}), (b"2-0", {b"kind": b"forget"})]


@pytest.mark.parametrize(
    ("read", "entries"),
    [([[b"s", ENTRIES]], ENTRIES), ({b"s": [ENTRIES]}, ENTRIES), ({b"s": ENTRIES}, ENTRIES), ([], []), ({}, []), (None, [])],
    ids=["RESP2", "RESP3", "RESP3, unwrapped", "nothing", "nothing in RESP3", "timeout"],
)
def test_entries_are_the_same_in_every_form_of_a_reply(read, entries):
    assert entries_in(read) == entries
