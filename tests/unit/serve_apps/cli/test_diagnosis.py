"""The checks of `doctor`, both ways."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from serve_apps.cli.app import run_command
from serve_apps.cli.diagnosis import GIB, MIB, PYTHONS, RAYS, findings_of
from serve_apps.cli.machine_facts import MachineFacts, RootFacts
from serve_apps.cli.server_facts import ClusterFacts, RedisFacts

ROOT = RootFacts(address="http://127.0.0.1:8000", status=200, clock_ahead_s=0.5)
REDIS = RedisFacts(place="redis.example:6379", memory_percent=10, clock_ahead_s=0.1)
CLUSTER = ClusterFacts(name="lab", address="10.0.0.7:6379", ray=ray.__version__, python=platform.python_version())
SOUND = MachineFacts(
    python="3.12.1",
    ray="2.61.0",
    redis="/usr/bin/redis-server",
    memory_bytes=8 * GIB,
    shared_bytes=2 * GIB,
    disk_bytes=50 * GIB,
    temporary_percent=40,
    descriptors=65_536,
    state=".schedulemesh",
    is_state_writable=True,
    is_stack_dead=False,
    is_stack_running=False,
    port=8000,
    is_port_free=True,
    redis_server=REDIS,
    clusters=(CLUSTER,),
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
        ("clock", "warn", {"redis_server": replace(REDIS, clock_ahead_s=3.0)}),
        ("temporary files", "fail", {"temporary_percent": 95}),
        ("secrets", "fail", {"open_secrets": ("federation.yaml",)}),
        ("clusters", "fail", {"clusters": (CLUSTER, replace(CLUSTER, name="far", error="no answer"))}),
        ("clusters", "fail", {"clusters": (replace(CLUSTER, ray="2.40.0"),)}),
        ("clusters", "fail", {"clusters": (replace(CLUSTER, python="3.9.1"),)}),
        ("redis server", "fail", {"redis_server": replace(REDIS, error="refused")}),
        ("redis server", "fail", {"redis_server": replace(REDIS, problems=("appendonly is no",))}),
        ("redis server", "warn", {"redis_server": replace(REDIS, memory_percent=75)}),
        ("key", "warn", {"root": replace(ROOT, key_ends_in_s=3_600.0)}),
        ("meshes", "warn", {"root": replace(ROOT, lost_meshes=("east is lost",))}),
        ("page", "warn", {"is_page_built": False}),
    ],
)
def test_fault_is_one_row_with_a_remedy(check, state, changed):
    faults = [each for each in findings_of(replace(SOUND, **changed)) if each.state != "ok"]
    assert [(each.check, each.state) for each in faults] == [(check, state)]
    assert faults[0].remedy


@pytest.mark.parametrize(
    "changed",
    [{"root": None, "redis_server": None}, {"clusters": ()}, {"shared_bytes": None}, {"is_stack_running": True, "is_port_free": False}],
)
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


def test_address_of_redis_is_shown_without_its_password(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULEMESH_REDIS_URL", "redis://user:hunter2@127.0.0.1:1/0")
    assert run_command(["doctor"]) == 1
    said = capsys.readouterr()
    assert "127.0.0.1:1" in said.out
    assert "hunter2" not in said.out + said.err
