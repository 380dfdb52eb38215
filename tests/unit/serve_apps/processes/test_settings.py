from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from federation.configured_meshes import ConfiguredMeshes
from federation.snapshot import MeshRecord, PoolRecord
from mesh.core.resources import ResourceSet
from serve_apps.processes.settings import ChildSettings, LinkSettings, RootSettings, StoreSettings

STORE = {"redis_url": "redis://:secret@127.0.0.1:6379", "lease_ttl_ms": 3_000, "lease_grace_ms": 1_000}
COMMON = {"ray_address": "127.0.0.1:6380", "heartbeat_ms": 500, "storage_url": "file:///objects", "inline_limit_bytes": 65_536}
ROOT = RootSettings(
    **COMMON,
    **STORE,
    host="127.0.0.1",
    port=8000,
    gateways=2,
    body_limit_bytes=1 << 20,
    retention_ms=1,
    configured_meshes=ConfiguredMeshes(
        flavors={"standard": {"zone": "in(east, west)"}}, meshes={"east": MeshRecord(mesh="east", labels={}, pools=(), cluster="")}
    ),
    receipt_keys={1: "secret"},
)
POOL = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 1.5, "memory": "4GiB"}))
CHILD = {
    **COMMON,
    "record": MeshRecord(mesh="east", labels={"zone": "east"}, pools=(POOL,), cluster="", tenants=("acme",)),
    "node_labels": {"slice": "a"},
    "warm_runners": 1,
}
LINK = LinkSettings(roots=("https://root:8000",), key="smm_secret", ca_file="ca.pem")
DIRECT = ChildSettings(**CHILD, store=StoreSettings(**STORE), link=None)
LINKED = ChildSettings(**CHILD, store=None, link=LINK)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(ROOT, id="for the root"),
        pytest.param(DIRECT, id="for a child with a key to the store"),
        pytest.param(LINKED, id="for a child with a link"),
    ],
)
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
        pytest.param("more", 1, id="an unknown key"),
        pytest.param("port", "eighty", id="a word where a number belongs"),
        pytest.param("redis_url", None, id="null where text belongs"),
    ],
)
def test_a_file_that_says_anything_else_is_refused(tmp_path, key, value):
    document = {**json.loads(ROOT.model_dump_json()), key: value}
    (tmp_path / "one.json").write_text(json.dumps(document))
    with pytest.raises(ValidationError, match=key):
        RootSettings.read(str(tmp_path / "one.json"))


def test_a_file_from_which_something_is_missing_is_refused(tmp_path):
    document = json.loads(ROOT.model_dump_json())
    del document["redis_url"]
    (tmp_path / "one.json").write_text(json.dumps(document))
    with pytest.raises(ValidationError, match="redis_url"):
        RootSettings.read(str(tmp_path / "one.json"))


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        ROOT.port = 1


@pytest.mark.parametrize("settings", [ROOT, DIRECT, LINKED], ids=["of the root", "of a direct child", "of a linked child"])
def test_secrets_do_not_show_when_settings_are_printed(settings):
    assert "secret" not in repr(settings)


def test_a_child_with_a_link_knows_nothing_of_redis():
    assert "redis" not in LINKED.model_dump_json()


@pytest.mark.parametrize(
    "ways", [{"store": None, "link": None}, {"store": StoreSettings(**STORE), "link": LINK}], ids=["no link", "two links"]
)
def test_child_has_one_link_to_the_root(ways):
    with pytest.raises(ValidationError, match="exactly one of `store` and `link`"):
        ChildSettings(**CHILD, **ways)
