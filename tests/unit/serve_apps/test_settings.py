from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from federation.snapshot import MeshRecord, PoolRecord
from mesh.resources import ResourceSet
from serve_apps.settings import ChildSettings, RootSettings

COMMON = {
    "redis_url": "redis://:secret@127.0.0.1:6379",
    "ray_address": "127.0.0.1:6380",
    "lease_ttl_ms": 3_000,
    "lease_grace_ms": 1_000,
    "heartbeat_ms": 500,
    "storage_url": "file:///objects",
}
ROOT = RootSettings(**COMMON, host="127.0.0.1", port=8000, gateways=2, body_limit_bytes=1 << 20, retention_ms=1)
POOL = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 1.5, "memory": "4GiB"}))
CHILD = ChildSettings(
    **COMMON,
    record=MeshRecord(mesh="east", labels={"zone": "east"}, pools=(POOL,), cluster="", tenants=("acme",)),
    node_labels={"slice": "a"},
    inline_limit_bytes=65_536,
    warm_runners=1,
)


@pytest.mark.parametrize("settings", [pytest.param(ROOT, id="for the root"), pytest.param(CHILD, id="for a child")])
def test_settings_come_back_as_they_were_written(tmp_path, settings):
    file = tmp_path / "settings" / "one.json"
    settings.write(file)
    assert type(settings).read(str(file)) == settings


def test_only_the_owner_reads_them(tmp_path):
    ROOT.write(tmp_path / "one.json")
    assert (tmp_path / "one.json").stat().st_mode & 0o777 == 0o600


def test_only_the_owner_reads_them_even_where_a_file_lay_open(tmp_path):
    file = tmp_path / "one.json"
    file.write_text("{}")
    file.chmod(0o644)
    ROOT.write(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert RootSettings.read(str(file)) == ROOT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("more", 1, id="a key that nobody knows"),
        pytest.param("port", "eighty", id="a word where a number belongs"),
        pytest.param("redis_url", None, id="null where text belongs"),
    ],
)
def test_a_file_that_says_anything_else_is_refused(tmp_path, key, value):
    told = {**json.loads(ROOT.model_dump_json()), key: value}
    (tmp_path / "one.json").write_text(json.dumps(told))
    with pytest.raises(ValidationError, match=key):
        RootSettings.read(str(tmp_path / "one.json"))


def test_a_file_from_which_something_is_missing_is_refused(tmp_path):
    told = json.loads(ROOT.model_dump_json())
    del told["redis_url"]
    (tmp_path / "one.json").write_text(json.dumps(told))
    with pytest.raises(ValidationError, match="redis_url"):
        RootSettings.read(str(tmp_path / "one.json"))


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        ROOT.port = 1
