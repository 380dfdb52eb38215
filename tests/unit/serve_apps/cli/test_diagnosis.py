"""The checks of `doctor`, both ways."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from serve_apps.cli.app import run_command
from serve_apps.cli.diagnosis import GIB, MIB, PYTHONS, RAYS, findings_of
from serve_apps.cli.machine_facts import MachineFacts, RootFacts

ROOT = RootFacts(address="http://127.0.0.1:8000", status=200, clock_ahead_s=0.5)
SOUND = MachineFacts(
    python="3.12.1",
    ray="2.61.0",
    redis="/usr/bin/redis-server",
    memory_bytes=8 * GIB,
    shared_bytes=2 * GIB,
    disk_bytes=50 * GIB,
    descriptors=65_536,
    state=".schedulemesh",
    is_state_writable=True,
    is_stack_dead=False,
    is_stack_running=False,
    is_port_free=True,
    root=ROOT,
    is_page_built=True,
)


def test_sound_machine_has_no_fault():
    assert {(each.state, each.remedy) for each in findings_of(SOUND)} == {("ok", "")}


@pytest.mark.parametrize(
    ("check", "state", "changed"),
    [
        ("python", "fail", {"python": "3.9.9"}),
        ("python", "fail", {"python": "3.14.0rc1"}),
        ("ray", "fail", {"ray": None}),
        ("ray", "fail", {"ray": "2.62.0"}),
        ("redis", "fail", {"redis": None}),
        ("memory", "fail", {"memory_bytes": GIB - 1}),
        ("memory", "warn", {"memory_bytes": GIB}),
        ("shared memory", "fail", {"shared_bytes": 64 * MIB}),
        ("shared memory", "warn", {"shared_bytes": 511 * MIB}),
        ("disk", "fail", {"disk_bytes": 0}),
        ("disk", "warn", {"disk_bytes": 4 * GIB}),
        ("open files", "fail", {"descriptors": 256}),
        ("open files", "warn", {"descriptors": 1024}),
        ("state folder", "fail", {"is_state_writable": False}),
        ("state folder", "warn", {"is_stack_dead": True}),
        ("port", "warn", {"is_port_free": False}),
        ("root", "fail", {"root": replace(ROOT, status=None)}),
        ("root", "fail", {"root": replace(ROOT, status=401)}),
        ("root", "fail", {"root": replace(ROOT, status=404)}),
        ("clock", "warn", {"root": replace(ROOT, clock_ahead_s=-3.0)}),
        ("page", "warn", {"is_page_built": False}),
    ],
)
def test_fault_is_one_row_with_a_remedy(check, state, changed):
    faults = [each for each in findings_of(replace(SOUND, **changed)) if each.state != "ok"]
    assert [(each.check, each.state) for each in faults] == [(check, state)]
    assert faults[0].remedy


@pytest.mark.parametrize("changed", [{"root": None}, {"shared_bytes": None}, {"is_stack_running": True, "is_port_free": False}])
def test_missing_fact_is_no_fault(changed):
    assert {each.state for each in findings_of(replace(SOUND, **changed))} == {"ok"}


def test_versions_are_those_of_the_package():
    project = Path("pyproject.toml").read_text(encoding="utf-8")
    for name, ((low_major, low), (high_major, high)) in (("ray[serve]", RAYS), ('requires-python = "', PYTHONS)):
        assert f"{name}>={low_major}.{low},<{high_major}.{high}" in project


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "nonsense"])
def test_named_root_without_a_key_or_address_fails(tmp_path, monkeypatch, capsys, address):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", address)
    monkeypatch.delenv("SCHEDULEMESH_API_KEY", raising=False)
    assert run_command(["doctor", "--json"]) == 1
    root = next(each for each in json.loads(capsys.readouterr().out)["checks"] if each["check"] == "root")
    assert (root["state"], root["found"].startswith(address)) == ("fail", True)


def test_doctor_prints_json_and_exits_by_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULEMESH_ADDRESS", "http://127.0.0.1:1")
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "none")
    assert run_command(["doctor", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert not printed["ok"]
    assert next(each for each in printed["checks"] if each["check"] == "root")["state"] == "fail"
    assert not list(tmp_path.iterdir())
